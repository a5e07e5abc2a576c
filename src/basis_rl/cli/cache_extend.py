"""`basis-rl cache extend`: more rollouts or prompts for a cache, in place."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from basis_rl.cli.build_run import (
    engine_options,
    engine_options_of,
    report_options,
    run_build,
    verifier_of,
)
from basis_rl.cli.data_options import data_given, more_data_options, prompts_of
from basis_rl.errors import ConfigError
from basis_rl.messages import one_line_warnings

# Of a further data set; its other options are those of the first one unless they are given.
_OWN = ("data", "split", "limit", "where")


@click.command(short_help="Add rollouts or prompts to a cache, in place.")
@click.argument("cache")
@click.option("--n", type=int, help="Rollouts of each prompt from now on.")
@more_data_options
@engine_options
@report_options
@click.pass_context
def extend(context: click.Context, /, cache: str, **options: Any) -> None:
    """Sample what CACHE lacks: up to --n rollouts, and the prompts of --data.

    Model, sampling, verifier and data set are those that it was built with. Old completions are
    kept; they are read from the journal beside it.
    """
    given = {
        name
        for name in options
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT
    }
    with one_line_warnings():
        _extend(cache, options, given)


def _extend(cache: str, options: dict[str, Any], given: set[str]) -> None:
    from basis_rl.cli.built import Built, engine_dtype, joined
    from basis_rl.passrates.build import LaterEngine

    if options["n"] is None and options["data"] is None:
        raise ConfigError("there is nothing to add: give --n, --data, or both")
    built = Built(cache)
    data = list(built.data)
    prompts = built.prompts()
    if options["data"] is not None:
        stored = {name: value for name, value in data[0].items() if name not in _OWN}
        asked = {name: value for name, value in data_given(options).items() if name in given}
        more = {**data_given(options), **stored, **asked}
        prompts = joined([prompts, prompts_of(more)])
        data += [more] if more not in data else []
    before = built.entries
    for_engine = {**built.engine_options, **engine_options_of(options)}
    engine = LaterEngine(
        before["engine"],
        before["model"],
        revision=before["revision"],
        dtype=engine_dtype(before),
        options=for_engine,
    )
    verifier = verifier_of(before["verifier"], data[0]["answer_column"], options)
    run_build(
        prompts,
        engine,
        verifier,
        {**options, "out": cache},
        n=before["n"] if options["n"] is None else options["n"],
        settings=built.settings,
        seed=before["seed"],
        adaptive=before["adaptive"],
        shard=built.shard,
        extra={"data": ", ".join(entry["data"] for entry in data)},
        options={"engine_options": for_engine, "data": data},
        extend=True,
    )
