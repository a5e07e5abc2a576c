"""Prompts as rows of verl's Parquet files."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from basis_rl.errors import BasisError, PromptsError
from basis_rl.prompts import Prompt
from basis_rl.prompts.columns import column_value
from basis_rl.prompts.verl_rows import PACKED, is_verl_row, packed, verifier_columns
from basis_rl.verifiers import NAMES
from basis_rl.verifiers.exact import answer_text

if TYPE_CHECKING:
    import pyarrow as pa

    from basis_rl.verifiers import NamedVerifier

PROMPT_ID = "prompt_id"


@dataclass(frozen=True)
class Prepared:
    """Rows for verl, and what was left out.

    Attributes
    ----------
    rows : list of dict
    without_answer : int
        Prompts on which the verifier has no verdict, whatever is answered.
    """

    rows: list[dict[str, Any]]
    without_answer: int


def prepare(
    prompts: Sequence[Prompt],
    verifier: NamedVerifier,
    *,
    data_source: str,
    split: str,
    answer_column: str = "answer",
    done: Callable[[int], None] = lambda number: None,
) -> Prepared:
    """Make verl's rows of prompts.

    Parameters
    ----------
    prompts : sequence of Prompt
        Each a chat (``load_prompts(chat=True)``): verl applies the model's template.
    verifier : NamedVerifier
        Of the run; the columns that it reads go with each row.
    data_source : str
        Of rows that do not say it themselves.
    split : str
        Goes into ``extra_info``.
    answer_column : str
        Column that becomes ``reward_model.ground_truth``.
    done : callable
        Called with the number of prompts done.

    Returns
    -------
    Prepared
        Rows with data_source, prompt, ability, reward_model, extra_info, prompt_id and source, and
        what else a row in verl's layout has.

    Raises
    ------
    BasisError
        If a prompt is no chat, a row lacks what the verifier needs, or nothing is left.
    """
    rows: list[dict[str, Any]] = []
    without = 0
    tried = verifier.name in NAMES  # a function may cost much, or see more than the answer
    for number, prompt in enumerate(prompts):
        row = _Row(prompt, verifier, data_source, answer_column)
        try:
            verifier.check(row.seen)
            # None for any answer is None for an empty one.
            if tried and verifier.submit([""], row.seen).result()[0].reward is None:
                without += 1
            else:
                rows.append(row.made(len(rows), split))
        except BasisError as error:
            raise type(error)(f"prompt {number} ({_text(prompt):.60}): {error}") from error
        done(number + 1)
    if not rows:
        raise PromptsError(
            f"none of the {without} prompts has an answer that verifier {verifier.name!r} can "
            "compare with: name another answer column (--answer-column)"
        )
    return Prepared(rows, without)


def _text(prompt: Prompt) -> str:
    if isinstance(prompt.prompt, str):
        return prompt.prompt
    return " ".join(str(prompt.prompt[-1]["content"]).split())


class _Row:
    """One prompt, on its way to a row."""

    def __init__(
        self, prompt: Prompt, verifier: NamedVerifier, data_source: str, answer_column: str
    ) -> None:
        self.prompt, self.verifier, self.answer_column = prompt, verifier, answer_column
        self.own = dict(prompt.columns) if is_verl_row(prompt.columns) else {}
        self.source = str(self.own.get("data_source") or data_source)
        self.extra = dict(self.own.get("extra_info") or {})
        self.truth = self._truth()
        # What verl gives to the verifier, but for what is packed.
        self.given = verifier_columns(self.source, self.truth, self.extra)
        self.extra.pop(PACKED, None)

    @property
    def seen(self) -> dict[str, Any]:
        """Columns of the prompt, and those that a reward function of verl's kind takes."""
        known: dict[str, Any] = {"data_source": self.source, "extra_info": self.extra}
        if self._has_answer():
            known["ground_truth"] = self.truth
        return {**known, **self.prompt.columns}

    def made(self, index: int, split: str) -> dict[str, Any]:
        if not isinstance(self.prompt.prompt, list):
            raise PromptsError("verl needs chats: make it one user message (--chat)")
        extra = {"index": index, "split": split, **self.extra, PROMPT_ID: self.prompt.key}
        rest = self._rest()
        if rest:
            extra[PACKED] = packed(rest)
        kept = {name: value for name, value in self.own.items() if name not in self.given}
        reward_model = {"style": "rule", **self.own.get("reward_model", {})}
        return {
            **kept,
            "data_source": self.source,
            "prompt": self.prompt.prompt,
            "ability": self.own.get("ability") or self.verifier.name,
            "reward_model": {**reward_model, "ground_truth": self.truth},
            "extra_info": extra,
            PROMPT_ID: self.prompt.key,
            "source": self.prompt.source or self.source,
        }

    def _has_answer(self) -> bool:
        try:
            column_value(self.prompt.columns, self.answer_column)
        except KeyError:
            return False
        return True

    def _truth(self) -> str | None:
        if not self._has_answer():  # some verifiers do without
            return None
        answer = column_value(self.prompt.columns, self.answer_column)
        if answer is None:
            return None
        if isinstance(answer, str):
            return answer
        if isinstance(answer, list | Mapping | bool):
            return json.dumps(answer, default=str)
        return answer_text(answer)

    def _rest(self) -> dict[str, Any]:
        """Columns that the verifier reads and verl would not give it, or not as they are."""
        needed = self.verifier.needed(self.seen)
        needed.pop("extra_info", None)  # verl gives it whole
        if self.verifier.name in NAMES:  # there it is made with the answer where verl has it
            needed.pop(self.answer_column, None)
        return {
            name: value
            for name, value in needed.items()
            if name not in self.given
            or self.given[name] != value
            or type(self.given[name]) is not type(value)
        }


def split_off(
    prompts: Sequence[Prompt], fraction: float, *, seed: int = 0
) -> tuple[list[Prompt], list[Prompt]]:
    """Training and validation prompts; which prompt goes where depends on its key alone.

    Parameters
    ----------
    prompts : sequence of Prompt
    fraction : float
        Share of the validation prompts, in (0, 1).
    seed : int

    Raises
    ------
    PromptsError
        If one of the two would be empty.
    """
    count = round(fraction * len(prompts)) if 0 < fraction < 1 else 0  # nan is neither
    if not 0 < count < len(prompts):
        raise PromptsError(
            f"a share of {fraction} of {len(prompts)} prompts leaves no validation or no training "
            "prompt: choose another one"
        )
    order = sorted(range(len(prompts)), key=lambda i: _draw(prompts[i].key, seed))
    chosen = set(order[:count])
    train = [prompt for i, prompt in enumerate(prompts) if i not in chosen]
    return train, [prompts[i] for i in sorted(chosen)]


def _draw(key: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed} {key}".encode()).digest()


def parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Rows as the bytes of a Parquet file.

    Raises
    ------
    PromptsError
        If a column's values fit no one type of Parquet.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = list(dict.fromkeys(name for row in rows for name in row))
    table = pa.table({name: _column(name, rows) for name in names})
    sink = io.BytesIO()
    try:
        pq.write_table(table, sink)
    except pa.ArrowException as error:
        raise PromptsError(f"the rows cannot be written as Parquet ({error})") from None
    return sink.getvalue()


def _column(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array([row.get(name) for row in rows])
    except (pa.ArrowException, OverflowError) as error:
        raise PromptsError(
            f"column {name!r} has values that one Parquet column cannot hold ({error}): make them "
            "texts, or leave the column out"
        ) from None
