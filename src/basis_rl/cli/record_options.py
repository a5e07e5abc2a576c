"""The options that say how a record of rewards is read, shared by the commands that replay one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from basis_rl.cli.cache_import import mapping_of, steps_of

if TYPE_CHECKING:
    from basis_rl.lab.record import RewardRecord
    from basis_rl.passrates.importers.record import Notes

Function = TypeVar("Function", bound=Callable[..., Any])
_COLUMNS = ("reward_column", "prompt_column", "key_column", "source_column")
_OPTIONS = [
    click.option("--pass-rates", metavar="FILE", help="Rollouts of the reference policy."),
    click.option(
        "--cache",
        default=32,
        show_default=True,
        help="Without them: first rollouts of each prompt.",
    ),
    click.option("--steps", metavar="A:B", help="Steps to take, both included."),
    click.option("--format", help="Found by itself."),
    click.option("--map", "mapping", multiple=True, metavar="OLD=NEW", help="Reward to replace."),
    click.option("--reward-column", help="Of a dump of no known format."),
    click.option("--prompt-column", help="Of a dump."),
    click.option("--key-column", help="Of a dump."),
    click.option("--source-column", help="Of a dump."),
]


def record_options(command: Function) -> Function:
    """Add the arguments and options of a record to a command; `record_of` reads them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return click.argument("records", nargs=-1, required=True, metavar="RECORD...")(command)


def record_of(records: Sequence[str], options: Mapping[str, Any], notes: Notes) -> RewardRecord:
    """Read the record that a command's arguments name."""
    from basis_rl.lab.read import read_record
    from basis_rl.passrates.importers.record import Options

    return read_record(
        list(records),
        format=options["format"],
        steps=steps_of(options["steps"]),
        pass_rates=options["pass_rates"],
        mapping=mapping_of(options["mapping"]),
        options=Options(**{name: options[name] for name in _COLUMNS}),
        notes=notes,
    )


def left_out_lines(notes: Notes) -> list[str]:
    """What was left out in reading a record, a line for each reason."""
    return [
        f"left out {number} rollout{'' if number == 1 else 's'} {why}"
        for why, number in notes.dropped.items()
    ]
