"""`basis-rl train`: train a language model as a YAML file says."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import click

from basis_rl.cli import INTERRUPTED


@click.command(short_help="Train a model from a configuration file.")
@click.argument("config")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override one key, e.g. --set trl.learning_rate=2e-6; the value is YAML. May be repeated.",
)
@click.option(
    "--check", is_flag=True, help="Validate everything, print a summary, load no weights and stop."
)
@click.pass_context
def train(context: click.Context, config: str, overrides: tuple[str, ...], check: bool) -> None:
    """Train a language model as CONFIG (a YAML file) says.

    The same command resumes from the newest complete checkpoint in the configuration's
    output_dir. Ctrl-C stops after the current step, with a checkpoint.
    """
    from basis_rl.train.config import load_config

    loaded = load_config(config, overrides)
    from basis_rl.train import run

    with warnings.catch_warnings():
        warnings.showwarning = _one_line_printer()
        warnings.simplefilter("ignore", FutureWarning)  # for the authors of trainers, not users
        if check:
            run.check(loaded, click.echo)
            click.echo("the configuration is valid")
            return
        finished = run.train(loaded, click.echo) is not None
    if not finished:
        click.echo("stopped; run the same command again to go on where it stopped", err=True)
        context.exit(INTERRUPTED)


def _one_line_printer() -> Callable[..., None]:
    """A `warnings.showwarning` that prints each text once, in one line."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        if text not in shown:
            shown.add(text)
            click.echo(f"warning: {text}", err=True)

    return show
