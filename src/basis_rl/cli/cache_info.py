"""`basis-rl cache info`: what a table holds."""

from __future__ import annotations

import click


@click.command(short_help="Print what a table holds and what made it.")
@click.argument("file")
def info(file: str) -> None:
    """Print counts, mean, histogram and provenance of FILE."""
    from basis_rl.passrates import PassRates
    from basis_rl.passrates.describe import describe

    click.echo(describe(PassRates.load(file), file))
