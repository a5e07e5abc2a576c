"""`basis-rl cache`: tables of pass rates, one small module a command."""

from __future__ import annotations

import click

from basis_rl.cli import LazyGroup

COMMANDS = {
    "absorb": ("basis_rl.cli.cache_absorb", "absorb"),
    "merge": ("basis_rl.cli.cache_merge", "merge"),
    "build": ("basis_rl.cli.cache_build", "build"),
    "extend": ("basis_rl.cli.cache_extend", "extend"),
    "refresh": ("basis_rl.cli.cache_refresh", "refresh"),
    "check": ("basis_rl.cli.cache_check", "check"),
    "import": ("basis_rl.cli.cache_import", "import_"),
    "info": ("basis_rl.cli.cache_info", "info"),
}


@click.group(
    cls=LazyGroup, modules=COMMANDS, short_help="Build, import, inspect and extend pass rates."
)
def cache() -> None:
    """Tables of pass rates: build or import one, look at it, keep it up to date."""
