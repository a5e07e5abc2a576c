"""`basis-rl train`: train a language model as a YAML file says."""

from __future__ import annotations

import click

from basis_rl.cli import INTERRUPTED
from basis_rl.messages import one_line_warnings


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

    with one_line_warnings():
        if check:
            run.check(loaded, click.echo)
            click.echo("the configuration is valid")
            return
        finished = run.train(loaded, click.echo) is not None
    if not finished:
        click.echo("stopped; run the same command again to go on where it stopped", err=True)
        context.exit(INTERRUPTED)
