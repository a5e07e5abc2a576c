"""James-Stein shrinkage of group means towards the batch."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from basis_rl.batch import FloatArray, RewardBatch
from basis_rl.estimators.base import Estimator, check_share
from basis_rl.estimators.groups import Groups
from basis_rl.refine import exclusive_sums


class JamesStein(Estimator):
    r"""Leave-one-out group mean, drawn towards the mean of the other prompts.

    ``b_i = (1 - l) mu_{-i} + l m``: ``mu_{-i}`` is the mean of the prompt's other rollouts, m the
    mean over the other prompts of their group means, and
    ``l = (n - 1) / n * v / (v + s)`` with n prompts; over the other prompts, v is the mean of
    (sample variance / rollouts) and s the variance of the group means (divisor n - 1).

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
    A row's own reward, with its whole group, is left out exactly of m and l. Group sizes may
    differ (in the paper they do not). A prompt with one rollout gets m and does not count in v.
    A batch of one prompt, and one whose other groups are all alike, has l = 0. The paper's code
    leaves (n - 1) / n out and adds 1e-6 to v + s. Nothing is kept from one batch to the next, so
    a restart needs nothing.

    Source: G. Zeng et al., arXiv 2511.03710, and its code, ``compute_jspo_outcome_advantage`` of
    guanning03/JSPO-Official, for v and s.
    """

    name: ClassVar[str] = "james-stein"
    min_rollouts: ClassVar[int] = 2

    def __init__(self, *, max_unverified: float = 0.1) -> None:
        self.max_unverified = check_share("max_unverified", max_unverified)

    def _baselines(self, rollouts: RewardBatch) -> tuple[FloatArray, dict[str, float]]:
        groups = Groups.of(rollouts, self.name)
        means = groups.total / groups.size
        target, shrink = _towards_others(means, groups, rollouts.rewards)
        alone = groups.size == 1.0
        shrink = np.where(alone & (len(means) > 1), 1.0, shrink)
        own = (groups.total[groups.index] - rollouts.rewards) / np.maximum(groups.size - 1.0, 1.0)[
            groups.index
        ]
        shrink_of = shrink[groups.index]
        baselines = (1.0 - shrink_of) * own + shrink_of * target[groups.index]
        return baselines, {
            "single_fraction": groups.single_fraction,
            "shrinkage": float(shrink_of.mean()),
        }


def _towards_others(
    means: FloatArray, groups: Groups, rewards: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean of the other prompts, and l; shape (P,) each."""
    prompts = len(means)
    if prompts == 1:
        return means, np.zeros(1)
    centre = float(np.median(means))  # squares of deviations keep their digits
    deviations = means - centre
    others = prompts - 1
    mean = exclusive_sums(deviations) / others
    s = np.maximum(exclusive_sums(deviations**2) / others - mean**2, 0.0)
    several = groups.size > 1.0
    of_mean = groups.standard_deviation(rewards) ** 2 / groups.size  # 0 where alone
    counted = several.sum() - several
    v = exclusive_sums(of_mean) / np.maximum(counted, 1)
    spread = v + s
    shrink = np.where(spread > 0.0, v / np.where(spread > 0.0, spread, 1.0), 0.0)
    return centre + mean, shrink * others / prompts
