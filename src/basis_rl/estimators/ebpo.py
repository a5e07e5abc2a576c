"""EBPO: group means drawn towards the mean of all rewards so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from basis_rl.batch import FloatArray, RewardBatch, group_index, sum_by
from basis_rl.estimators.base import Estimator, State, check_share, distinct_rollouts
from basis_rl.estimators.groups import check_groups


@dataclass(frozen=True)
class RunningMoments:
    """Number, mean and sum of squared deviations of a stream of numbers (Welford, by batches)."""

    count: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    @property
    def variance(self) -> float:
        """Sample variance (divisor count - 1); 0 for fewer than two numbers."""
        return self.squares / (self.count - 1.0) if self.count > 1 else 0.0

    def plus(self, numbers: FloatArray) -> RunningMoments:
        """With a batch more."""
        more, mean = float(len(numbers)), float(numbers.mean())
        count, step = self.count + more, mean - self.mean
        squares = float(((numbers - mean) ** 2).sum()) + step**2 * self.count * more / count
        return RunningMoments(count, self.mean + step * more / count, self.squares + squares)

    def to_list(self) -> list[float]:
        """For `state_dict`."""
        return [self.count, self.mean, self.squares]

    @classmethod
    def from_list(cls, saved: Any) -> RunningMoments:
        """Inverse of `to_list`.

        Raises
        ------
        TypeError, ValueError
            If it is not three finite numbers, the first and last not negative.
        """
        count, mean, squares = map(float, saved)
        if not (0 <= count < np.inf and 0 <= squares < np.inf and np.isfinite(mean)):
            raise ValueError(f"moments are {saved!r}")
        return cls(count, mean, squares)


class Ebpo(Estimator):
    r"""Empirical-Bayes shrinkage of group means.

    ``b_i = (1 - S) mu_g + S mu`` with ``S = (s2 / G) / (s2 / G + t2)``: mu_g is the prompt's group
    mean, G its rollouts; over the whole run so far, this batch included, mu and s2 are the mean
    and variance of all rewards and t2 is the variance of the group means.

    Parameters
    ----------
    max_unverified : float
        Largest share of NaN rewards accepted.

    Raises
    ------
    BatchError
        If no prompt of a batch has a second rollout.

    Notes
    -----
    No code was published; the variances have divisor n - 1 here. The row's own reward is in mu_g,
    mu, s2 and t2: nothing is left out, as in the paper. The paper's groups have several rollouts:
    with one per prompt the group means are the rewards, so that t2 is s2 and S is 1/2 whatever
    the prompts are like. The running numbers forget nothing, so mu lags behind a policy that
    improves. The paper then whitens the advantages over the batch, which is a step of its own
    here (`basis_rl.normalize`). Stale rows get a baseline and do not enter the running numbers.
    A restart needs `state_dict`: six numbers. Any real rewards.

    Source: K. Han et al., arXiv 2602.05165, Algorithm 1.
    """

    name: ClassVar[str] = "ebpo"
    min_rollouts: ClassVar[int] = 2

    def __init__(self, *, max_unverified: float = 0.1) -> None:
        self.max_unverified = check_share("max_unverified", max_unverified)
        self.rewards = RunningMoments()
        self.group_means = RunningMoments()

    def observe(self, batch: RewardBatch) -> None:
        """Take rewards that are not trained on into the running numbers."""
        verified = ~np.isnan(batch.rewards)
        if verified.any():
            self._learn(distinct_rollouts(batch, verified)[0])

    def _baselines(self, rollouts: RewardBatch) -> tuple[FloatArray, dict[str, float]]:
        index = group_index(rollouts.keys)
        size = np.bincount(index).astype(np.float64)
        check_groups(size, f"{self.name!r} takes each reward as its prompt's mean")
        self._learn(rollouts)
        means = sum_by(index, rollouts.rewards, len(size)) / size
        if self.rewards.count == 0:  # nothing but stale rows so far
            return means[index], {}
        # All rewards alike so far: any S gives the same.
        of_mean = np.maximum(self.rewards.variance / size, 1e-300)
        shrink = of_mean / (of_mean + self.group_means.variance)
        baselines = (1.0 - shrink) * means + shrink * self.rewards.mean
        return baselines[index], {
            "shrinkage": float(shrink[index].mean()),
            "running_mean": self.rewards.mean,
        }

    def _learn(self, rollouts: RewardBatch) -> None:
        rewards, keys = rollouts.rewards, rollouts.keys
        if rollouts.row_versions is not None and rollouts.policy_version is not None:
            fresh = np.flatnonzero(rollouts.row_versions >= rollouts.policy_version)
            if len(fresh) == 0:
                return
            rewards, keys = rewards[fresh], [keys[i] for i in fresh]
        index = group_index(keys)
        size = np.bincount(index)
        self.rewards = self.rewards.plus(rewards)
        self.group_means = self.group_means.plus(sum_by(index, rewards, len(size)) / size)

    def _state(self) -> State:
        return {"rewards": self.rewards.to_list(), "group_means": self.group_means.to_list()}

    def _load(self, state: Mapping[str, Any]) -> None:
        rewards = RunningMoments.from_list(state["rewards"])
        self.group_means = RunningMoments.from_list(state["group_means"])
        self.rewards = rewards
