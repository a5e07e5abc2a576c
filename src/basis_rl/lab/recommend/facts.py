"""What a record holds, as far as it bears on the choice of a baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from basis_rl.batch import FloatArray, IntArray, sum_by
from basis_rl.lab.record import RewardRecord

# With fewer rewards of a prompt, that all are equal may be chance.
REWARDS_TO_CALL_CONSTANT = 16
NEARLY_ALL = 0.99
_PAIRS = 1000  # with fewer, the second difference would add more noise than it takes off


@dataclass(frozen=True)
class Facts:
    """Counts and variances of a record.

    Attributes
    ----------
    prompts, visits, rollouts, steps : int
        Prompts that are visited at all.
    visits_per_prompt, rollouts_per_visit : float
        Medians.
    cache : float
        Median number of reference rollouts of the visited prompts that the table knows; 0 without a
        table, NaN in a table of bare rates.
    coverage : float
        Share of the visited prompts that the table knows; 0 without one.
    is_binary : bool
    two_values : (float, float) or None
        Where rewards have just two values that are not 0 and 1.
    mean : float
        Mean reward.
    variance : float
        Of all rewards.
    within : float
        Variance of one reward given prompt and policy: what no baseline removes; see
        `within_variance`. NaN if no prompt has two rewards.
    never, always : float
        Shares of the rollouts that fell on prompts with the least or the largest reward of all in
        99% or more of at least 16 rewards, those of the table included.
    kurtosis : float
        Of the rewards about their visit's mean (about the prompt's with one rollout a visit); 3
        for a normal distribution.
    """

    prompts: int
    visits: int
    rollouts: int
    steps: int
    visits_per_prompt: float
    rollouts_per_visit: float
    cache: float
    coverage: float
    is_binary: bool
    two_values: tuple[float, float] | None
    mean: float
    variance: float
    within: float
    never: float
    always: float
    kurtosis: float

    @property
    def between(self) -> float:
        """Variance of the rewards that a perfect baseline removes and one number for all leaves."""
        return max(self.variance - self.within, 0.0)

    @property
    def one_rollout(self) -> bool:
        """Whether visits have one rollout each, so that no other tells the value of then."""
        return self.rollouts_per_visit == 1.0


def facts_of(record: RewardRecord) -> Facts:
    """Facts of a record."""
    visited, visits_of = np.unique(record.prompt, return_counts=True)
    never, always = _constant_shares(record)
    return Facts(
        prompts=len(visited),
        visits=len(record),
        rollouts=len(record.rewards),
        steps=len(np.unique(record.step)),
        visits_per_prompt=float(np.median(visits_of)),
        rollouts_per_visit=float(np.median(record.counts)),
        cache=_cache_size(record, visited),
        coverage=0.0
        if record.pass_rates is None
        else record.pass_rates.coverage([record.keys[i] for i in visited]),
        is_binary=record.is_binary,
        two_values=_two_values(record),
        mean=float(record.rewards.mean()),
        variance=float(record.rewards.var()),
        within=within_variance(record),
        never=never,
        always=always,
        kurtosis=_kurtosis(record),
    )


def visit_variances(record: RewardRecord) -> FloatArray:
    """Unbiased variance of one reward of each visit, shape (V,); NaN with one rollout."""
    counts = record.counts
    number = np.repeat(np.arange(len(record)), counts)
    means = sum_by(number, record.rewards, len(record)) / counts
    squares = sum_by(number, (record.rewards - means[number]) ** 2, len(record))
    return np.where(counts > 1, squares / np.maximum(counts - 1, 1), np.nan)


def within_variance(record: RewardRecord) -> float:
    """Mean variance of one reward given prompt and policy; NaN if no prompt has two rewards.

    From the visits' own rollouts. With one rollout a visit: half the mean squared difference D1
    between a prompt's successive visits also counts what changed in between, for a random walk half
    as much as D2 between every second visit, so that ``2 D1 - D2`` counts none of it; where all
    prompts move in one direction it takes too much off.
    """
    several = record.counts > 1
    if several.any():
        return float(visit_variances(record)[several].mean())
    order = np.argsort(record.prompt, kind="stable")
    prompt, rewards = record.prompt[order], record.rewards[order]
    found = []
    for lag in (1, 2):
        same = prompt[lag:] == prompt[:-lag]
        if same.sum() >= (1 if lag == 1 else _PAIRS):
            found.append(float(((rewards[lag:] - rewards[:-lag])[same] ** 2).mean() / 2.0))
    if not found:
        return float("nan")
    return found[0] if len(found) == 1 else min(found[0], 2.0 * found[0] - found[1])


def _two_values(record: RewardRecord) -> tuple[float, float] | None:
    low, high = float(record.rewards.min()), float(record.rewards.max())
    has_two = low < high and ((record.rewards == low) | (record.rewards == high)).all()
    return (low, high) if has_two and not record.is_binary else None


def _cache_size(record: RewardRecord, visited: IntArray) -> float:
    table = record.pass_rates
    if table is None:
        return 0.0
    if table.kind == "rates":
        return float("nan")
    rows = table.rows([record.keys[i] for i in visited])
    return float(np.median(table.n[rows[rows >= 0]])) if (rows >= 0).any() else 0.0


def _constant_shares(record: RewardRecord) -> tuple[float, float]:
    """Shares of the rollouts on prompts with nearly always the least, and the largest, reward."""
    low, high = float(record.rewards.min()), float(record.rewards.max())
    size = len(record.keys)
    of = np.repeat(record.prompt, record.counts)
    shown = np.bincount(of, minlength=size)
    lows = np.bincount(of[record.rewards == low], minlength=size)
    highs = np.bincount(of[record.rewards == high], minlength=size)
    total = shown.copy()
    table = record.pass_rates
    if table is not None and table.successes is not None and record.is_binary:
        rows = table.rows(record.keys)
        known = rows >= 0
        n, k = table.n[rows[known]], table.successes[rows[known]]
        total[known] += n
        lows[known] += n - k if low == 0 else 0
        highs[known] += k if high == 1 else 0
    enough = total >= REWARDS_TO_CALL_CONSTANT
    never, always = (shown[enough & (part >= NEARLY_ALL * total)].sum() for part in (lows, highs))
    return float(never / shown.sum()), float(always / shown.sum()) if high > low else 0.0


def _kurtosis(record: RewardRecord) -> float:
    if (record.counts > 1).any():
        group, size = np.repeat(np.arange(len(record)), record.counts), len(record)
    else:
        group, size = record.prompt, len(record.keys)
    counts = np.maximum(np.bincount(group, minlength=size), 1)
    means = sum_by(group, record.rewards, size) / counts
    residual = record.rewards - means[group]
    square = float((residual**2).mean())
    return float((residual**4).mean() / square**2) if square > 0 else 3.0
