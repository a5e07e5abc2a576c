"""Where a prompt that an estimator has not met yet starts from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from basis_rl.batch import FloatArray, IntArray, RewardBatch, group_index, sum_by
from basis_rl.estimators.basis_prior import with_priors
from basis_rl.passrates.table import PassRates
from basis_rl.refine import exclusive_sums

MEMORY = 0.9  # weight of the earlier batches' rewards when a batch is added


class Start(NamedTuple):
    """What is known of some prompts before their first visit.

    Attributes
    ----------
    mean : array, shape (B,)
        Mean reward expected; NaN where nothing is known at all.
    total, n : arrays, shape (B,)
        Sum of the prompt's reference rewards, and how many; 0 and 0 outside the table.
    """

    mean: FloatArray
    total: FloatArray
    n: FloatArray


class Starts:
    """Pass rates where there are any, else what other prompts are like.

    A prompt of the table starts from ``(S + 1/2) / (n + 1)``; where the table holds rewards, the
    pseudo-observation is the mean of the prompt's population instead of 1/2, and where it holds
    bare rates, the rate as it is, taken as one rollout. A prompt outside the table starts from
    the mean of its source there (of the whole table if the source is unknown). Without a table it
    starts from the mean reward of the other prompts so far: those of its first batch and of the
    earlier ones, each batch weighing 0.9 of the next.
    """

    def __init__(self, table: PassRates | None) -> None:
        self.table = table
        self.seen = np.zeros(2)  # sum of rewards, and their number
        if table is None:
            return
        self._priors = with_priors(table)
        self._of_population = np.array(
            [table.means[rows].mean() for rows in self._priors.members()]
        )

    def of(self, keys: Sequence[str], sources: Sequence[str] | None) -> Start:
        """Start of any prompts, from the table and the batches before."""
        nothing = np.zeros(len(keys))
        if self.table is None:
            mean = self.seen[0] / self.seen[1] if self.seen[1] > 0 else np.nan
            return Start(np.full(len(keys), mean), nothing, nothing)
        rows = self.table.rows(keys)
        known = rows >= 0
        population = self._population(sources, rows)
        n = np.where(known, np.maximum(self.table.n[rows], 1), 0).astype(np.float64)
        total = np.where(known, self.table.means[rows] * n, 0.0)
        if self.table.kind == "rates":
            return Start(np.where(known, total, population), total, n)
        pseudo = np.where(known, 0.5, population) if self.table.kind == "counts" else population
        return Start((total + pseudo) / (n + 1.0), total, n)

    def in_batch(self, batch: RewardBatch) -> Start:
        """Start of every row's prompt, its own rewards left out."""
        start = self.of(batch.keys, batch.sources)
        if self.table is not None:
            return start
        prompt = group_index(batch.keys)
        size = int(prompt.max()) + 1
        before, of_batches = MEMORY * self.seen
        sums = exclusive_sums(sum_by(prompt, batch.rewards, size)) + before
        counts = len(batch) - np.bincount(prompt) + of_batches
        # Nothing but this prompt so far.
        mean = np.where(counts > 0, sums / np.maximum(counts, 1e-300), np.nan)
        return start._replace(mean=mean[prompt])

    def see(self, batch: RewardBatch) -> None:
        """Take in a batch's rewards."""
        self.seen = MEMORY * self.seen + (batch.rewards.sum(), len(batch))

    def to_list(self) -> list[float]:
        """For `state_dict`."""
        return [float(number) for number in self.seen]

    def load(self, saved: Mapping[str, Any]) -> None:
        """Inverse of `to_list`."""
        total, count = saved["seen"]
        if not (np.isfinite(total) and 0 <= count < np.inf):
            raise ValueError(f"seen is {saved['seen']!r}")
        self.seen = np.array([total, count], dtype=np.float64)

    def _population(self, sources: Sequence[str] | None, rows: IntArray) -> FloatArray:
        size = len(rows)
        if self._priors.source_of is None:
            return np.full(size, self._of_population[-1])
        everyone = len(self._of_population) - 1
        number = np.full(size, everyone)
        if sources is not None:
            number = np.array([self._priors.names.get(source, everyone) for source in sources])
        own = self._priors.source_of[rows]
        return self._of_population[np.where(rows >= 0, own, number)]
