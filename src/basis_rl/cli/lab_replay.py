"""`basis-rl lab replay`: how far each baseline is from the true value, on a record of rewards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from basis_rl.cli.cache_import import mapping_of, steps_of
from basis_rl.cli.lab_progress import counted
from basis_rl.cli.terminal import printable
from basis_rl.messages import one_line_warnings

if TYPE_CHECKING:
    from basis_rl.lab.record import RewardRecord
    from basis_rl.passrates.importers.record import Notes


@click.command(short_help="Measure every baseline on a record of rewards.")
@click.argument("records", nargs=-1, required=True, metavar="RECORD...")
@click.option("--pass-rates", metavar="FILE", help="Rollouts of the reference policy.")
@click.option(
    "--cache", default=32, show_default=True, help="Without them: first rollouts of each prompt."
)
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
@click.option("--estimators", metavar="A,B", help="Only these.")
@click.option("--tuned", is_flag=True, help="Also choose each estimator's settings on this file.")
@click.option("--by", default="quarter", show_default=True, help="Or heterogeneity, difficulty.")
@click.option("--reference", metavar="NAME", help="What the others are compared with.")
@click.option("--out", metavar="DIR", help="Folder for all measures as CSV.")
@click.option("--steps", metavar="A:B", help="Steps to take, both included.")
@click.option("--format", help="Found by itself.")
@click.option("--map", "mapping", multiple=True, metavar="OLD=NEW", help="Reward to replace.")
@click.option("--reward-column", help="Of a dump of no known format.")
@click.option("--prompt-column", help="Of a dump.")
@click.option("--key-column", help="Of a dump.")
@click.option("--source-column", help="Of a dump.")
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
        _check_folder(options["out"])
    notes = Notes()
    record = _read(records, options, notes)
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
    lines = [
        tables.title_line(found),
        "",
        *tables.mse_lines(found, options["by"]),
        "",
        *tables.measure_lines(found, reference),
    ]
    left_out = [f"left out {number} rollouts {why}" for why, number in notes.dropped.items()]
    more = [*left_out, *notes.remarks, *tables.note_lines(found)]
    click.echo(printable("\n".join([*lines, *([""] if more else []), *more])))
    if options["out"] is not None:
        _write(options["out"], tables.csv_files(found, reference))


def _read(records: tuple[str, ...], options: dict[str, Any], notes: Notes) -> RewardRecord:
    from basis_rl.lab.read import read_record
    from basis_rl.passrates.importers.record import Options

    names = ("reward_column", "prompt_column", "key_column", "source_column")
    return read_record(
        list(records),
        format=options["format"],
        steps=steps_of(options["steps"]),
        pass_rates=options["pass_rates"],
        mapping=mapping_of(options["mapping"]),
        options=Options(**{name: options[name] for name in names}),
        notes=notes,
    )


def _check_folder(folder: str) -> None:
    """Make the folder and refuse one that cannot be written to, before any long work."""
    from basis_rl.errors import BasisError
    from basis_rl.files import check_writable

    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BasisError(
            f"cannot make the folder {folder} ({error.strerror}): name another one"
        ) from None
    check_writable(path / "mse.csv", shown=path / "mse.csv")


def _write(folder: str, files: dict[str, str]) -> None:
    from basis_rl.files import write_atomically

    for name, text in files.items():
        write_atomically(Path(folder) / name, text.encode())
    click.echo(f"wrote {', '.join(files)} into {folder}", err=True)
