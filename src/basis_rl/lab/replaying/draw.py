"""The random order of each visit's rollouts: the cache's, those that are shown, the oracle's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from basis_rl.batch import FloatArray, IntArray
from basis_rl.lab.replaying.plan import Plan
from basis_rl.passrates.table import PassRates

# Streams of random numbers of their own. Without such a number (or with 0) a record that was made
# with `default_rng(0)` would be sorted by the very numbers that made its rewards.
_ORDER, _CACHE = 3, 2


@dataclass(frozen=True)
class Draw:
    """One seed's random order of each visit's rollouts, the same for every contender.

    Attributes
    ----------
    plan : Plan
    rewards : float64 array, shape (R,)
        Each visit's in random order: the cache's first, then those that are shown.
    lengths : float64 array, shape (R,), optional
    pair : int
        Seeds of one pair have one cache.
    """

    plan: Plan
    rewards: FloatArray
    lengths: FloatArray | None
    pair: int

    @classmethod
    def of(cls, plan: Plan, seed: int) -> Draw:
        """Draw it.

        Seeds 2k and 2k + 1 have one cache, and where at most half of a visit is shown they show
        different rollouts of it, so that their baselines are independent given the cache.
        """
        record = plan.record
        rng = np.random.default_rng([seed // 2, _ORDER])
        visit = np.repeat(np.arange(len(record)), record.counts)
        order = np.lexsort((rng.random(len(record.rewards)), visit))
        if seed % 2:
            first = (record.starts[:-1] + plan.cached)[visit]
            left = (record.counts - plan.cached)[visit]
            place = np.arange(len(order)) - first
            behind = place >= 0
            place[behind] = (place[behind] + left[behind] // 2) % left[behind]
            order = order[first + place]
        lengths = None if record.lengths is None else record.lengths[order]
        return cls(plan, record.rewards[order], lengths, seed // 2)

    def places(self, visits: IntArray, rollouts: int) -> IntArray:
        """Where the first shown rollouts of some visits are; shape (len(visits) * rollouts,)."""
        first = self.plan.record.starts[visits] + self.plan.cached[visits]
        places: IntArray = (first[:, None] + np.arange(rollouts)).ravel()
        return places

    def after(self, rollouts: int) -> tuple[IntArray, FloatArray, FloatArray]:
        """What is left of every replayed visit when so many rollouts are shown.

        Returns
        -------
        size : int array, shape (K,)
        mean, variance : float64 array, shape (K,)
            Mean reward, and the unbiased sampling variance of that mean.
        """
        plan = self.plan
        low = plan.record.starts[plan.visits] + plan.cached[plan.visits] + rollouts
        return self._of(low, plan.record.starts[plan.visits + 1] - plan.reserved)

    def reserved(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """As `after`, of the reserved rollouts of the visits that have some."""
        plan = self.plan
        some = plan.reserved > 0
        high = plan.record.starts[plan.visits[some] + 1]
        return self._of(high - plan.reserved[some], high)

    def _of(self, low: IntArray, high: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Sizes of slices of the rewards, their means, and those means' sampling variances."""
        size = high - low
        mean = _sums(self.rewards, low, high) / size
        # Squares of what is left after the mean: no difference of large sums.
        deviations = np.zeros_like(self.rewards)
        places = np.repeat(low - np.cumsum(size) + size, size) + np.arange(size.sum())
        deviations[places] = self.rewards[places] - np.repeat(mean, size)
        variance = _sums(deviations**2, low, high) / (size - 1) / size
        return size, mean, variance

    def pass_rates(self) -> PassRates | None:
        """The cache: the record's own, or one of the rollouts set aside; None without any."""
        record, cached = self.plan.record, self.plan.cached
        if record.pass_rates is not None:
            return record.pass_rates
        if not cached.any():
            return None
        places = np.repeat(record.starts[:-1] - np.cumsum(cached) + cached, cached)
        places += np.arange(cached.sum())
        owner = np.repeat(record.prompt, cached)
        # In random order within a prompt, of which the first are taken.
        rng = np.random.default_rng([self.pair, _CACHE])
        order = np.lexsort((rng.random(len(owner)), owner))
        first = np.flatnonzero(np.diff(owner[order], prepend=-1))
        number = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
        order = order[number < self.plan.cache_rollouts]
        owner, rewards = owner[order], self.rewards[places[order]]
        prompts, n = np.unique(owner, return_counts=True)
        keys = [record.keys[i] for i in prompts]
        sources = None if record.sources is None else [record.sources[i] for i in prompts]
        if record.is_binary:
            successes = np.bincount(owner, weights=rewards)[prompts].astype(np.int64)
            return PassRates.from_counts(keys, successes, n, sources=sources)
        return PassRates(keys, n, reward_values=rewards, sources=sources)


def _sums(values: FloatArray, low: IntArray, high: IntArray) -> FloatArray:
    """Sums of the slices ``low:high``, none of them empty."""
    padded = np.append(values, 0.0)
    sums: FloatArray = np.add.reduceat(padded, np.stack([low, high], axis=1).ravel())[::2]
    return sums
