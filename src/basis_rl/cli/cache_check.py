"""`basis-rl cache check`: whether a table fits the prompts and the run that it is meant for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from basis_rl.cli.data_options import data_options, prompts_of
from basis_rl.cli.terminal import printable
from basis_rl.messages import one_line_warnings, quiet_transformers

if TYPE_CHECKING:
    from basis_rl.passrates import PassRates
    from basis_rl.passrates.inspect.check import Report, Run
    from basis_rl.prompts import Prompt, Repeats
    from basis_rl.train.config import TrainConfig

PROBLEM = 1
_RUN = ("model", "revision", "verifier", "temperature", "top_p", "top_k", "max_tokens")
_OWN = (*_RUN, "smoothing", "min_coverage")


@click.command(short_help="Compare a table with the prompts and the run that it is meant for.")
@click.argument("file")
@data_options
@click.option("--config", help="A training configuration: its data, model, reward and estimator.")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one key of it."
)
@click.option("--model", help="Model of the run that the table is meant for.")
@click.option("--revision", help="Revision of a hub model.")
@click.option("--verifier", help="Its verifier.")
@click.option("--temperature", type=float)
@click.option("--top-p", type=float)
@click.option("--top-k", type=int, help="0 keeps all tokens.")
@click.option("--max-tokens", type=int, help="Longest completion.")
@click.option(
    "--smoothing",
    type=click.Choice(["none", "jeffreys", "empirical-bayes"]),
    help="Of the run's estimator; without --config, jeffreys.",
)
@click.option(
    "--min-coverage", type=click.FloatRange(0, 1), help="Least share of prompts to be known."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(file: str, **options: Any) -> None:
    """Compare FILE with a data set and, if one is named, with a run.

    The exit code is 1 if a run would stop at what was found or be misled by it: too few prompts
    known, another model or verifier, prompts whose text changed.
    """
    from basis_rl.passrates import PassRates

    with one_line_warnings():
        report = _report(PassRates.load(file), options)
    if options["as_json"]:
        click.echo(json.dumps(report.to_dict()))
    else:
        from basis_rl.passrates.inspect.check_text import lines

        click.echo(printable("\n".join(lines(report, file))))
    click.get_current_context().exit(0 if report.is_fine else PROBLEM)


# With a configuration the data are those that it trains on.
for _option in check.params:
    if _option.name == "data":
        _option.required = False


def _report(table: PassRates, options: dict[str, Any]) -> Report:
    from basis_rl.passrates.inspect.check import check as compare
    from basis_rl.prompts import Repeats

    config = None
    if options["config"] is not None:
        from basis_rl.train.config import load_config

        config = load_config(options["config"], options["overrides"])
    elif options["overrides"]:
        raise click.UsageError("--set changes a configuration: name one with --config")
    run = _run(table, config, options)
    repeats = Repeats()
    prompts = _prompts(config, options, repeats)
    key_column = options["key_column"]
    if options["data"] is None and config is not None:
        key_column = config.data.key_column
    return compare(table, prompts, run, repeats=repeats, named_keys=key_column is not None)


def _run(table: PassRates, config: TrainConfig | None, options: dict[str, Any]) -> Run:
    from basis_rl.passrates.inspect.check import Run
    from basis_rl.passrates.inspect.compare import Reward
    from basis_rl.passrates.provenance import Provenance

    if config is not None:
        for name in _OWN:
            if options[name] is not None:
                shown = "--" + name.replace("_", "-")
                raise click.UsageError(
                    f"{shown} and --config are both given: leave {shown} out, or change the "
                    "configuration with --set"
                )
        with quiet_transformers():
            from basis_rl.train.table_check import run_of

            return run_of(config, table)
    known = {name: options[name] for name in _RUN if name != "verifier"}
    least, verifier = options["min_coverage"], options["verifier"]
    if least is not None and not 0 <= least <= 1:  # click's range lets NaN pass
        raise click.BadParameter(f"{least} is not from 0 to 1", param_hint="--min-coverage")
    return Run(
        provenance=Provenance(**known),
        rewards=None if verifier is None else [Reward(verifier)],
        min_coverage=1.0 if least is None else least,
        smoothing=options["smoothing"] or "jeffreys",
    )


def _prompts(config: TrainConfig | None, options: dict[str, Any], repeats: Repeats) -> list[Prompt]:
    if options["data"] is not None:
        return prompts_of(options, repeats=repeats)
    if config is None:
        raise click.UsageError("there is nothing to compare with: give --data, or --config")
    from basis_rl.train.plan import training_prompts

    return training_prompts(config, repeats=repeats)
