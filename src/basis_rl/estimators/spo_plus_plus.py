"""SPO++: SPO's Beta distribution, with evidence placed at the policy that produced it.

Source: arXiv 2608.24870.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from basis_rl.batch import BoolArray, FloatArray, IntArray, RewardBatch, sum_by
from basis_rl.errors import ConfigError, StateError, nearest
from basis_rl.estimators.base import State, check_number
from basis_rl.estimators.tracking.beta_tracker import BetaTracker
from basis_rl.estimators.tracking.starts import Start
from basis_rl.estimators.tracking.tracker import Visits, saved_integer
from basis_rl.passrates.table import PassRates

CLOCKS = ("versions", "visits")


class SpoPlusPlus(BetaTracker):
    r"""Event-time prompt memory, ``b_i = v = a / (a + b)``.

    ``a = rho^(t - t_0) a_0 + sum_j rho^(t - t_j) r_j``, b likewise with ``1 - r_j`` (Eq. 3, where
    ``z = -t log rho``); t counts policies, and t_j is the one that sampled rollout j, whatever the
    order in which rollouts arrive.

    Parameters
    ----------
    pass_rates : PassRates, optional
        As in `Spo`: ``a_0 = N (S + 1/2) / (n + 1)``, b_0 = N - a_0, at t_0.
    rho : float
        0.875 per event.
    clock : {"versions", "visits"}
        What an event is. "versions", as published: a new policy. A row's time is its
        ``row_versions``, else the batch's ``policy_version``, else its ``step``, else the number
        of the call; do not change between them during a run. "visits": a visit of the prompt,
        which is the same where every batch holds every prompt, as in the paper's ALFWorld runs;
        with many batches per epoch, "versions" forgets nearly all between two visits.
    prior_rollouts : float
        N, 8.
    unseen_rollouts : float
        Weight of the start of a prompt outside the table (see `Starts`), at its first visit; ours.
    max_unverified : float
        Largest share of NaN rewards accepted.

    Raises
    ------
    ConfigError, BatchError
        As in `Spo`.

    Notes
    -----
    No code was published. Equation 3 is kept as two sums at the time of the prompt's newest
    evidence, which is the same to rounding: newer evidence shrinks them, older (stale) evidence is
    added shrunk. Forgetting between visits shrinks a and b alike, so v needs none. t_0 is the time
    of the first row ever seen.

    The paper reads v when a request is sent, one request per prompt at a time; reading it when the
    reward arrives is then the same. A row's own reward and those of the prompt's other rollouts
    in the batch are left out. Stale rows are used, at their own time. The paper's token-weighted
    normalisation is a step of its own here (`basis_rl.normalize`). A restart needs `state_dict`:
    three numbers per prompt and the time.

    Source: K. Ruan et al., arXiv 2608.24870.
    """

    name: ClassVar[str] = "spo-plus-plus"
    columns: ClassVar[dict[str, float]] = {**BetaTracker.columns, "time": 0.0}

    def __init__(
        self,
        pass_rates: PassRates | None = None,
        *,
        rho: float = 0.875,
        clock: str = "versions",
        prior_rollouts: float = 8.0,
        unseen_rollouts: float = 1.0,
        max_unverified: float = 0.1,
    ) -> None:
        super().__init__(
            pass_rates,
            prior_rollouts=prior_rollouts,
            unseen_rollouts=unseen_rollouts,
            max_staleness=0,
            max_unverified=max_unverified,
        )
        self.rho = check_number("rho", rho, 0.0, 1.0)
        if clock not in CLOCKS:
            raise ConfigError(f"clock is {clock!r}{nearest(str(clock), list(CLOCKS))}")
        self.clock = clock
        self.first: int | None = None  # t_0
        self.now = 0

    def _tick(self, rollouts: RewardBatch, *, estimating: bool) -> None:
        if rollouts.policy_version is not None:
            self.now = rollouts.policy_version
        elif rollouts.row_versions is not None:
            self.now = max(self.now, int(rollouts.row_versions.max()))
        elif rollouts.step is not None:
            self.now = rollouts.step
        elif estimating:
            self.now += 1
        if self.first is None:
            self.first = int(self._times(rollouts).min())

    def _times(self, rollouts: RewardBatch) -> FloatArray:
        if rollouts.row_versions is not None:
            return rollouts.row_versions.astype(np.float64)
        return np.full(len(rollouts), float(self.now))

    def _start(self, rows: IntArray, start: Start) -> None:
        super()._start(rows, start)
        if self.clock == "versions":
            first = float(self.first or 0)
            self.states["time"][rows] = np.where(start.n > 0, first, float(self.now))

    def _update(self, visits: Visits, rollouts: RewardBatch) -> None:
        a, b, time = (self.states[name] for name in self.columns)
        before = time[visits.rows]
        if self.clock == "visits":
            after, success, failure = before + 1.0, visits.total, visits.count - visits.total
        else:
            at = self._times(rollouts)
            after = before.copy()
            np.maximum.at(after, visits.prompt, at)
            weight = self._power(after[visits.prompt] - at)
            size = len(visits.rows)
            success = sum_by(visits.prompt, weight * rollouts.rewards, size)
            failure = sum_by(visits.prompt, weight * (1.0 - rollouts.rewards), size)
        kept = self._power(after - before)
        a[visits.rows] = kept * a[visits.rows] + success
        b[visits.rows] = kept * b[visits.rows] + failure
        time[visits.rows] = after

    def _power(self, events: FloatArray) -> FloatArray:
        """``rho^events``; under-runs to 0."""
        with np.errstate(under="ignore"):
            return np.asarray(np.power(self.rho, events))

    def _fresh(self, rollouts: RewardBatch) -> BoolArray | None:
        return None

    def _state(self) -> State:
        return {**super()._state(), "clock": self.clock, "first": self.first, "now": self.now}

    def _load(self, state: Mapping[str, Any]) -> None:
        if state["clock"] != self.clock:
            raise StateError(
                f"the saved state counts {state['clock']}, this run {self.clock}: resume with the "
                "same clock"
            )
        now, first = saved_integer(state["now"]), state["first"]
        first = None if first is None else saved_integer(first)
        super()._load(state)
        self.first, self.now = first, now
