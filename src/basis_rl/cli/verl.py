"""`basis-rl verl`: BASIS in verl's trainer, one small module a command."""

from __future__ import annotations

import click

from basis_rl.cli import LazyGroup

COMMANDS = {
    "command": ("basis_rl.cli.verl_command", "command"),
    "prepare": ("basis_rl.cli.verl_prepare", "prepare"),
    "check": ("basis_rl.cli.verl_check", "check"),
}


@click.group(cls=LazyGroup, modules=COMMANDS, short_help="Check and write runs of verl's trainer.")
def verl() -> None:
    """Runs of verl's stock trainer with estimators of this package."""
