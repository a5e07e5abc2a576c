"""`basis-rl cache import`: pass rates from dumps, evaluations and public data sets."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from basis_rl.errors import ConfigError, PassRatesError
from basis_rl.files import check_writable
from basis_rl.messages import one_line_warnings

_SHORT_S = 1.0  # no progress is shown for less
_UNITS = "rate, percent, percent-failures, count, failures, fraction"


@click.command(
    "import", short_help="Read pass rates from rollout dumps, evaluations and public data sets."
)
@click.argument("source")
@click.option("--out", required=True, help="Parquet file to write.")
@click.option("--overwrite", is_flag=True, help="Replace a file of that name.")
@click.option("--format", help="Format, or hub id of a public data set; found by itself.")
@click.option("--steps", metavar="A:B", help="Training steps to take from a dump, both included.")
@click.option("--reward-column", help="Rewards, one a row or a list; or the metric to take.")
@click.option("--successes-column", help="How often each prompt was solved.")
@click.option("--n-column", help="How often each prompt was tried.")
@click.option("--n", type=int, help="How often each prompt was tried, if all the same.")
@click.option("--rate-column", help="Pass rates, in the unit of --unit.")
@click.option("--unit", help=f"One of {_UNITS}.")
@click.option("--prompt-column", help="Prompt, a text or messages.")
@click.option("--key-column", help="Prompt keys; without it, a hash of the prompt.")
@click.option("--source-column", help="Each prompt's data set or task.")
@click.option("--threshold", type=float, help="Rewards from here on are successes.")
@click.option("--map", "mapping", multiple=True, metavar="OLD=NEW", help="Reward to replace.")
@click.option("--as-is", is_flag=True, help="Keep rewards of -1 and 1 as they are.")
@click.option("--repeats", default="error", show_default=True, help="error, first or sum.")
@click.option("--direction", help="What counts of a public data set count: passes or failures.")
@click.option("--filter", help="Filter of lm-eval whose metric counts.")
@click.option("--tokenizer", help="Decodes prompts that are token ids (open-instruct).")
@click.option("--split", default="train", show_default=True, help="Split of a hub data set.")
@click.option("--data-revision", help="Revision of a hub data set.")
@click.option("--limit", type=int, help="Only so many prompts.")
@click.option("--match", metavar="DATA", help="The training's prompts, whose keys to take.")
@click.option("--match-split", default="train", show_default=True)
@click.option("--match-prompt-column", default="prompt", show_default=True)
@click.option("--match-key-column")
@click.option("--match-column", help="Its column with SOURCE's prompts, if it has a template.")
@click.option("--match-source-column")
@click.option("--match-template", help=r"As --template of cache build; \n is a line end.")
@click.option("--match-system", help="As --system of cache build.")
@click.option("--match-chat/--no-match-chat", default=None)
@click.option("--match-where", multiple=True, metavar="COLUMN=YAML")
@click.option("--model", help="Policy that the rollouts are of.")
@click.option("--revision", help="Its revision.")
@click.option("--temperature", type=float)
@click.option("--top-p", type=float)
@click.option("--top-k", type=int)
@click.option("--max-tokens", type=int)
@click.option("--verifier", help="What gave the rewards, by the name that training uses.")
def import_(**options: Any) -> None:
    """Read pass rates from SOURCE: a file, a folder of files, or a hub data set.

    Missing results are never taken as 0. A dump of a training run needs --steps, since each step
    is of another policy. docs/importing.md has the formats and the public data sets.
    """
    with one_line_warnings():
        _import(options)


def _import(options: dict[str, Any]) -> None:
    from basis_rl.passrates.importers import Options, import_pass_rates

    out = options["out"]
    check_writable(Path(out), shown=out)
    if Path(out).exists() and not options["overwrite"]:
        raise PassRatesError(f"{out} exists: choose another output, or say --overwrite")
    source = Path(options["source"])
    if source.exists() and Path(out).exists() and source.samefile(out):
        raise PassRatesError(f"{out} is what is imported: choose another output")
    told = Options(
        steps=steps_of(options["steps"]),
        **{
            name: options[name]
            for name in Options.__dataclass_fields__
            if name not in ("steps",) and name in options
        },
    )
    with _progress() as progress:
        imported = import_pass_rates(
            options["source"],
            format=options["format"],
            options=told,
            mapping=mapping_of(options["mapping"]),
            threshold=options["threshold"],
            as_is=options["as_is"],
            repeats=options["repeats"],
            limit=options["limit"],
            match=_match_prompts(options),
            match_column=options["match_column"],
            provenance={
                name: options[name]
                for name in (
                    "model",
                    "revision",
                    "temperature",
                    "top_p",
                    "top_k",
                    "max_tokens",
                    "verifier",
                )
            },
            progress=progress,
        )
    imported.table.save(out)
    for line in imported.report.lines():
        click.echo(line)
    click.echo(f"wrote {out}: {imported.table}")
    click.echo(f"next: basis-rl cache check {out} --data <the prompts that you train on>")


def _match_prompts(options: dict[str, Any]) -> Any:
    if options["match"] is None:
        return None
    from basis_rl.cli.data_options import prompts_of

    return prompts_of(
        {
            "data": options["match"],
            "limit": None,
            "answer_column": "answer",
            **{
                name: options[f"match_{name}"]
                for name in (
                    "split",
                    "prompt_column",
                    "key_column",
                    "source_column",
                    "template",
                    "system",
                    "chat",
                    "where",
                )
            },
        }
    )


def steps_of(text: str | None) -> tuple[int, int] | None:
    """Range ``A:B`` of steps, or one step ``A``; None for None.

    Raises
    ------
    ConfigError
        If it has another form.
    """
    if text is None:
        return None
    first, colon, last = text.partition(":")
    try:
        return int(first), int(last if colon else first)
    except ValueError:
        raise ConfigError(f"--steps {text}: write it as 1:50, both included") from None


def mapping_of(pairs: Sequence[str]) -> dict[float, float]:
    """Pairs ``old=new`` of rewards as a dict.

    Raises
    ------
    ConfigError
        If one has another form.
    """
    mapping = {}
    for pair in pairs:
        old, _, new = pair.partition("=")
        try:
            mapping[float(old)] = float(new)
        except ValueError:
            raise ConfigError(f"--map {pair}: write it as old=new, e.g. -1=0") from None
    return mapping


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    """A line on the terminal with the rows read so far, if it takes long."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed} rows read"), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("reading", total=None)
    started = time.monotonic()

    def show(rows: int) -> None:
        bar.update(task, completed=rows)
        if not bar.live.is_started and time.monotonic() - started > _SHORT_S:
            bar.start()

    try:
        yield show
    finally:
        if bar.live.is_started:  # stopping a bar that never ran prints an empty line
            bar.stop()
