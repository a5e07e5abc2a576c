"""The options that name a data set's prompts, shared by the commands that read one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from basis_rl.errors import ConfigError

if TYPE_CHECKING:
    from basis_rl.prompts import Prompt, Repeats

Function = TypeVar("Function", bound=Callable[..., Any])
_DATA_HELP = "Prompts: .jsonl, .json (also .gz), .parquet, reasoning-gym:<task>, hub id."
_OPTIONS = [
    click.option("--split", default="train", show_default=True, help="Split of a hub data set."),
    click.option("--prompt-column", default="prompt", show_default=True),
    click.option("--answer-column", default="answer", show_default=True),
    click.option(
        "--key-column", help="Column with prompt keys; without it, a hash of the content."
    ),
    click.option("--source-column", help="Column with each prompt's data set or task."),
    click.option(
        "--template",
        help=r'Prompt text, e.g. "Q: {question}\nA:"; \n is a line end, {{ is a brace, '
        "{options:letters} a list as lines A., B., …",
    ),
    click.option("--system", help="System message; makes text prompts chats."),
    click.option(
        "--chat/--no-chat", default=None, help="Text prompts as user messages, or as they are."
    ),
    click.option(
        "--where",
        multiple=True,
        metavar="COLUMN=YAML",
        help="Keep rows with this value or one of these, e.g. 'level=[Level 4, Level 5]'.",
    ),
    click.option("--limit", type=int, help="Only so many prompts."),
]


def data_options(command: Function) -> Function:
    """Add the options of a data set to a command; `prompts_of` reads them."""
    return click.option("--data", required=True, help=_DATA_HELP)(row_options(command))


def more_data_options(command: Function) -> Function:
    """Add the options of a data set that may be left out."""
    return click.option("--data", help=_DATA_HELP)(row_options(command))


def row_options(command: Function) -> Function:
    """Add the options of a data set to a command with an argument DATA."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def data_given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a data set among a command's, as JSON types; `prompts_of` reads them too."""
    names = ("data", "split", "prompt_column", "answer_column", "key_column", "source_column")
    more = ("template", "system", "chat", "limit")
    return {name: options[name] for name in (*names, *more)} | {"where": list(options["where"])}


def prompts_of(options: Mapping[str, Any], *, repeats: Repeats | None = None) -> list[Prompt]:
    """Prompts that the options name; repeats are counted, or warned of where nobody counts.

    Raises
    ------
    BasisError
        As `load_prompts`, and if a condition cannot be read.
    """
    from basis_rl.prompts import load_prompts

    template = options["template"]
    return load_prompts(
        options["data"],
        split=options["split"],
        prompt_column=options["prompt_column"],
        key_column=options["key_column"],
        source_column=options["source_column"],
        limit=options["limit"],
        template=None if template is None else unescaped(template),
        system=options["system"],
        chat=options["chat"],
        where=wanted_rows(options["where"]),
        answer_column=options["answer_column"],
        repeats=repeats,
    )


def wanted_rows(conditions: Sequence[str]) -> dict[str, Any]:
    """Conditions ``column=value`` or ``column=[value, value]`` as a dict.

    Raises
    ------
    ConfigError
        If one has another form.
    """
    from basis_rl.train.document import parse_yaml

    wanted: dict[str, Any] = {}
    for condition in conditions:
        column, equals, value = condition.partition("=")
        if not equals or not column.strip():
            raise ConfigError(f"--where {condition}: write it as column=value")
        wanted[column.strip()] = parse_yaml(value, where=f"--where {condition}")
    return wanted


def unescaped(text: str) -> str:
    r"""Text in which ``\n`` stands for a line end and ``\\n`` for these two characters.

    Nothing else is an escape: ``\text`` stays as it is, and ``\neq`` is typed ``\\neq``.
    """
    return re.sub(r"\\(\\?)n", lambda match: "\\n" if match[1] else "\n", text)
