"""`basis-rl cache absorb`: add what a training run saw to a table."""

from __future__ import annotations

from typing import Any

import click


@click.command(short_help="Add the rollouts of a training run to a table.")
@click.argument("run")
@click.option(
    "--steps",
    metavar="A:B",
    help="First and last step to take, as in 0:99; a run of basis-rl counts them from 0.",
)
@click.option("--cache", required=True, help="Table to add to; it stays as it is.")
@click.option("--out", required=True, help="Parquet file to write.")
@click.option("--replace", is_flag=True, help="Take the run's rollouts alone.")
@click.option("--reward-column", help="Reward of a dump that has several.")
@click.option(
    "--allow-mismatch",
    multiple=True,
    type=click.Choice(["model", "revision", "verifier"]),
    help="Accept a run that differs in this from what made the table.",
)
def absorb(run: str, **options: Any) -> None:
    """Add the rewards that RUN, the output folder of a training run, has in its record.

    A dump of another trainer whose rows have steps (verl's, TRL's completions) is read too.

    The policy changes in training, so the result mixes policies; its provenance says so.
    """
    from basis_rl.passrates.absorbing.absorb import WARNING
    from basis_rl.passrates.absorbing.absorb import absorb as absorb_run

    out = options.pop("out")
    done = absorb_run(run, options.pop("cache"), out, **options)
    for text in done.warnings:
        click.echo(f"warning: {text}", err=True)
    click.echo(f"warning: the result {WARNING}", err=True)
    click.echo(
        f"absorbed {done.rollouts} rollouts of {done.prompts} prompts ({done.new_prompts} new to "
        f"the cache; {done.without_verdict} rollouts without a verdict left out)"
    )
    click.echo(f"absorbed {done.steps}")
    click.echo(f"wrote {out}: {done.table}, mean reward {done.table.means.mean():.4f}")
