"""`basis-rl cache info`: what a table holds."""

from __future__ import annotations

import click

from basis_rl.cli.terminal import columns, has_blocks, printable


@click.command(short_help="Print what a table holds and what made it.")
@click.argument("file")
@click.option("--png", metavar="OUT.png", help="Draw the histogram into a picture too.")
def info(file: str, png: str | None) -> None:
    """Print counts, mean, histogram, sources and provenance of FILE."""
    from basis_rl.passrates import PassRates
    from basis_rl.passrates.inspect.describe import describe

    if png is not None:
        from basis_rl.passrates.inspect.picture import check_picture

        check_picture(png)
    table = PassRates.load(file)
    click.echo(printable(describe(table, file, blocks=has_blocks(), width=columns())))
    if png is not None:
        from basis_rl.passrates.inspect.picture import save_picture

        save_picture(table, png, name=file)
        click.echo(f"wrote {png}", err=True)
