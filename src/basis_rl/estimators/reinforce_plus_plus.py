"""REINFORCE++ as it is trained: token-weighted whitening over the batch."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from basis_rl.batch import FloatArray, RewardBatch
from basis_rl.errors import ConfigError
from basis_rl.estimators.base import ScaledEstimator, check_share
from basis_rl.estimators.groups import Groups
from basis_rl.whitening import WHITENING_EPSILON, weighted_moments

Whitening = Literal["verl", "openrlhf"]


class ReinforcePlusPlus(ScaledEstimator):
    """Rewards whitened by tokens, ``A_i = (r_i - m) / sqrt(var + 1e-8)``.

    ``m = sum L_j r_j / sum L_j`` over the batch's rollouts with their lengths L, the row's own
    included, and ``var = sum L_j (r_j - m)^2 / (sum L_j - 1)``. A long completion weighs more
    than a short one. `BatchMean` ("batch-mean") is the other meaning of the name: the plain mean
    over prompts, which papers compare as REINFORCE++'s *value estimate*; it weighs every rollout
    alike and does not divide.

    Parameters
    ----------
    std : bool
        Divide by the standard deviation; False is OpenRLHF's `no_std_norm`.
    group_baseline : bool
        First take the prompt's mean reward off ("REINFORCE++-baseline"), then whiten: the baseline
        is the group's mean plus the token-weighted mean of what is left.
    whitening : {"verl", "openrlhf"}
        "verl": variance with the number of tokens minus 1, ``1 / sqrt(var + 1e-8)``. "openrlhf":
        variance with the number of tokens, ``1 / sqrt(max(var, 1e-8))``.

    Raises
    ------
    ConfigError
        If the whitening is unknown.
    BatchError
        In `estimate`: if the batch has no lengths; with ``group_baseline``, if no prompt has a
        second rollout.

    Notes
    -----
    Any number of rollouts per prompt; one without, two or more with ``group_baseline``. Equal
    rewards give advantage 0; verl's are up to 1e-4 r / (number of tokens) then, since it adds 1e-8
    to the number of tokens. With ``group_baseline`` a prompt's lone rollout gives 0 into the
    whitening; verl gives it the raw reward, and OpenRLHF asks for two per prompt. Both codes
    work on tokens and so allow a KL penalty in the reward and a discount; this is gamma = 1 and a
    reward of the whole completion. There is no state: a restart does nothing.

    Source: J. Hu et al., REINFORCE++, arXiv 2501.03262; verl 0.9.1
    `compute_reinforce_plus_plus_outcome_advantage` (and `_baseline`), OpenRLHF
    `experience_maker.py`, estimators "reinforce" and "reinforce_baseline".
    """

    name: ClassVar[str] = "reinforce-plus-plus"
    needed_columns: ClassVar[tuple[str, ...]] = ("lengths",)

    def __init__(
        self,
        *,
        std: bool = True,
        group_baseline: bool = False,
        whitening: Whitening = "verl",
        max_unverified: float = 0.1,
    ) -> None:
        if whitening not in ("verl", "openrlhf"):
            raise ConfigError(f"whitening is {whitening!r}: use 'verl' or 'openrlhf'")
        self.std = std
        self.group_baseline = group_baseline
        if group_baseline:
            self.min_rollouts = 2  # type: ignore[misc]
        self.whitening = whitening
        self.max_unverified = check_share("max_unverified", max_unverified)

    def _scaled_baselines(
        self, rollouts: RewardBatch
    ) -> tuple[FloatArray, FloatArray | None, dict[str, float]]:
        groups, metrics = self._group_means(rollouts), {}
        mean, variance = self._moments(rollouts, groups)
        if self.group_baseline:
            metrics["group_mean"] = float(groups.mean())
        scale = None
        if self.std:
            if self.whitening == "verl":
                variance += WHITENING_EPSILON
            scale = np.full(len(rollouts), max(variance, WHITENING_EPSILON) ** -0.5)
        return groups + mean, scale, metrics

    def _group_means(self, rollouts: RewardBatch) -> FloatArray:
        """What is taken off before the whitening; 0 without a group baseline."""
        if not self.group_baseline:
            return np.zeros(len(rollouts))
        groups = Groups.of(rollouts, f"{self.name} with group_baseline")
        return (groups.total / groups.size)[groups.index]

    def _moments(self, rollouts: RewardBatch, centres: FloatArray) -> tuple[float, float]:
        assert rollouts.lengths is not None  # needed_columns
        return weighted_moments(
            rollouts.rewards - centres, rollouts.lengths, unbiased=self.whitening == "verl"
        )
