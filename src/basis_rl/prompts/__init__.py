"""Prompts from files, generators and the hub, each with a stable key."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from basis_rl.errors import PromptsError
from basis_rl.passrates.keys import prompt_key
from basis_rl.prompts import files, generated, hub
from basis_rl.prompts.columns import column_value, required_value
from basis_rl.prompts.template import Message, as_prompt, fill, with_system
from basis_rl.prompts.verl_rows import with_verifier_columns
from basis_rl.prompts.where import Where

__all__ = ["Message", "Prompt", "Repeats", "check_data", "column_value", "load_prompts"]


@dataclass(frozen=True)
class Prompt:
    """One prompt of a data set.

    Attributes
    ----------
    key : str
        Its row in the table of pass rates.
    prompt : str or list of messages
        What the model sees.
    source : str, optional
        Data set or task that it belongs to.
    columns : dict
        The row as read; verifiers take the answer from here. Rows in verl's layout have the columns
        that a verifier would find inside verl, too (`prompts.verl_rows`).
    """

    key: str
    prompt: str | list[Message]
    source: str | None
    columns: dict[str, Any]


@dataclass
class Repeats:
    """Rows of a data set that repeat an earlier prompt.

    Attributes
    ----------
    read : int
        Rows read.
    repeated : int
        Rows with a prompt that an earlier row has.
    conflicts : list of str
        Place and answers of each of these whose answer is another one.
    """

    read: int = 0
    repeated: int = 0
    conflicts: list[str] = field(default_factory=list)

    def warn(self, data: str) -> None:
        """Say in a warning or two what was left out."""
        if self.repeated:
            warnings.warn(
                f"{data}: {self.repeated} of {self.read} rows repeat an earlier prompt and were "
                "left out",
                stacklevel=3,
            )
        if self.conflicts:
            warnings.warn(
                f"{data}: {len(self.conflicts)} of these repeats have another answer than the "
                f"prompt's first row, which was kept (first: {self.conflicts[0]})",
                stacklevel=3,
            )


def check_data(data: str) -> None:
    """Refuse a data name that cannot be loaded, without reading its rows.

    Raises
    ------
    PromptsError
        If the file is missing, the generator's task unknown, or the name of no known form.
    """
    if data.startswith(generated.PREFIX):
        generated.check(data)
    elif files.is_file_name(data):
        files.check_file(data)
    else:
        hub.check(data)


def load_prompts(
    data: str,
    *,
    split: str = "train",
    prompt_column: str = "prompt",
    key_column: str | None = None,
    source_column: str | None = None,
    limit: int | None = None,
    template: str | None = None,
    system: str | None = None,
    chat: bool | None = None,
    where: Mapping[str, Any] | None = None,
    answer_column: str = "answer",
    repeats: Repeats | None = None,
) -> list[Prompt]:
    r"""Prompts of a data set, in its order, each once.

    All columns may be dotted paths (``reward_model.ground_truth``, ``options.0``). A prompt that
    appears again is left out and counted in a warning (published data sets repeat prompts:
    DAPO-Math-17K holds each about a hundred times). Of repeats with different answers the first
    one holds, and another warning names the first of them.

    Parameters
    ----------
    data : str
        Path of a .jsonl, .json (both also .gz) or .parquet file;
        ``reasoning-gym:<task>?size=500&seed=0&<option of the task>=<value>``; or a hub id
        ``owner/name`` or ``owner/name:config``.
    split : str
        Split of a hub data set; files and generators have none.
    prompt_column : str
        Column with a text or a list of chat messages; unused with a template.
    key_column : str, optional
        Column with a key per prompt; by default the key is a hash of the prompt's content.
    source_column : str, optional
        Column with the source; reasoning-gym prompts have their task without one.
    limit : int, optional
        Stop after so many prompts.
    template : str, optional
        Text with ``{column}`` fields, e.g. ``"Question: {question}\nAnswer:"``.
    system : str, optional
        System message; makes text prompts chat prompts.
    chat : bool, optional
        True makes a text one user message, False insists on raw text, None keeps what there is.
    where : mapping, optional
        Keep rows whose column has the given value (or one of a list of values).
    answer_column : str
        Column in which repeats of a prompt are compared, where there is one.
    repeats : Repeats, optional
        Filled in, in place of the warnings.

    Returns
    -------
    list of Prompt

    Raises
    ------
    PromptsError
        If the data cannot be read, a column is missing, a row holds no prompt, a key names two
        different prompts, or nothing is left.
    """
    if limit is not None and limit < 1:
        raise PromptsError(f"limit is {limit}: use a positive number, or none for all prompts")
    if chat is False and system is not None:
        raise PromptsError("a system message needs chat prompts: set chat to true or drop system")
    if source_column is None and data.startswith(generated.PREFIX):
        source_column = "metadata.source_dataset"
    found = Repeats() if repeats is None else repeats
    conditions = Where(where or {})
    prompts: dict[str, Prompt] = {}
    for place, as_read in _rows(data, split):
        row = with_verifier_columns(as_read)
        found.read += 1
        if not conditions.keeps(row, place):
            continue
        content = _content(row, prompt_column, template, place)
        content = with_system(content, system=system, chat=chat, where=place)
        key = prompt_key(content) if key_column is None else _name(row, key_column, place)
        if key in prompts:
            if prompts[key].prompt != content:
                raise PromptsError(
                    f"{place}: key {key!r} is also that of another prompt: make column "
                    f"{key_column!r} unique, or leave the key column out"
                )
            found.repeated += 1
            answers = [_optional(r, answer_column) for r in (prompts[key].columns, row)]
            if answers[0] != answers[1]:
                found.conflicts.append(
                    f"{place}: {answer_column} {answers[1]!r:.40}, before {answers[0]!r:.40}"
                )
            continue
        source = None if source_column is None else _name(row, source_column, place)
        prompts[key] = Prompt(key, content, source, row)
        if len(prompts) == limit:
            break
    if not prompts:
        what = f"{found.read} rows and none that fits {conditions}" if found.read else "no rows"
        raise PromptsError(f"{data} has {what}: there is nothing to train on")
    if repeats is None:
        found.warn(data)
    return list(prompts.values())


def _rows(data: str, split: str) -> Iterator[files.Row]:
    if data.startswith(generated.PREFIX):
        return generated.read_rows(data)
    if files.is_file_name(data):
        return files.read_rows(data)
    return hub.read_rows(data, split)


def _content(
    row: Mapping[str, Any], prompt_column: str, template: str | None, place: str
) -> str | list[Message]:
    if template is not None:
        return fill(template, row, where=place)
    try:
        value = required_value(row, prompt_column, where=place)
    except PromptsError as error:
        raise PromptsError(
            f"{error}; name one as prompt column (--prompt-column), or fill some into a template "
            "(--template)"
        ) from None
    return as_prompt(value, where=place, column=prompt_column)


def _optional(row: Mapping[str, Any], column: str) -> Any:
    try:
        return column_value(row, column)
    except KeyError:
        return None


def _name(row: Mapping[str, Any], column: str, place: str) -> str:
    value = required_value(row, column, where=place)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise PromptsError(
            f"{place}: column {column!r} is {value!r:.60}: keys and sources are texts or integers"
        )
    return str(value)
