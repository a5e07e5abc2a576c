"""Sums over the rollouts of a prompt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from basis_rl.batch import FloatArray, IntArray, RewardBatch, group_index, sum_by
from basis_rl.errors import BatchError


@dataclass(frozen=True)
class Groups:
    """Rollouts by prompt.

    Attributes
    ----------
    index : int array, shape (R,)
        Prompt of each rollout.
    size, total : arrays, shape (P,)
        Number of rollouts and sum of rewards of each prompt.
    """

    index: IntArray
    size: FloatArray
    total: FloatArray

    @classmethod
    def of(cls, rollouts: RewardBatch, estimator: str) -> Groups:
        """Group a batch.

        Raises
        ------
        BatchError
            If no prompt has a second rollout: every advantage would be 0.
        """
        index = group_index(rollouts.keys)
        size = np.bincount(index).astype(np.float64)
        check_groups(size, f"{estimator!r} makes all advantages 0")
        return cls(index, size, sum_by(index, rollouts.rewards, len(size)))

    @property
    def single_fraction(self) -> float:
        """Share of rollouts that are alone with their prompt: their advantage is 0."""
        return float((self.size == 1).sum() / self.size.sum())

    def standard_deviation(self, rewards: FloatArray) -> FloatArray:
        """Sample standard deviation (n - 1) of every prompt's rewards, shape (P,); 0 if alone."""
        deviations = rewards - (self.total / self.size)[self.index]
        squares = sum_by(self.index, deviations**2, len(self.size))
        return np.asarray(np.sqrt(squares / np.maximum(self.size - 1.0, 1.0)))


def check_groups(size: FloatArray, otherwise: str) -> None:
    """Refuse a batch whose prompts have one rollout each.

    Parameters
    ----------
    size : array, shape (P,)
        Rollouts of each prompt.
    otherwise : str
        What the estimator would do there.

    Raises
    ------
    BatchError
    """
    if size.max() == 1:
        raise BatchError(
            f"every prompt has one rollout, where {otherwise}: sample 2 or more per prompt, or use "
            "'basis-online', 'basis' (with pass rates), 'batch-mean' or 'zero'"
        )
