"""`basis-rl cache merge`: one table of several."""

from __future__ import annotations

from typing import Any

import click


@click.command(short_help="Make one table of a build's shards, or of several tables.")
@click.argument("files", nargs=-1, required=True)
@click.option("--out", required=True, help="Parquet file to write.")
@click.option(
    "--on-conflict",
    type=click.Choice(["sum", "first"]),
    help="Prompts in several files: sum their rollouts, or keep the first file's.",
)
@click.option("--partial", is_flag=True, help="Accept that shards are missing.")
@click.option(
    "--allow-mismatch",
    multiple=True,
    metavar="SETTING",
    help="Accept files that differ in a setting, such as verifier_version.",
)
def merge(files: tuple[str, ...], **options: Any) -> None:
    """Make one table of FILES: all shards of a build, or tables of the same settings.

    Nothing is resolved silently: other settings, missing shards and prompts that are in several
    files are errors that say what to do.
    """
    from basis_rl.passrates.merging.files import merge_files

    out = options["out"]
    merged = merge_files(
        files,
        out,
        on_conflict=options["on_conflict"],
        partial=options["partial"],
        allow_mismatch=options["allow_mismatch"],
    )
    if merged.conflicts:
        done = "summed" if options["on_conflict"] == "sum" else "taken from the first file"
        click.echo(f"{merged.conflicts} prompts were in several files: {done}", err=True)
    if merged.no_journal:
        click.echo(
            f"no journal written ({merged.no_journal}): the completions cannot be judged again or "
            "extended here",
            err=True,
        )
    click.echo(f"wrote {out}: {merged.table}, mean reward {merged.table.means.mean():.4f}")
