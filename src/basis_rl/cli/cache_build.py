"""`basis-rl cache build`: sample a model's rollouts and store the pass rates."""

from __future__ import annotations

import warnings
from typing import Any

import click

from basis_rl.cli.build_run import (
    check_out,
    engine_options,
    engine_options_of,
    report_options,
    run_build,
    verifier_of,
)
from basis_rl.cli.data_options import data_given, data_options, prompts_of
from basis_rl.cli.sampling_options import sampling_options, settings_of
from basis_rl.messages import one_line_warnings


@click.command(short_help="Sample a model's rollouts and store the pass rates.")
@click.option("--model", required=True, help="Reference policy: a folder or a hub id.")
@click.option("--revision", help="Revision of a hub model.")
@click.option("--out", required=True, help="Parquet file to write.")
@click.option("--n", default=8, show_default=True, help="Rollouts of each prompt.")
@click.option(
    "--adaptive", is_flag=True, help="Stop before n where a pass rate is known well enough."
)
@click.option("--verifier", required=True, help="math, exact, … or module:function.")
@data_options
@sampling_options
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--engine", default="transformers", show_default=True, help="transformers, vllm, openai, ray."
)
@engine_options
@click.option(
    "--dtype", default="auto", show_default=True, help="auto, bfloat16, float16, float32."
)
@click.option("--shard", metavar="K/N", help="Only the k-th of n parts of the prompts, e.g. 3/16.")
@click.option("--reverify", is_flag=True, help="Judge stored completions again; sample nothing.")
@report_options
def build(**options: Any) -> None:
    """Sample rollouts of every prompt, verify them, and write the pass rates.

    The same command goes on where a stopped one was; its journal stands beside the output.
    """
    with one_line_warnings():
        _build(options)


def _build(options: dict[str, Any]) -> None:
    from basis_rl.passrates.adaptive import FIRST
    from basis_rl.passrates.build import LaterEngine
    from basis_rl.passrates.build.shards import as_shard
    from basis_rl.rollouts.loading import check_dtype

    # All that needs no model is looked at before one is loaded.
    check_dtype(options["dtype"])
    check_out(options["out"])
    if options["adaptive"] and options["n"] <= FIRST:
        warnings.warn(
            f"--adaptive starts with {FIRST} rollouts, so with --n {options['n']} every prompt "
            "gets all of them: raise --n",
            stacklevel=1,
        )
    shard = None if options["shard"] is None else as_shard(options["shard"])
    settings = settings_of(options)
    for_engine = engine_options_of(options)
    engine = LaterEngine(
        options["engine"],
        options["model"],
        revision=options["revision"],
        dtype=options["dtype"],
        options=for_engine,
    )
    verifier = verifier_of(options["verifier"], options["answer_column"], options)
    run_build(
        prompts_of(options),
        engine,
        verifier,
        options,
        n=options["n"],
        settings=settings,
        seed=options["seed"],
        adaptive=options["adaptive"],
        shard=shard,
        extra={"data": options["data"]},
        options={
            "engine_options": for_engine,
            "data": [data_given(options)],
            "verifier": options["verifier"],
        },
        reverify=options["reverify"],
    )
