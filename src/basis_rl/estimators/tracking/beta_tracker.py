"""What SPO and SPO++ share: a Beta distribution of every prompt's pass rate."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from basis_rl.batch import BoolArray, FloatArray, IntArray, RewardBatch
from basis_rl.errors import BatchError, ConfigError
from basis_rl.estimators.base import check_number
from basis_rl.estimators.prompt_states import PromptStates
from basis_rl.estimators.tracking.starts import Start
from basis_rl.estimators.tracking.tracker import Tracker
from basis_rl.passrates.table import PassRates


class BetaTracker(Tracker):
    """A tracker whose value is ``a / (a + b)``, successes and failures with some forgetting."""

    columns: ClassVar[dict[str, float]] = {"successes": 0.5, "failures": 0.5}

    def __init__(
        self,
        pass_rates: PassRates | None,
        *,
        prior_rollouts: float,
        unseen_rollouts: float,
        max_staleness: int,
        max_unverified: float,
    ) -> None:
        super().__init__(pass_rates, max_staleness=max_staleness, max_unverified=max_unverified)
        check_table_in_unit_interval(pass_rates, self.name)
        self.prior_rollouts = check_number("prior_rollouts", prior_rollouts, 1e-3, 1e9)
        self.unseen_rollouts = check_number("unseen_rollouts", unseen_rollouts, 1e-3, 1e9)

    def _check(self, rollouts: RewardBatch) -> None:
        check_unit_interval(rollouts, self.name)

    def _start(self, rows: IntArray, start: Start) -> None:
        weight = np.where(start.n > 0, self.prior_rollouts, self.unseen_rollouts)
        mean = np.clip(start.mean, 0.0, 1.0)  # sums of rewards may round to more than their number
        self.states["successes"][rows] = weight * mean
        self.states["failures"][rows] = weight * (1.0 - mean)

    def _value(self, rows: IntArray) -> FloatArray:
        a, b = self.states["successes"][rows], self.states["failures"][rows]
        return np.asarray(a / (a + b))

    def _possible(self, states: PromptStates) -> BoolArray:
        a, b = states["successes"], states["failures"]
        return np.asarray((a >= 0.0) & (b >= 0.0) & (a + b > 0.0))


def check_unit_interval(rollouts: RewardBatch, estimator: str) -> None:
    """Refuse rewards outside 0 to 1.

    Raises
    ------
    BatchError
    """
    rewards = rollouts.rewards
    inside = (rewards >= 0.0) & (rewards <= 1.0)
    if not inside.all():
        row = int(inside.argmin())
        raise BatchError(
            f"the reward {float(rewards[row])} of prompt {rollouts.keys[row]!r} is outside 0 to 1, "
            f"where {estimator!r} has no Beta distribution: scale the rewards to 0..1, or use "
            "'kae', 'krpo-tracking' or 'basis-online'"
        )


def check_table_in_unit_interval(pass_rates: PassRates | None, estimator: str) -> None:
    """Refuse a table with stored rewards outside 0 to 1.

    Raises
    ------
    ConfigError
    """
    if pass_rates is None or pass_rates.reward_values is None:
        return
    low, high = float(pass_rates.reward_values.min()), float(pass_rates.reward_values.max())
    if low < 0.0 or high > 1.0:
        raise ConfigError(
            f"the table's rewards reach from {low:g} to {high:g}, and {estimator!r} needs 0 to 1: "
            "scale the rewards, or use 'kae', 'krpo-tracking' or 'basis-online'"
        )
