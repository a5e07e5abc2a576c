"""What stops or warns a run before it wastes time: coverage and provenance."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from basis_rl.adapters.option_names import OptionNames
from basis_rl.errors import ConfigError, PassRatesError
from basis_rl.estimators import registry
from basis_rl.estimators.base import Estimator
from basis_rl.passrates import PassRates, Provenance
from basis_rl.passrates.inspect.compare import Reward, differences, is_sum

# What trainers have no values for, and what each is.
_UNKNOWN_COLUMNS = {
    "greedy_rewards": "the reward of a greedy rollout of each prompt",
    "values": "a critic's value of each prompt",
    "divergences": "how far the policy moved since each prompt's last visit",
}


def check_rollouts(estimator: str, least: int, rollouts: int, names: OptionNames) -> None:
    """Refuse fewer rollouts per prompt than an estimator can use.

    Raises
    ------
    ConfigError
    """
    if rollouts < least:
        raise ConfigError(
            f"estimator={estimator!r} compares the rollouts of one prompt, and {names.rollouts} is "
            f"{rollouts}: use {names.rollouts} of {least} or more, or another estimator"
        )


def check_columns(estimator: str, needed: Sequence[str], names: OptionNames) -> None:
    """Refuse an estimator that needs what the trainer does not have.

    Raises
    ------
    ConfigError
    """
    for name in needed:
        if name in _UNKNOWN_COLUMNS:
            raise ConfigError(
                f"estimator={estimator!r} needs {name} ({_UNKNOWN_COLUMNS[name]}), which "
                f"{names.trainer} does not have: use another estimator, such as 'basis-online', or "
                f"call this one from a loop of your own with RewardBatch({name}=...)"
            )


def least_coverage(least: float | None, estimator: Estimator, names: OptionNames) -> float:
    """Share of the training prompts that must have a pass rate.

    Parameters
    ----------
    least : float, optional
        As configured. None: 1, or 0.5 where the estimator can start an unknown prompt.

    Raises
    ------
    ConfigError
        If less than all is asked for and the estimator stops at an unknown prompt.
    """
    missing = getattr(getattr(estimator, "options", None), "missing", None)
    if least is None:
        return 0.5 if missing == "prior" or takes_unknown_prompts(estimator) else 1.0
    if missing == "error" and least < 1:
        raise ConfigError(
            f"{names.min_coverage}={least} contradicts the estimator's missing='error', which "
            f"stops at the first unknown prompt: add {names.prior}, or leave "
            f"{names.min_coverage} out"
        )
    return least


def takes_unknown_prompts(estimator: Estimator) -> bool:
    """Whether an estimator starts prompts that the table does not know without it."""
    known = estimator.name in registry.names()
    return known and registry.pass_rates_use(estimator.name) == "optional"


def check_coverage(
    pass_rates: PassRates,
    keys: Sequence[str],
    least: float,
    show: Callable[[int], str],
    names: OptionNames,
) -> float:
    """Share of the distinct training prompts that the table knows.

    Parameters
    ----------
    pass_rates : PassRates
    keys : sequence of str
        Keys of the training prompts.
    least : float
        Smallest share that is accepted.
    show : callable
        Text of the prompt in a row of the training data, for the error.
    names : OptionNames

    Raises
    ------
    PassRatesError
        If the share is smaller; names the first prompt that is missing.
    """
    share = pass_rates.coverage(keys)
    if share >= least:
        return share
    row = int(np.argmax(pass_rates.rows(keys) < 0))
    raise PassRatesError(
        f"the pass rates know {share:.1%} of the training prompts, and {least:.1%} are needed; the "
        f"first one missing has key {keys[row]!r} ({show(row)}): extend the file with `basis-rl "
        f"cache build`, name the column with the keys ({names.key_column}), or start unknown "
        f"prompts from a prior ({names.prior}, with {names.min_coverage})"
    )


def check_provenance(
    cached: Provenance,
    run: Provenance,
    rewards: Sequence[Reward],
    allowed: Iterable[str],
    names: OptionNames,
) -> None:
    """Compare what made the pass rates with a run; settings unknown to one side are skipped.

    Parameters
    ----------
    cached, run : Provenance
    rewards : list of Reward
        The run's reward functions.
    allowed : iterable of str
        Fields that may differ.
    names : OptionNames

    Raises
    ------
    PassRatesError
        If the model, its revision or the verifier differ.

    Warns
    -----
    UserWarning
        One for all differing sampling settings.
    """
    allowed = set(allowed)
    found = differences(cached, run, rewards)
    for difference in found:
        if difference.is_error and difference.name not in allowed:
            remedy = "build pass rates for this run with `basis-rl cache build`"
            if difference.name == "verifier" and is_sum(rewards):
                remedy = "make a table of this sum of rewards with PassRates.from_rewards"
            raise PassRatesError(
                f"{difference}: {remedy}, or accept the difference with "
                f"{names.allow_mismatch.format(difference.name)}"
            )
    soft = [str(d) for d in found if not d.is_error]
    if soft:
        warnings.warn(
            f"the pass rates were sampled with other settings: {'; '.join(soft)}; they are off by "
            "as much as these settings change the rewards",
            UserWarning,
            stacklevel=3,
        )


def named_rewards(functions: Iterable[Any], weights: Sequence[float] | None) -> list[Reward]:
    """Reward functions with a weight other than 0, by name."""
    functions = list(functions)
    names = [_function_name(function) for function in functions]
    weights = [1.0] * len(names) if weights is None else weights
    # TRL refuses a wrong number of weights.
    pairs = zip(names, weights, strict=False)
    return [Reward(name, float(weight)) for name, weight in pairs if weight]


def _function_name(function: Any) -> str | None:
    for named in (function, getattr(function, "verifier", None)):
        name = getattr(named, "name", None)
        if isinstance(name, str):
            return name
    own = getattr(function, "__name__", None)
    if not isinstance(own, str) or own == "<lambda>":
        return None
    # A script's functions have no module that another program could name.
    module = getattr(function, "__module__", None)
    return own if module in (None, "__main__") else f"{module}:{own}"
