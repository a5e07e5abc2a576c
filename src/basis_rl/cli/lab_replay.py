"""`basis-rl lab replay`: how far each baseline is from the true value, on a record of rewards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from basis_rl.cli.lab_progress import counted
from basis_rl.cli.output_folder import output_folder
from basis_rl.cli.record_options import left_out_lines, record_of, record_options
from basis_rl.cli.terminal import printable
from basis_rl.messages import one_line_warnings

if TYPE_CHECKING:
    from basis_rl.lab.replaying.result import Replay
    from basis_rl.passrates.importers.record import Notes


@click.command(short_help="Measure every baseline on a record of rewards.")
@record_options
@click.option(
    "--start",
    type=int,
    metavar="STEP",
    help="First step to replay; the cache is a random part of what is before.",
)
@click.option("--batch-size", default=64, show_default=True, help="Prompts of a batch.")
@click.option("--rollouts", default=1, show_default=True, help="Shown of each visit.")
@click.option("--seeds", default=5, show_default=True, help="Repetitions.")
@click.option(
    "--batches",
    default="shuffled",
    show_default=True,
    help="shuffled within a step, or recorded: a step is a batch.",
)
@click.option(
    "--estimators",
    metavar="A,B",
    help="Only these; an estimator's name (basis) stands for all its presets.",
)
@click.option("--tuned", is_flag=True, help="Also choose each estimator's settings on this file.")
@click.option("--by", default="quarter", show_default=True, help="Or heterogeneity, difficulty.")
@click.option("--reference", metavar="NAME", help="What the others are compared with.")
@click.option("--out", metavar="DIR", help="Folder for all measures as CSV.")
def replay(records: tuple[str, ...], **options: Any) -> None:
    """Show each estimator one rollout of every visit and compare with the visit's others.

    RECORD is a trace, a matrix of rewards, the record of a training run, a dump of rollouts that
    `cache import` reads, or several of one run. docs/lab.md has the protocol.
    """
    with one_line_warnings():
        _replay(records, options)


def _replay(records: tuple[str, ...], options: dict[str, Any]) -> None:
    from basis_rl.errors import ConfigError, nearest
    from basis_rl.lab.contenders import contenders
    from basis_rl.lab.replay import replay as run
    from basis_rl.lab.replaying import tables
    from basis_rl.passrates.importers.record import Notes

    if options["by"] not in tables.BY:
        raise ConfigError(f"--by is {options['by']!r}: use {', '.join(tables.BY)}")
    if options["out"] is not None:
        output_folder(options["out"], "mse.csv")
    notes = Notes()
    record = record_of(records, options, notes)
    names = options["estimators"]
    chosen = contenders(
        None if names is None else [name.strip() for name in names.split(",")],
        tuned=options["tuned"],
        continuous=not record.is_binary,
    )
    known = [each.name for each in chosen]
    if options["reference"] is not None and options["reference"] not in known:
        raise ConfigError(
            f"--reference is {options['reference']!r}, which takes no part"
            f"{nearest(options['reference'], known)}"
        )
    with counted("replaying", "batches") as progress:
        found = run(
            record,
            chosen,
            batch_size=options["batch_size"],
            rollouts=options["rollouts"],
            cache_rollouts=options["cache"],
            start=options["start"],
            seeds=options["seeds"],
            batches=options["batches"],
            progress=progress,
        )
    reference = tables.reference_of(found, options["reference"])
    click.echo(printable(_text(found, options["by"], reference, notes)))
    if options["out"] is not None:
        _write(options["out"], tables.csv_files(found, reference))


def _text(found: Replay, by: str, reference: str, notes: Notes) -> str:
    """Tables and remarks of a replay."""
    from basis_rl.lab.replaying import tables

    lines = [
        tables.title_line(found),
        "",
        *tables.mse_lines(found, by),
        "",
        *tables.measure_lines(found, reference),
    ]
    left_out = left_out_lines(notes)
    more = [*left_out, *notes.remarks, *tables.note_lines(found)]
    return "\n".join([*lines, *([""] if more else []), *more])


def _write(folder: str, files: dict[str, str]) -> None:
    from basis_rl.files import write_atomically

    for name, text in files.items():
        write_atomically(Path(folder) / name, text.encode())
    click.echo(f"wrote {', '.join(files)} into {folder}", err=True)
