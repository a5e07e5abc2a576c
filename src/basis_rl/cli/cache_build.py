"""`basis-rl cache build`: sample a model's rollouts and store the pass rates."""

from __future__ import annotations

from typing import Any

import click

from basis_rl.cli.data_options import data_options, prompts_of, unescaped
from basis_rl.messages import one_line_warnings, quiet_transformers


@click.command(short_help="Sample a model's rollouts and store the pass rates.")
@click.option("--model", required=True, help="Reference policy: a folder or a hub id.")
@click.option("--revision", help="Revision of a hub model.")
@click.option("--out", required=True, help="Parquet file to write.")
@click.option("--n", default=8, show_default=True, help="Rollouts of each prompt.")
@click.option("--verifier", required=True, help="math, exact, reasoning-gym or module:function.")
@data_options
@click.option("--temperature", default=1.0, show_default=True)
@click.option("--top-p", default=1.0, show_default=True)
@click.option("--top-k", default=0, show_default=True, help="0 keeps all tokens.")
@click.option("--max-tokens", default=256, show_default=True, help="Longest completion.")
@click.option("--stop", multiple=True, help=r"Text that ends a completion; \n is a line end.")
@click.option("--seed", default=0, show_default=True)
@click.option("--batch-size", default=16, show_default=True, help="Prompts sampled at a time.")
@click.option(
    "--dtype", default="auto", show_default=True, help="auto, bfloat16, float16, float32."
)
def build(**options: Any) -> None:
    """Sample rollouts of every prompt, verify them, and write the pass rates.

    The same command goes on where a stopped one was; its journal stands beside the output.
    """
    with one_line_warnings():
        _build(options)


def _build(options: dict[str, Any]) -> None:
    from basis_rl import verifiers
    from basis_rl.passrates.build_settings import (
        Policy,
        build_settings,
        check_build,
        finished_table,
    )
    from basis_rl.rollouts import SamplingSettings
    from basis_rl.rollouts.transformers_sampler import TransformersSampler, check_dtype

    # All that needs no model is looked at before one is loaded.
    out, n, batch_size = options["out"], options["n"], options["batch_size"]
    check_dtype(options["dtype"])
    verifier = verifiers.create(options["verifier"], answer_column=options["answer_column"])
    settings = SamplingSettings(
        temperature=options["temperature"],
        top_p=options["top_p"],
        top_k=options["top_k"],
        max_tokens=options["max_tokens"],
        stop=tuple(unescaped(text) for text in options["stop"]),
    )
    prompts = prompts_of(options)
    check_build(prompts, verifier, out, n=n, batch_size=batch_size)
    dtype = None if options["dtype"] == "auto" else options["dtype"]
    policy = Policy(options["model"], options["revision"], dtype)
    wanted = build_settings(
        prompts, policy, verifier, settings, n=n, seed=options["seed"], batch_size=batch_size
    )
    finished = finished_table(out, wanted, any_dtype=dtype is None)
    if finished is not None:
        click.echo(f"{out} is there already; nothing to do: {finished}")
        return
    click.echo(f"{len(prompts)} prompts; loading {options['model']}", err=True)
    with quiet_transformers():
        sampler = TransformersSampler.from_pretrained(
            options["model"], revision=options["revision"], dtype=options["dtype"]
        )
        _sample(prompts, sampler, verifier, settings, options)


def _sample(
    prompts: Any, sampler: Any, verifier: Any, settings: Any, options: dict[str, Any]
) -> None:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from basis_rl.passrates.builder import build_cache

    with Progress(
        TextColumn("sampling"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("prompts, mean reward {task.fields[mean]:.3f}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    ) as bar:
        task = bar.add_task("sampling", total=len(prompts), mean=float("nan"))
        table = build_cache(
            prompts,
            sampler,
            verifier,
            options["out"],
            n=options["n"],
            settings=settings,
            seed=options["seed"],
            batch_size=options["batch_size"],
            progress=lambda done, _, mean: bar.update(task, completed=done, mean=mean),
            extra={"data": options["data"]},
        )
    notes = table.provenance.extra
    if notes["verifier_failures"]:
        click.echo(f"the verifier failed (reward 0): {notes['verifier_failures']}", err=True)
    if len(table) < len(prompts):
        click.echo(f"{len(prompts) - len(table)} prompts without a verdict left out", err=True)
    click.echo(f"wrote {options['out']}: {table}, mean reward {table.means.mean():.4f}")
