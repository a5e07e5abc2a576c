"""`basis-rl demo`: train a small real language model with one rollout per prompt."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from basis_rl.demo.settings import DEFAULT_TASKS, DemoSettings
from basis_rl.demo.tasks import TASKS


@click.command(short_help="Train a small language model and report before and after.")
@click.option("--out", default="demo-report", show_default=True, help="Folder of the report.")
@click.option("--model", help="Folder or hub id; SmolLM2-135M-Instruct if left out.")
@click.option(
    "--tasks",
    default=",".join(DEFAULT_TASKS),
    show_default=True,
    help=f"Some of {', '.join(TASKS)}, joined by commas.",
)
@click.option("--steps", default=DemoSettings.steps, show_default=True, help="Training steps.")
@click.option(
    "--batch-size", default=DemoSettings.batch_size, show_default=True, help="Rollouts in a step."
)
@click.option("--learning-rate", default=DemoSettings.learning_rate, show_default=True)
@click.option("--seed", default=DemoSettings.seed, show_default=True)
@click.option("--threads", type=int, help="Processor threads; all if left out.")
@click.option(
    "--compare",
    is_flag=True,
    help="Also train with GRPO (8 rollouts per prompt), REINFORCE++ and no baseline.",
)
def demo(**options: Any) -> None:
    """Train with BASIS on arithmetic prompts, and test before and after.

    Builds the pass rates, trains with one rollout per prompt, and writes an HTML report. The same
    command goes on where a stopped one was, and does not repeat what is done.
    """
    # Read when torch and tqdm are loaded. Threads that spin while they wait make small products
    # ten times slower as soon as another process wants the processor; the demo draws its own bars.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TQDM_DISABLE", "1")
    names = tuple(name.strip() for name in options.pop("tasks").split(",") if name.strip())
    settings = DemoSettings(out=Path(options.pop("out")), tasks=names, **options)
    from basis_rl.demo.page import verdict
    from basis_rl.demo.run import Demo

    report = Demo(settings).run()
    _print_table(report)
    click.echo(verdict(report))
    click.echo(f"report: {settings.out / 'report.html'}")


def _print_table(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="test accuracy")
    for column in ("method", "task"):
        table.add_column(column)
    for column in ("before", "after", "difference", "95% interval"):
        table.add_column(column, justify="right")
    for run in report["runs"].values():
        for task, result in run["evaluation"].items():
            table.add_row(
                run["label"],
                task,
                f"{result['before']:.3f}",
                f"{result['after']:.3f}",
                f"{result['difference']:+.3f}",
                f"{result['low']:+.3f} to {result['high']:+.3f}",
            )
    Console().print(table)
