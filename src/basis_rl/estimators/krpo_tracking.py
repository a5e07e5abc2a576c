"""A Kalman filter that follows every prompt's mean reward across steps."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from basis_rl.batch import BoolArray, FloatArray, IntArray, RewardBatch
from basis_rl.estimators.base import check_number
from basis_rl.estimators.prompt_states import PromptStates
from basis_rl.estimators.tracking.starts import Start
from basis_rl.estimators.tracking.tracker import Tracker, Visits
from basis_rl.passrates.table import PassRates


class KrpoTracking(Tracker):
    r"""KRPO's filter carried from step to step, for one rollout per prompt; not published.

    Every visit of a prompt is ``P <- P + Q``. The baseline of a row is the filter's mean after the
    prompt's m - 1 other rollouts of the batch,
    ``b_i = x + P sum_{j != i} (r_j - x) / (R + (m - 1) P)``: with one rollout, the mean before it.
    Then all m are taken in, ``x <- x + P sum_j (r_j - x) / (R + m P)``, ``P <- P R / (R + m P)``.

    Parameters
    ----------
    pass_rates : PassRates, optional
        x starts at the prompt's pass rate (see `Starts`) and P at ``R / (n + 1)``.
    process_variance, measurement_variance : float
        Q = 2.5e-4 and R = 0.25: the largest variance of a 0/1 reward, and the ratio that KRPO
        published (1e-5 and 1e-2). The baselines depend on the variances' ratios alone.
    start_variance : float
        P of a prompt outside the table, whose x starts from the mean of other prompts (see
        `Starts`). 1, as in `Krpo`.
    max_staleness : int
        Versions that a row may lag behind and still be taken in.
    max_unverified : float
        Largest share of NaN rewards accepted.

    Raises
    ------
    ConfigError
        If an option is out of range.

    Notes
    -----
    Any real rewards. A row's own reward is left out exactly. A restart needs `state_dict`: two
    numbers per prompt. The advantages are not divided by ``sqrt(P)``.

    The published method, `Krpo`, starts anew in every group.
    """

    name: ClassVar[str] = "krpo-tracking"
    columns: ClassVar[dict[str, float]] = {"mean": 0.0, "variance": 1.0}
    neutral: ClassVar[float] = 0.0

    def __init__(
        self,
        pass_rates: PassRates | None = None,
        *,
        process_variance: float = 2.5e-4,
        measurement_variance: float = 0.25,
        start_variance: float = 1.0,
        max_staleness: int = 0,
        max_unverified: float = 0.1,
    ) -> None:
        super().__init__(pass_rates, max_staleness=max_staleness, max_unverified=max_unverified)
        self.process_variance = check_number("process_variance", process_variance, 0.0, 1e100)
        self.measurement_variance = check_number(
            "measurement_variance", measurement_variance, 1e-12, 1e100
        )
        self.start_variance = check_number("start_variance", start_variance, 0.0, 1e100)

    def _start(self, rows: IntArray, start: Start) -> None:
        known = self.measurement_variance / (start.n + 1.0)
        self.states["mean"][rows] = start.mean
        self.states["variance"][rows] = np.where(start.n > 0, known, self.start_variance)

    def _value(self, rows: IntArray) -> FloatArray:
        return self.states["mean"][rows]

    def _predict(
        self, rows: IntArray, rollouts: RewardBatch
    ) -> tuple[FloatArray, dict[str, float]]:
        x = self.states["mean"][rows]
        P = self.states["variance"][rows] + self.process_variance
        surprise = rollouts.rewards - x
        visits = Visits.of(rows, surprise)
        others = visits.total[visits.prompt] - surprise  # exactly 0 for one alone
        count = visits.count[visits.prompt] - 1.0
        return x + P * others / (self.measurement_variance + count * P), {}

    def _update(self, visits: Visits, rollouts: RewardBatch) -> None:
        R = self.measurement_variance
        x = self.states["mean"][visits.rows]
        P = self.states["variance"][visits.rows] + self.process_variance
        gain = P / (R + visits.count * P)
        self.states["mean"][visits.rows] = x + gain * (visits.total - visits.count * x)
        self.states["variance"][visits.rows] = gain * R

    def _possible(self, states: PromptStates) -> BoolArray:
        return np.asarray(states["variance"] >= 0.0)
