"""`basis-rl verl check`: whether a run of verl is set up rightly, before it starts."""

from __future__ import annotations

import click

from basis_rl.errors import BasisError
from basis_rl.messages import one_line_warnings

PROBLEM = 1


@click.command(
    short_help="Check a run before it starts, from the same overrides.",
    context_settings={"ignore_unknown_options": True},
)
@click.option("--config-name", "-cn", default="ppo_trainer", show_default=True)
@click.option("--config-path", "-cp", help="Its folder; by default verl's own.")
@click.argument("overrides", nargs=-1, type=click.UNPROCESSED)
def check(overrides: tuple[str, ...], config_name: str, config_path: str | None) -> None:
    """Check a run of verl's trainer from the OVERRIDES that it will be started with.

    `python -m verl.trainer.main_ppo` may stand before them. Nothing is started: neither Ray nor a
    model. The job repeats the checks before it generates. The exit code is 1 if it would stop.
    """
    from basis_rl.cli.terminal import printable
    from basis_rl.verl.compose import compose, verl_folder
    from basis_rl.verl.report import check_run, words

    verl_folder()
    given = words(overrides)
    for word in given:
        if word.startswith("-"):
            raise click.UsageError(
                f"no option {word}: overrides are written key=value, as for verl's trainer"
            )
    with one_line_warnings():
        try:
            report = check_run(compose(given, config_name, config_path))
        except BasisError as error:
            click.echo(f"basis-rl: {' '.join(str(error).split())}", err=True)
            click.get_current_context().exit(PROBLEM)
    click.echo(printable(str(report)))
    click.echo("ok")
