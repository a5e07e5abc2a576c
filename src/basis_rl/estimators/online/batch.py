"""A batch's rows by prompt."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from basis_rl.batch import FloatArray, IntArray, RewardBatch, sum_by


class Prompts(NamedTuple):
    """A batch by prompt.

    Attributes
    ----------
    keys : list of str, length P
    sources : list of str, length P, or None
        Of each prompt's first row.
    times : array, shape (P,)
        Step at which the newest of a prompt's rows was sampled.
    prompt_of : int array, shape (R,)
        Prompt of each row.
    rewards : array, shape (R,)
    n : array, shape (P,)
        Rows of each prompt.
    """

    keys: list[str]
    sources: list[str] | None
    times: FloatArray
    prompt_of: IntArray
    rewards: FloatArray
    n: FloatArray

    @classmethod
    def of(cls, rollouts: RewardBatch, times: FloatArray, unit: float) -> Prompts:
        """Group a batch; rewards in units of ``unit``."""
        keys = list(dict.fromkeys(rollouts.keys))
        rewards = rollouts.rewards / unit
        if len(keys) == len(rollouts):
            one = np.arange(len(keys))
            return cls(keys, rollouts.sources, times, one, rewards, np.ones(len(keys)))
        place = {key: number for number, key in enumerate(keys)}
        prompt_of = np.fromiter(map(place.__getitem__, rollouts.keys), np.int64, len(rollouts))
        n = np.bincount(prompt_of).astype(np.float64)
        sources = None
        if rollouts.sources is not None:
            # Backwards, so that a prompt's first row has the last word.
            first = np.empty(len(keys), dtype=np.int64)
            first[prompt_of[::-1]] = np.arange(len(rollouts))[::-1]
            sources = [rollouts.sources[row] for row in first.tolist()]
        newest = np.full(len(keys), times.max())
        if times.min() < times.max():
            newest[:] = -np.inf
            np.maximum.at(newest, prompt_of, times)
        return cls(keys, sources, newest, prompt_of, rewards, n)

    @property
    def single(self) -> bool:
        """Whether every prompt has one row."""
        return len(self.keys) == len(self.rewards)

    def total(self, rewards: FloatArray) -> FloatArray:
        """Sum over each prompt's rows, shape (P,)."""
        return rewards if self.single else sum_by(self.prompt_of, rewards, len(self.keys))

    def alike(self, rewards: FloatArray) -> tuple[IntArray, FloatArray, IntArray]:
        """Rows of one prompt with one reward of 0 or 1 as one cell.

        Returns
        -------
        prompt, reward : arrays, shape (C,)
            Of each cell.
        cell_of : int array, shape (R,)
        """
        codes = 2 * self.prompt_of + (rewards > 0)
        present = np.bincount(codes) > 0
        cells = np.flatnonzero(present)
        return cells // 2, (cells % 2).astype(np.float64), (np.cumsum(present) - 1)[codes]
