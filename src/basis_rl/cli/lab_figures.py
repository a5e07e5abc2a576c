"""`basis-rl lab figures`: the paper's value-estimation figures from records of rewards."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from basis_rl.cli.lab_progress import counted
from basis_rl.cli.output_folder import output_folder
from basis_rl.cli.terminal import printable

if TYPE_CHECKING:
    from basis_rl.lab.figures.compared import Compared
    from basis_rl.lab.figures.paper import Results, Settings
    from basis_rl.lab.figures.statements import Statement
    from basis_rl.lab.record import RewardRecord, Stage

_FIGURES = ("2", "3a", "3b", "3c", "3d", "4", "5", "8")
_FOLLOWER = "basis-online"
_PICTURES = ("svg", "pdf", "png")


@click.command(short_help="Draw the paper's figures on value estimation.")
@click.argument("records", nargs=-1, required=True, metavar="RECORD...")
@click.option("--pass-rates", metavar="FILE", help="Reference pass rates of the prompts.")
@click.option(
    "--figure", "figures", multiple=True, type=click.Choice(_FIGURES), help="Only this; repeat it."
)
@click.option(
    "--repeats",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Batches of a stage in all figures but 3b; the paper has 10.",
)
@click.option(
    "--batches",
    type=click.IntRange(1),
    default=500,
    show_default=True,
    help="Batches of figure 3b.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(2),
    default=64,
    show_default=True,
    help="Prompts in a batch.",
)
@click.option(
    "--oracle", default=24, show_default=True, help="Least rollouts behind a prompt's value."
)
@click.option(
    "--cache-rollouts",
    default=32,
    show_default=True,
    help="Without --pass-rates: rollouts of a prompt's first visits that make its pass rate.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--out", default="figures", show_default=True, help="Folder to write into.")
def figures(records: tuple[str, ...], **options: Any) -> None:
    """Draw Fig. 2, 3 a-d, 4, 5 and 8 of the paper from RECORDs.

    One RECORD is a run in which prompts come back: its early, middle and late visits. Several are
    checkpoints of one run in the order of training, with the same prompts (`basis-rl lab
    record`). Writes each figure as CSV, SVG, PDF and PNG, statements.csv, and figures.html with
    all of them.
    """
    from basis_rl.drawing import check_matplotlib

    check_matplotlib()
    with _folder(options["out"]) as out:
        _draw(out, records, options)


def _draw(out: Path, sources: tuple[str, ...], options: dict[str, Any]) -> None:
    from basis_rl.lab.figures.cautions import cautions
    from basis_rl.lab.figures.paper import Settings, paper_figures
    from basis_rl.lab.figures.statements import statements

    stages, record = _stages(sources, options)
    settings = Settings(
        repeats=options["repeats"],
        batches=options["batches"],
        batch_size=options["batch_size"],
        cache_rollouts=options["cache_rollouts"],
        seed=options["seed"],
    )
    start = time.monotonic()
    with counted("computing", "steps") as report:
        results = paper_figures(
            stages,
            record,
            figures=options["figures"] or _FIGURES,
            settings=settings,
            extra=_follower(record, settings),
            report=report,
        )
    seconds = time.monotonic() - start
    found = statements(results)
    name = record.name if record is not None else ", ".join(stage.name for stage in stages)
    written = _write(out, results, found, name, seconds)
    for statement in found:
        click.echo(printable(f"{statement.claim} {statement.opening}"))
    for text in cautions(results):
        click.echo(printable(f"Note: {text}"), err=True)
    click.echo(f"wrote {written} files to {out}, the page is {out / 'figures.html'}", err=True)


def _stages(
    sources: tuple[str, ...], options: dict[str, Any]
) -> tuple[list[Stage], RewardRecord | None]:
    """Stages, and the run that Fig. 8 follows if there is one."""
    from basis_rl.lab.read import read_record
    from basis_rl.lab.stages import stages_of

    read = [
        read_record(source, pass_rates=options["pass_rates"], name=name)
        for source, name in zip(sources, _names(sources), strict=True)
    ]
    stages = stages_of(
        read,
        oracle=options["oracle"],
        cache_rollouts=options["cache_rollouts"],
        seed=options["seed"],
    )
    is_run = len(read) == 1 and len(read[0]) > len(set(read[0].prompt.tolist()))
    return stages, read[0] if is_run else None


@contextmanager
def _folder(name: str) -> Iterator[Path]:
    """The folder to write into; after an error no empty one is left that was not there before."""
    new = [path for path in (Path(name), *Path(name).parents) if not path.exists()]
    try:
        yield output_folder(name, "figures.html")
    except BaseException:
        for path in new:
            with suppress(OSError):
                path.rmdir()
        raise


def _names(sources: tuple[str, ...]) -> list[str | None]:
    """What to call records: as their files are called (None), with folders where these are alike.

    `lab record` calls every file record.parquet.
    """
    from basis_rl.lab.record import RecordError

    paths = [Path(source).expanduser().resolve() for source in sources]
    for source, path in zip(sources, paths, strict=True):
        if paths.count(path) > 1:
            raise RecordError(f"{source} is named twice: name each checkpoint once")
    parts = [path.with_suffix("").parts for path in paths]
    names: list[str | None] = []
    for own in parts:
        alike = [other for other in parts if other[-1:] == own[-1:]]
        tails = (own[-n:] for n in range(1, len(own) + 1))
        tail = next(t for t in tails if sum(o[-len(t) :] == t for o in alike) == 1)
        names.append("/".join(tail) if len(tail) > 1 else None)
    return names


def _follower(record: RewardRecord | None, settings: Settings) -> Compared | None:
    """The estimator that follows prompts through a run, where there is one to follow."""
    from basis_rl.estimators import registry
    from basis_rl.lab.figures.history import with_history

    if record is None or _FOLLOWER not in registry.names():
        return None
    return with_history(
        record,
        _FOLLOWER,
        "BASIS online",
        batch_size=settings.batch_size,
        seed=settings.seed,
    )


def _write(out: Path, results: Results, found: list[Statement], name: str, seconds: float) -> int:
    """Write all files; returns their number."""
    from basis_rl.drawing import picture
    from basis_rl.files import write_atomically
    from basis_rl.lab.figures.draw.all import pictures
    from basis_rl.lab.figures.numbers import to_csv
    from basis_rl.lab.figures.page import page

    files = {f"{table}.csv": to_csv(rows) for table, rows in results.tables().items()}
    if found:
        files["statements.csv"] = to_csv(found)
    images = {}
    for figure_name, drawn in pictures(results).items():
        for kind in _PICTURES:
            files[f"figure-{figure_name}.{kind}"] = picture(drawn, kind)
        images[figure_name] = files[f"figure-{figure_name}.svg"]
    text = page(results, found, images, name=name, command=_command(), seconds=seconds)
    files["figures.html"] = text.encode()
    for file, content in files.items():
        write_atomically(out / file, content)
    return len(files)


def _command() -> str:
    return shlex.join(["basis-rl", *sys.argv[1:]])
