"""`basis-rl lab record`: many rollouts of one policy, for figures and replays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from basis_rl.passrates.build import LaterEngine


@click.command(short_help="Sample many rollouts of one policy as a record.")
@click.argument("model")
@click.option("--revision", help="Revision of a hub model.")
@click.option("--out", default="record.parquet", show_default=True, help="File of the record.")
@click.option("--oracle", default=256, show_default=True, help="Rollouts for the oracle's mean.")
@click.option("--rollouts", default=8, show_default=True, help="Rollouts to show to estimators.")
@click.option("--step", default=0, show_default=True, help="Training step of the policy.")
@click.option("--pass-rates", help="Table of the reference policy, to go with the record.")
@click.option("--verifier", required=True, help="math, exact, … or module:function.")
@data_options
@sampling_options
@click.option("--seed", default=1, show_default=True, help="Another one than the cache's.")
@click.option(
    "--engine", default="transformers", show_default=True, help="transformers, vllm, openai, ray."
)
@engine_options
@click.option(
    "--dtype", default="auto", show_default=True, help="auto, bfloat16, float16, float32."
)
@click.option("--reverify", is_flag=True, help="Judge stored completions again; sample nothing.")
@report_options
def record(**options: Any) -> None:
    """Sample rollouts of every prompt under MODEL (a folder or a hub id), and write their rewards.

    The same command goes on where a stopped one was. Its table and journal stand beside the
    record, as `.rollouts.parquet`: the table is a cache of this policy.
    """
    with one_line_warnings():
        _record(options)


def _record(options: dict[str, Any]) -> None:
    from basis_rl.lab.oracle import check_record, check_table, rollouts_path, write_rollouts
    from basis_rl.passrates import PassRates

    # All that needs no model is looked at before one is loaded.
    out, seed, step = options["out"], options["seed"], options["step"]
    check_out(out)
    oracle, rollouts = options["oracle"], options["rollouts"]
    check_record(out, oracle=oracle, rollouts=rollouts, seed=seed, step=step)
    table = None if options["pass_rates"] is None else PassRates.load(options["pass_rates"])
    settings, for_engine = settings_of(options), engine_options_of(options)
    engine = _engine(options, for_engine)
    verifier = verifier_of(options["verifier"], options["answer_column"], options)
    prompts = prompts_of(options)
    if table is not None:
        check_table(table, prompts, verifier.name, seed=seed)
    cache = rollouts_path(out)
    run_build(
        prompts,
        engine,
        verifier,
        {**options, "out": str(cache), "discard_completions": False},
        n=oracle + rollouts,
        settings=settings,
        seed=seed,
        shard=None,
        extra={"data": options["data"]},
        options={
            "engine_options": for_engine,
            "data": [data_given(options)],
            "verifier": options["verifier"],
        },
        reverify=options["reverify"],
        extend=cache.exists() and not options["reverify"],
    )
    found = write_rollouts(prompts, out, step=step, pass_rates=table)
    if options["discard_completions"]:
        from basis_rl.passrates.build import journal_path

        journal_path(cache).unlink(missing_ok=True)
    click.echo(
        f"wrote {out}: {len(found)} prompts, {len(found.rewards)} rewards, mean "
        f"{found.rewards.mean():.4f}"
    )


def _engine(options: Mapping[str, Any], for_engine: dict[str, Any]) -> LaterEngine:
    from basis_rl.passrates.build import LaterEngine
    from basis_rl.rollouts.loading import check_dtype

    check_dtype(options["dtype"])
    return LaterEngine(
        options["engine"],
        options["model"],
        revision=options["revision"],
        dtype=options["dtype"],
        options=for_engine,
    )
