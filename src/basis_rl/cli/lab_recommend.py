"""`basis-rl lab recommend`: which baseline to use on the data of a record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from basis_rl.cli.output_folder import output_folder
from basis_rl.cli.record_options import left_out_lines, record_of, record_options
from basis_rl.cli.terminal import columns, printable
from basis_rl.messages import one_line_warnings

if TYPE_CHECKING:
    from basis_rl.lab.recommend import Recommendation

PICTURE, NUMBERS = "recommendation.png", "recommendation.json"


@click.command(short_help="Say which baseline to use on the data of a record.")
@record_options
@click.option("--batch-size", type=int, help="Prompts of a training step; found by itself.")
@click.option("--rollouts", default=1, show_default=True, help="Of a prompt in a step.")
@click.option("--seeds", default=3, show_default=True, help="Repetitions.")
@click.option(
    "--estimators",
    metavar="A,B",
    help="Compare these alone; an estimator's name (basis) stands for all its presets.",
)
@click.option(
    "--tolerance", default=0.01, show_default=True, help="Share of the noise that does not matter."
)
@click.option("--out", metavar="DIR", help=f"Folder for {PICTURE} and {NUMBERS}.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def recommend(records: tuple[str, ...], **options: Any) -> None:
    """Compare all baselines on RECORD and say which to use, by how much, and how sure that is.

    RECORD is what `lab replay` takes, or the log of a run with one rollout per prompt.
    """
    with one_line_warnings():
        _recommend(records, options)


def _recommend(records: tuple[str, ...], options: dict[str, Any]) -> None:
    from basis_rl.drawing import check_matplotlib
    from basis_rl.lab.recommend import recommend as run
    from basis_rl.lab.recommend.judge import usable
    from basis_rl.lab.recommend.words import paragraphs
    from basis_rl.passrates.importers.record import Notes

    if options["out"] is not None:
        check_matplotlib()
    folder = None if options["out"] is None else output_folder(options["out"], PICTURE, NUMBERS)
    notes = Notes()
    record = record_of(records, options, notes)
    names = options["estimators"]
    with _progress() as progress:
        found = run(
            record,
            batch_size=options["batch_size"],
            rollouts=options["rollouts"],
            cache_rollouts=options["cache"],
            seeds=options["seeds"],
            contenders=None
            if names is None
            else usable(
                options["rollouts"],
                continuous=not record.is_binary,
                names=[name.strip() for name in names.split(",")],
            ),
            tolerance=options["tolerance"],
            progress=progress,
        )
    if options["as_json"]:
        click.echo(json.dumps(found.to_dict()))
    else:
        told = [*left_out_lines(notes), *notes.remarks]
        text = "\n\n".join([*map(_wrapped, paragraphs(found)), *told])
        click.echo(printable(text))
    if folder is not None:
        _write(found, folder)


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """One bar after another, each for a part of the work."""
    from contextlib import ExitStack

    from basis_rl.cli.lab_progress import counted

    with ExitStack() as bars:
        doing, show = "", None

        def tell(part: str, done: int, total: int) -> None:
            nonlocal doing, show
            if part != doing or show is None:
                bars.close()
                doing, show = part, bars.enter_context(counted(part, "batches"))
            show(done, total)

        yield tell


def _wrapped(paragraph: str) -> str:
    import textwrap

    return textwrap.fill(paragraph, min(max(columns(), 40), 100))


def _write(found: Recommendation, folder: Path) -> None:
    from basis_rl.files import write_atomically
    from basis_rl.lab.recommend.picture import picture

    write_atomically(folder / NUMBERS, json.dumps(found.to_dict(), indent=1).encode())
    write_atomically(folder / PICTURE, picture(found))
    click.echo(f"wrote {folder / PICTURE} and {folder / NUMBERS}", err=True)
