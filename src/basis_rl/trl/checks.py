"""What stops or warns a run before it wastes time: coverage, provenance, silent advantages."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from basis_rl.batch import FloatArray, RewardBatch
from basis_rl.errors import BasisError, PassRatesError
from basis_rl.passrates import Difference, PassRates, Provenance

WARN_AFTER = 5  # generation batches without any advantage


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
    cached: Provenance, run: Provenance, verifiers: Iterable[str], allowed: Iterable[str]
) -> None:
    """Compare what made the pass rates with a run; settings unknown to one side are skipped.

    Parameters
    ----------
    cached, run : Provenance
    verifiers : iterable of str
        Names that the run's reward functions go by.
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
    names, allowed = set(verifiers), set(allowed)
    found = list(cached.differences(run))
    if cached.verifier is not None and names and not _is_named(cached.verifier, names):
        found.append(Difference("verifier", cached.verifier, " + ".join(sorted(names)), True))
    found = [d for d in found if d.name != "model" or not same_model(str(d.cached), str(d.run))]
    if same_model(cached.model or "", run.model or "") is False:
        # Revisions of different models cannot be compared.
        found = [d for d in found if d.name != "revision"]
    for difference in found:
        if difference.is_error and difference.name not in allowed:
            raise PassRatesError(
                f"{difference}: build pass rates for this run with `basis-rl cache build`, or "
                f"accept the difference with allow_mismatch=[{difference.name!r}]"
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
    by its last part, as a model may have been copied.
    """
    if _is_hub_name(one) and _is_hub_name(other):
        return one == other
    return Path(one.rstrip("/")).name == Path(other.rstrip("/")).name


def _is_hub_name(name: str) -> bool:
    owner, slash, model = name.partition("/")
    plain = bool(slash and owner and model) and "/" not in model and owner not in (".", "..", "~")
    return plain and not Path(name).is_dir()


def verifier_names(functions: Iterable[Any]) -> set[str]:
    """Names that reward functions go by; empty if one of them has none."""
    names: set[str] = set()
    for function in functions:
        name, own = getattr(function, "name", None), getattr(function, "__name__", None)
        if isinstance(name, str):
            names.add(name)
        elif isinstance(own, str) and own != "<lambda>":
            names |= {own, f"{function.__module__}:{own}"}
        else:
            return set()
    return names


def _is_named(verifier: str, names: set[str]) -> bool:
    return verifier in names or verifier.rpartition(":")[2] in names


class ZeroAdvantageWatch:
    """Counts generation batches in a row that teach nothing, as all their advantages are zero.

    Parameters
    ----------
    limit : int
        Batches in a row before the error; 0 never stops.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_a_row = 0

    def see(self, batch: RewardBatch, advantages: FloatArray, estimator: str) -> None:
        """Look at one batch.

        A batch without advantages can be right: all answers wrong with baseline 0, or every
        prompt's rollouts alike with a group baseline. That warns after `WARN_AFTER` batches and
        stops after ``limit``. Rewards that do differ must give an advantage to somebody.

        Raises
        ------
        BasisError
            If comparable rewards differ and all advantages are zero, or after ``limit`` batches.
        """
        if np.any(np.abs(advantages) > 1e-12):
            self.in_a_row = 0
            return
        low, high = comparable_range(batch)
        if high > low:
            raise BasisError(
                f"all {len(batch)} advantages are zero while rewards differ (from {low:g} to "
                f"{high:g}): estimator {estimator!r} gives no signal here; one that compares a "
                "prompt's own rollouts needs num_generations of 2 or more"
            )
        self.in_a_row += 1
        text = (
            f"all advantages have been zero for {self.in_a_row} generation batches in a row (the "
            f"last rewards: {_distinct(batch.rewards)}): check the reward function, and whether "
            "the prompts are all too hard or too easy"
        )
        if self.limit and self.in_a_row >= self.limit:
            raise BasisError(f"{text}, or raise max_zero_batches={self.limit}")
        if self.in_a_row == WARN_AFTER:
            warnings.warn(text, UserWarning, stacklevel=2)


def comparable_range(batch: RewardBatch) -> tuple[float, float]:
    """Lowest and highest reward of the prompt whose rewards differ most.

    With one rollout per prompt, of the batch.
    """
    seen = ~np.isnan(batch.rewards)
    rewards = batch.rewards[seen]
    groups = np.unique(np.array(batch.keys)[seen], return_inverse=True)[1]
    if not len(rewards) or groups.max() == len(rewards) - 1:
        groups = np.zeros(len(rewards), dtype=np.int64)
    low = np.full(groups.max(initial=0) + 1, np.inf)
    high = np.full_like(low, -np.inf)
    np.minimum.at(low, groups, rewards)
    np.maximum.at(high, groups, rewards)
    widest = int(np.argmax(high - low))
    return float(low[widest]), float(high[widest])


def _distinct(rewards: FloatArray) -> str:
    values = np.unique(rewards[~np.isnan(rewards)])[:3]
    return ", ".join(f"{value:g}" for value in values) or "none"
