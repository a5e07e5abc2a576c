"""Batch mean: the value estimate that papers call REINFORCE++."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from basis_rl.batch import FloatArray, RewardBatch
from basis_rl.estimators.base import Estimator, check_share


class BatchMean(Estimator):
    """One baseline for all, ``b = mean_j r_j`` over the batch's rollouts, the row's own included.

    This is what the paper compares as REINFORCE++'s value. The training code of that name weighs
    rollouts by their tokens and divides by the standard deviation: that is `ReinforcePlusPlus`
    ("reinforce-plus-plus").

    Notes
    -----
    Any number of rollouts per prompt. A batch of one rollout has advantage 0. No options and no
    state: a restart does nothing.

    Source: J. Hu et al., REINFORCE++, arXiv 2501.03262.
    """

    name: ClassVar[str] = "batch-mean"

    def __init__(self, *, max_unverified: float = 0.1) -> None:
        self.max_unverified = check_share("max_unverified", max_unverified)

    def _baselines(self, rollouts: RewardBatch) -> tuple[FloatArray, dict[str, float]]:
        return np.full(len(rollouts), rollouts.rewards.mean()), {}
