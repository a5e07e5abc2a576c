"""What stops or warns a run before it wastes time: coverage and provenance."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from basis_rl.errors import PassRatesError
from basis_rl.passrates import Difference, PassRates, Provenance

# Last parts of paths that many models share.
_NO_MODEL = re.compile(r"final|checkpoint-\d+|[0-9a-f]{40}")


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
    found = list(cached.differences(run))
    if cached.verifier is not None and not is_verifier(cached.verifier, rewards):
        shown = " + ".join(str(reward) for reward in rewards)
        found.append(Difference("verifier", cached.verifier, shown, True))
    found = [d for d in found if d.name != "model" or not same_model(str(d.cached), str(d.run))]
    if same_model(cached.model or "", run.model or "") is False:
        # Revisions of different models cannot be compared.
        found = [d for d in found if d.name != "revision"]
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


def same_model(one: str, other: str) -> bool:
    """Whether two names mean the same model.

    Two hub names are compared whole; a folder is compared with a hub name or with another folder
    by its last part, as a model may have been copied. Where that part is no name of a model
    (``final``, ``checkpoint-100``, a snapshot of the hub), by the last two.
    """
    if _is_hub_name(one) and _is_hub_name(other):
        return one == other
    ends = [Path(name).parts[-1:] for name in (one, other)]
    if any(end and _NO_MODEL.fullmatch(end[0]) for end in ends):
        ends = [Path(name).parts[-2:] for name in (one, other)]
    return ends[0] == ends[1]


def _is_hub_name(name: str) -> bool:
    owner, slash, model = name.partition("/")
    plain = bool(slash and owner and model) and "/" not in model and owner not in (".", "..", "~")
    return plain and not Path(name).is_dir()


@dataclass(frozen=True)
class Reward:
    """A reward function of a run.

    Attributes
    ----------
    name : str or None
        ``module:function``, or a verifier's name; None if it has none.
    weight : float
    """

    name: str | None
    weight: float = 1.0

    def __str__(self) -> str:
        name = self.name or "an unnamed function"
        return name if self.weight == 1 else f"{self.weight:g} x {name}"


def named_rewards(functions: Iterable[Any], weights: Sequence[float] | None) -> list[Reward]:
    """Reward functions with a weight other than 0, by name."""
    functions = list(functions)
    names = [_function_name(function) for function in functions]
    weights = [1.0] * len(names) if weights is None else weights
    # TRL refuses a wrong number of weights.
    pairs = zip(names, weights, strict=False)
    return [Reward(name, float(weight)) for name, weight in pairs if weight]


def is_sum(rewards: Sequence[Reward]) -> bool:
    """Whether the reward is not what one verifier says."""
    return len(rewards) != 1 or rewards[0].weight != 1


def is_verifier(verifier: str, rewards: Sequence[Reward]) -> bool:
    """Whether a table's verifier (``math``, or ``math + 0.5 x mine:digit``) is a run's reward.

    An unnamed function may be any.
    """
    left = list(rewards)
    for part in verifier.split(" + "):
        weight, times, name = part.partition(" x ")
        if not times:
            weight, name = "1", part
        fits = (r for r in left if f"{r.weight:g}" == weight and _same_function(name, r.name))
        reward = next(fits, None)
        if reward is None:
            return False
        left.remove(reward)
    return not left


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


def _same_function(one: str, other: str | None) -> bool:
    if other is None or (":" in one and ":" in other):
        return other is None or one == other
    return one.rpartition(":")[2] == other.rpartition(":")[2]
