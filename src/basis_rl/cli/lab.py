"""`basis-rl lab`: compare baselines on records of rewards, one small module a command."""

from __future__ import annotations

import click

from basis_rl.cli import LazyGroup

COMMANDS: dict[str, tuple[str, str]] = {
    "figures": ("basis_rl.cli.lab_figures", "figures"),
    "gradient": ("basis_rl.cli.lab_gradient", "gradient"),
    "recommend": ("basis_rl.cli.lab_recommend", "recommend"),
    "record": ("basis_rl.cli.lab_record", "record"),
    "replay": ("basis_rl.cli.lab_replay", "replay"),
    "simulate": ("basis_rl.cli.lab_simulate", "simulate"),
}


@click.group(
    cls=LazyGroup, modules=COMMANDS, short_help="Compare baselines on a record of rewards."
)
def lab() -> None:
    """The laboratory: replay records of rewards, draw the paper's figures, recommend a baseline."""
