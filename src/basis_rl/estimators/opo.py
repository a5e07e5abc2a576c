"""OPO: length-weighted group mean."""

from __future__ import annotations

from typing import ClassVar

from basis_rl.batch import FloatArray, RewardBatch, sum_by
from basis_rl.estimators.base import Estimator, check_share
from basis_rl.estimators.groups import Groups


class Opo(Estimator):
    """Length-weighted mean of the prompt's rewards, ``b_i = sum_g L_j r_j / sum_g L_j``.

    The baseline of least variance where the squared norm of a completion's score function grows
    with its length L. The row's own reward is included.

    Raises
    ------
    BatchError
        In `estimate`: if the batch has no lengths, or no prompt has a second rollout.

    Notes
    -----
    Two or more rollouts per prompt, any and mixed numbers. A prompt's lone rollout gets its own
    reward, so advantage 0; verl gives it baseline 0. The advantage is not divided by a standard
    deviation. The paper trains exactly on-policy (one update per batch) without KL and entropy
    terms; the estimator does not see to that. No options and no state: a restart does nothing.

    Source: Y. Hao et al., On-Policy RL with Optimal Reward Baseline, arXiv 2505.23585; verl 0.9.1
    `compute_opo_outcome_advantage`, which the authors contributed.
    """

    name: ClassVar[str] = "opo"
    min_rollouts: ClassVar[int] = 2
    needed_columns: ClassVar[tuple[str, ...]] = ("lengths",)

    def __init__(self, *, max_unverified: float = 0.1) -> None:
        self.max_unverified = check_share("max_unverified", max_unverified)

    def _baselines(self, rollouts: RewardBatch) -> tuple[FloatArray, dict[str, float]]:
        assert rollouts.lengths is not None  # needed_columns
        groups = Groups.of(rollouts, self.name)
        size = len(groups.size)
        total = sum_by(groups.index, rollouts.lengths * rollouts.rewards, size)
        means = total / sum_by(groups.index, rollouts.lengths, size)
        return means[groups.index], {"single_fraction": groups.single_fraction}
