"""Leave-one-out group mean: RLOO's baseline."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from basis_rl.batch import FloatArray, RewardBatch
from basis_rl.estimators.base import Estimator, check_share
from basis_rl.estimators.groups import Groups


class LeaveOneOut(Estimator):
    """Mean reward of the prompt's other rollouts, ``b_i = sum_{j in g, j != i} r_j / (G - 1)``.

    Two or more rollouts per prompt, any and mixed numbers. A prompt with one rollout gets its own
    reward, so advantage 0, as in TRL and in verl's `rloo_vectorized`; verl's `rloo` gives it the
    raw reward. A batch with no second rollout of any prompt is refused. No options and no state:
    a restart does nothing.

    Source: A. Ahmadian et al., Back to basics, arXiv 2402.14740.
    """

    name: ClassVar[str] = "leave-one-out"
    min_rollouts: ClassVar[int] = 2

    def __init__(self, *, max_unverified: float = 0.1) -> None:
        self.max_unverified = check_share("max_unverified", max_unverified)

    def _baselines(self, rollouts: RewardBatch) -> tuple[FloatArray, dict[str, float]]:
        groups = Groups.of(rollouts, self.name)
        size, total = groups.size[groups.index], groups.total[groups.index]
        others = (total - rollouts.rewards) / np.maximum(size - 1.0, 1.0)
        baselines = np.where(size == 1.0, rollouts.rewards, others)
        return baselines, {"single_fraction": groups.single_fraction}
