"""From verl's configuration to an estimator that fits the run."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from basis_rl.adapters.checks import check_coverage, check_provenance, least_coverage
from basis_rl.errors import BasisError, ConfigError, PassRatesError
from basis_rl.estimators import registry
from basis_rl.estimators.base import Estimator
from basis_rl.passrates import PassRates, Provenance
from basis_rl.passrates.inspect.compare import Reward
from basis_rl.passrates.inspect.variants import variants
from basis_rl.passrates.keys import prompt_key
from basis_rl.verl.binary import check_rewards, is_binary
from basis_rl.verl.option_names import VERL
from basis_rl.verl.options import Config, Options, section, whole_number
from basis_rl.verl.reward import custom_function, is_ours, reward_of, reward_version
from basis_rl.verl.settings import check_settings, uses_basis
from basis_rl.verl.stand_in import make

__all__ = [
    "check_prompts",
    "check_settings",
    "open_estimator",
    "run_provenance",
    "uses_basis",
]


def open_estimator(config: Config, options: Options) -> tuple[Estimator, PassRates | None]:
    """Read the table, compare what made it with the run, and make the estimator.

    Parameters
    ----------
    config : mapping
        verl's configuration, resolved.
    options : Options
        What `check_settings` gave.

    Raises
    ------
    ConfigError
        If the estimator needs a table and none is named, or an option does not go with the table.
    PassRatesError
        If the file cannot be read, or is of another model, verifier or temperature.

    Warns
    -----
    UserWarning
        Of other sampling settings, and of a table that the estimator does not use.
    """
    name = options.estimator
    use = registry.pass_rates_use(name)
    if options.pass_rates is None:
        if use == "needed":
            raise ConfigError(
                f"estimator {name!r} needs pass rates: add +algorithm.basis.pass_rates=… "
                "(`basis-rl cache build` makes the file), or give "
                "algorithm.adv_estimator=basis-online, which can start without"
            )
        return make(name, None, options.estimator_options), None
    if use == "none":
        warnings.warn(
            f"estimator {name!r} uses no pass rates, and algorithm.basis.pass_rates is given: "
            "leave it out, or use an estimator that does, such as basis or basis-online",
            UserWarning,
            stacklevel=2,
        )
    pass_rates = _read(options.pass_rates)
    estimator = make(name, pass_rates, options.estimator_options)
    if use != "none":
        if is_binary(options, pass_rates):
            check_rewards(config, name)
        _check_provenance(config, options, pass_rates)
    return estimator, pass_rates


def _read(path: str) -> PassRates:
    file = Path(path).expanduser()
    try:
        return PassRates.load(file)
    except PassRatesError as error:
        where = "" if file.is_absolute() else f" (looked for in {os.getcwd()})"
        raise PassRatesError(f"algorithm.basis.pass_rates: {error}{where}") from error


def _check_provenance(config: Config, options: Options, pass_rates: PassRates) -> None:
    cached, run = pass_rates.provenance, run_provenance(config)
    if "temperature" in options.allow_mismatch:
        cached = cached.replace(temperature=None)
    _check_temperature(cached.temperature, run.temperature)
    # An unnamed function may be any.
    rewards = reward_of(config) or [Reward(None)]
    if "verifier" not in options.allow_mismatch:
        _check_keywords(config, cached.verifier, rewards)
    check_provenance(cached, run, rewards, options.allow_mismatch, VERL)


def _check_keywords(config: Config, cached: str | None, rewards: Sequence[Reward]) -> None:
    """Refuse a user's function with keywords, which no table built by the command line names."""
    chosen = custom_function(config)
    names = {name for reward in rewards for name in (reward.name, *reward.also)}
    if cached is None or cached in names or chosen is None or not chosen[2] or is_ours(chosen[0]):
        return
    given = ", ".join(f"{key}={value!r}" for key, value in chosen[2].items())
    raise PassRatesError(
        f"verifier is {cached!r} in the pass rates, and this run's {chosen[1]!r} gets {given} "
        "(reward.custom_reward_function.reward_kwargs), which `basis-rl cache build` cannot give: "
        "write a function that has these values itself and build pass rates with it, or accept the "
        f"difference with {VERL.allow_mismatch.format('verifier')}"
    )


def _check_temperature(cached: float | None, run: float | None) -> None:
    if cached is None or run is None or math.isclose(cached, run, rel_tol=1e-9):
        return
    raise PassRatesError(
        f"temperature is {cached} in the pass rates and {run} in this run, which makes another "
        f"policy: give actor_rollout_ref.rollout.temperature={cached}, build pass rates for this "
        "run with `basis-rl cache build`, or accept the difference with "
        f"{VERL.allow_mismatch.format('temperature')}"
    )


def run_provenance(config: Config) -> Provenance:
    """Describe a run in the terms of a table's provenance; None where unknown.

    Raises
    ------
    ConfigError
        If the reward function cannot be found.
    """
    rollout = section(config, "actor_rollout_ref", "rollout")
    top_k = whole_number(config, "actor_rollout_ref.rollout.top_k")
    longest = rollout.get("response_length") or section(config, "data").get("max_response_length")
    return Provenance(
        model=section(config, "actor_rollout_ref", "model").get("path"),
        verifier_version=reward_version(config),
        temperature=rollout.get("temperature"),
        top_p=rollout.get("top_p"),
        # verl's -1 keeps all tokens, as 0 does elsewhere.
        top_k=None if top_k is None else max(top_k, 0),
        max_tokens=longest,
        stop=[],  # verl has no option for it
    )


def check_prompts(
    options: Options,
    estimator: Estimator,
    pass_rates: PassRates | None,
    keys: Sequence[str],
    show: Callable[[int], str],
    prompt: Callable[[int], Any] | None = None,
) -> None:
    """Refuse pass rates that do not know the training prompts.

    Parameters
    ----------
    options : Options
    estimator : Estimator
    pass_rates : PassRates, optional
        What `open_estimator` gave.
    keys : sequence of str
        Keys of the training prompts.
    show : callable
        Text of the prompt in a row of the training data, for the error.
    prompt : callable, optional
        The prompt itself, to look for it in other forms (a text, not a chat).

    Raises
    ------
    ConfigError
        If ``min_coverage`` contradicts the estimator.
    PassRatesError
        If too few prompts are known.
    """
    least = least_coverage(options.min_coverage, estimator, VERL)
    if pass_rates is None or registry.pass_rates_use(options.estimator) == "none":
        return
    if least > 0 and len(keys) and pass_rates.coverage(keys) == 0:
        first, hint = keys[0], ""
        if prompt is not None and options.prompt_key_column is None:
            hint = _known_as(pass_rates, prompt(0))
        raise PassRatesError(
            f"the pass rates in {options.pass_rates} are of other prompts: they know none of the "
            f"training prompts, whose first has key {first!r} ({show(0)}){hint}, and their own "
            f"first key is {pass_rates.keys[0]!r}: name the column that the table's keys are from "
            f"({VERL.key_column}), build pass rates of these prompts with `basis-rl cache build`, "
            "or train on the table's prompts (data.train_files)"
        )
    check_coverage(pass_rates, keys, least, show, VERL)


def _known_as(pass_rates: PassRates, prompt: Any) -> str:
    """In which other form the table knows a prompt."""
    try:
        forms = [(name, prompt_key(form)) for name, form in variants(prompt)]
    except (BasisError, AttributeError, TypeError):
        return ""
    known = [name for name, key in forms if pass_rates.rows([key])[0] >= 0]
    return f", known {known[0]}" if known else ""
