"""Zero baseline: plain REINFORCE."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from basis_rl.batch import FloatArray, RewardBatch
from basis_rl.estimators.base import Estimator, check_share


class Zero(Estimator):
    """No baseline, ``b_i = 0``: the paper's "vanilla" single-rollout training.

    Any number of rollouts per prompt. No options and no state: a restart does nothing.

    Source: R. Williams, Simple statistical gradient-following algorithms, 1992.
    """

    name: ClassVar[str] = "zero"

    def __init__(self, *, max_unverified: float = 0.1) -> None:
        self.max_unverified = check_share("max_unverified", max_unverified)

    def _baselines(self, rollouts: RewardBatch) -> tuple[FloatArray, dict[str, float]]:
        return np.zeros(len(rollouts)), {}
