"""Group mean: GRPO's baseline."""

from __future__ import annotations

from typing import ClassVar

from basis_rl.batch import FloatArray, RewardBatch
from basis_rl.errors import ConfigError
from basis_rl.estimators.base import ScaledEstimator, check_share
from basis_rl.estimators.groups import Groups


class GroupMean(ScaledEstimator):
    """Mean reward of the prompt's rollouts, ``b_i = mean_g r``, the row's own included.

    Parameters
    ----------
    std : bool
        Divide the advantage by ``std_g + epsilon``, std_g being the sample standard deviation of
        the prompt's rewards (GRPO); False is Dr.GRPO's form. The baseline is the same.
    epsilon : float
        verl's 1e-6; TRL uses 1e-4.

    Notes
    -----
    Two or more rollouts per prompt, any and mixed numbers. A prompt with one rollout gets
    advantage 0; verl's `grpo` gives it baseline 0, so the raw reward. A batch with no second
    rollout of any prompt is refused. TRL's `scale_rewards` "group", "none" and "batch" are
    ``std=True, epsilon=1e-4``; ``std=False``; and ``std=False`` with
    ``normalize_advantages(..., "reward-std")``. No state: a restart does nothing.

    Source: Z. Shao et al., DeepSeekMath, arXiv 2402.03300.
    """

    name: ClassVar[str] = "group-mean"
    min_rollouts: ClassVar[int] = 2

    def __init__(
        self, *, std: bool = True, epsilon: float = 1e-6, max_unverified: float = 0.1
    ) -> None:
        if not 0 < epsilon < float("inf"):
            raise ConfigError(f"epsilon is {epsilon!r}: give a positive number, e.g. 1e-6")
        self.std = std
        self.epsilon = epsilon
        self.max_unverified = check_share("max_unverified", max_unverified)

    def _scaled_baselines(
        self, rollouts: RewardBatch
    ) -> tuple[FloatArray, FloatArray | None, dict[str, float]]:
        groups = Groups.of(rollouts, self.name)
        means = groups.total / groups.size
        scale = None
        if self.std:
            deviation = groups.standard_deviation(rollouts.rewards)
            scale = 1.0 / (deviation + self.epsilon)[groups.index]
        return means[groups.index], scale, {"single_fraction": groups.single_fraction}
