"""What stops or warns a run before it wastes time: coverage and provenance."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from basis_rl.errors import PassRatesError
from basis_rl.passrates import PassRates, Provenance
from basis_rl.passrates.inspect.compare import Reward, differences, is_sum


def check_coverage(
    pass_rates: PassRates, keys: Sequence[str], least: float, show: Callable[[int], str]
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
        "cache build`, name the column with the keys (prompt_key_column), or start unknown prompts "
        "from a prior (estimator_options={'missing': 'prior'}, with min_coverage)"
    )


def check_provenance(
    cached: Provenance, run: Provenance, rewards: Sequence[Reward], allowed: Iterable[str]
) -> None:
    """Compare what made the pass rates with a run; settings unknown to one side are skipped.

    Parameters
    ----------
    cached, run : Provenance
    rewards : list of Reward
        The run's reward functions.
    allowed : iterable of str
        Fields that may differ.

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
                f"allow_mismatch=[{difference.name!r}]"
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
