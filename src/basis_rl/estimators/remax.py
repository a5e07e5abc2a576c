"""ReMax: the reward of the greedy completion."""

from __future__ import annotations

from typing import ClassVar

from basis_rl.batch import FloatArray, RewardBatch
from basis_rl.estimators.base import Estimator, check_share


class ReMax(Estimator):
    """Reward of the prompt's greedy completion under the present policy, ``b_i = r(greedy)``.

    Needs ``greedy_rewards`` in the batch. The trainer has to sample that completion: one more per
    prompt, which doubles generation at one rollout per prompt.

    Raises
    ------
    BatchError
        In `estimate`: if the batch has no greedy_rewards.

    Notes
    -----
    Any number of rollouts per prompt; a single sample, so the baseline is 0 or 1 where rewards
    are. It is not checked that rows of one prompt have the same greedy reward. Of a rollout of
    several rows the first row's counts. No options, and no scaling, in the paper and its code. No
    state: a restart does nothing.

    Source: Z. Li et al., ReMax, arXiv 2310.10505, Algorithm 1; liziniu/ReMax `remax_trainer.py`;
    verl 0.9.1 `compute_remax_outcome_advantage`.
    """

    name: ClassVar[str] = "remax"
    needed_columns: ClassVar[tuple[str, ...]] = ("greedy_rewards",)

    def __init__(self, *, max_unverified: float = 0.1) -> None:
        self.max_unverified = check_share("max_unverified", max_unverified)

    def _baselines(self, rollouts: RewardBatch) -> tuple[FloatArray, dict[str, float]]:
        assert rollouts.greedy_rewards is not None  # needed_columns
        return rollouts.greedy_rewards, {}
