"""`basis-rl cache refresh`: the pass rates of a newer checkpoint."""

from __future__ import annotations

import os
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
from basis_rl.errors import ConfigError
from basis_rl.messages import one_line_warnings


@click.command(short_help="Build a cache again under a newer checkpoint.")
@click.argument("cache")
@click.option("--model", required=True, help="Newer reference policy: a folder or a hub id.")
@click.option("--revision", help="Revision of a hub model.")
@click.option("--out", required=True, help="Parquet file to write.")
@click.option("--n", type=int, help="Rollouts of each prompt; by default as many as before.")
@click.option("--engine", help="Another engine than before.")
@engine_options
@click.option(
    "--dtype", default="auto", show_default=True, help="auto, bfloat16, float16, float32."
)
@report_options
def refresh(cache: str, **options: Any) -> None:
    """Sample the prompts of CACHE under another model into a new file.

    Prompts, sampling and verifier are those that CACHE was built with.
    """
    with one_line_warnings():
        _refresh(cache, options)


def _refresh(cache: str, options: dict[str, Any]) -> None:
    from basis_rl.cli.built import Built, data_names
    from basis_rl.passrates.build import LaterEngine
    from basis_rl.rollouts.loading import check_dtype

    check_dtype(options["dtype"])
    check_out(options["out"])
    built = Built(cache)
    if os.path.realpath(options["out"]) == os.path.realpath(cache):
        raise ConfigError(f"--out {options['out']} is the old cache: name another file")
    before = built.entries
    name = options["engine"] or before["engine"]
    kept = built.engine_options if name == before["engine"] else {}
    for_engine = {**kept, **engine_options_of(options)}
    engine = LaterEngine(
        name,
        options["model"],
        revision=options["revision"],
        dtype=options["dtype"],
        options=for_engine,
    )
    verifier = verifier_of(built.verifier, built.data[0]["answer_column"], options)
    run_build(
        built.prompts(),
        engine,
        verifier,
        options,
        n=before["n"] if options["n"] is None else options["n"],
        settings=built.settings,
        seed=before["seed"],
        adaptive=before["adaptive"],
        shard=built.shard,
        extra={"data": data_names(built.data)},
        options={
            "engine_options": for_engine,
            "data": built.data,
            "verifier": built.verifier,
        },
    )
