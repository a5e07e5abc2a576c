"""Critic: values of a trained value model."""

from __future__ import annotations

from typing import ClassVar

from basis_rl.batch import FloatArray, RewardBatch
from basis_rl.estimators.base import Estimator, check_share


class Critic(Estimator):
    """The critic's value of the prompt, ``b_i = V(x_i)``, from ``values`` in the batch.

    PPO's advantage of the whole completion with gamma = lam = 1, at its first token: the trainer
    trains the critic and gives its values. `gae.gae` makes token-level advantages of token-level
    values.

    Raises
    ------
    BatchError
        In `estimate`: if the batch has no values.

    Notes
    -----
    Any number of rollouts per prompt. Nothing is whitened (`normalize_advantages` is that step).
    Of a rollout of several rows the first row's value counts. No options. No state: the critic's
    is the trainer's to save.

    Source: J. Schulman et al., PPO, arXiv 1707.06347, and GAE, arXiv 1506.02438; Z. Hou et al.,
    SAO, arXiv 2607.07508, trains this with one rollout per prompt, without code published.
    """

    name: ClassVar[str] = "critic"
    needed_columns: ClassVar[tuple[str, ...]] = ("values",)

    def __init__(self, *, max_unverified: float = 0.1) -> None:
        self.max_unverified = check_share("max_unverified", max_unverified)

    def _baselines(self, rollouts: RewardBatch) -> tuple[FloatArray, dict[str, float]]:
        assert rollouts.values is not None  # needed_columns
        return rollouts.values, {}
