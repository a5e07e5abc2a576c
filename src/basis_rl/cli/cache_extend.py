"""`basis-rl cache extend`: more rollouts or prompts for a cache, in place."""

from __future__ import annotations

from collections.abc import Mapping
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
@click.option("--reverify", is_flag=True, help="Judge stored completions again; sample nothing.")
@click.option("--verifier", help="With --reverify: another verifier than before.")
@engine_options
@report_options
@click.pass_context
def extend(context: click.Context, /, cache: str, **options: Any) -> None:
    """Sample what CACHE lacks: up to --n rollouts, and the prompts of --data.

    Model, sampling, verifier and data set are those that it was built with, and so are the options
    of --data that are not given. Old completions are kept; they are read from the journal beside
    it. With --reverify these are judged again instead, of all data sets.
    """
    given = {
        name
        for name in options
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT
    }
    with one_line_warnings():
        _extend(cache, options, given)


def _extend(cache: str, options: dict[str, Any], given: set[str]) -> None:
    from basis_rl.cli.built import Built, data_names, engine_dtype, joined
    from basis_rl.passrates.build import LaterEngine

    _check(options)
    built = Built(cache)
    data = list(built.data)
    prompts = built.prompts(may_grow=options["data"] is not None)
    if options["data"] is not None:
        stored = {name: value for name, value in data[0].items() if name not in _OWN}
        asked = {name: value for name, value in data_given(options).items() if name in given}
        more = {**data_given(options), **stored, **asked}
        prompts = joined([data[0], more], [prompts, prompts_of(more)])
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
    name = options["verifier"] or built.verifier
    verifier = verifier_of(name, data[0]["answer_column"], options)
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
        extra={"data": data_names(data)},
        options={"engine_options": for_engine, "data": data, "verifier": name},
        reverify=options["reverify"],
        extend=not options["reverify"],
    )


def _check(options: Mapping[str, Any]) -> None:
    adds = options["n"] is not None or options["data"] is not None
    if options["reverify"] and adds:
        raise ConfigError("--reverify samples nothing: leave --n and --data out, or --reverify")
    if options["verifier"] is not None and not options["reverify"]:
        raise ConfigError(
            f"--verifier {options['verifier']} has to judge the stored completions too: add "
            "--reverify, and extend the cache then"
        )
    if not adds and not options["reverify"]:
        raise ConfigError("there is nothing to add: give --n, --data, or both")
