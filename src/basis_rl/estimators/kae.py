"""KAE: a kernel average of every prompt's rewards over training steps.

Source: arXiv 2604.28005.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, ClassVar

import numpy as np

from basis_rl.batch import LARGEST_COUNT, BoolArray, FloatArray, IntArray, RewardBatch
from basis_rl.errors import ConfigError, StateError, nearest
from basis_rl.estimators.base import State, check_number
from basis_rl.estimators.prompt_states import PromptStates
from basis_rl.estimators.tracking.starts import Start
from basis_rl.estimators.tracking.tracker import Tracker, Visits, saved_integer
from basis_rl.estimators.tracking.visit_history import VisitHistory
from basis_rl.passrates.table import PassRates

CLOCKS = ("visits", "steps")


class Kae(Tracker):
    r"""Nadaraya-Watson estimate at the present time from the prompt's own rewards.

    ``b_i = sum_j K((t - t_j) / w) r_j / sum_j K((t - t_j) / w)`` over the prompt's rewards of
    earlier visits and of its other rollouts in the batch (at ``K(0)``), with the triangular kernel
    ``K(u) = max(0, 1 - |u|)`` and a window w.

    Parameters
    ----------
    pass_rates : PassRates, optional
        The n reference rollouts count as rewards of time 0; ours, the paper has none.
    window : float
        w; 10. The paper keeps the same prompts for J = 8 or 10 steps.
    clock : {"visits", "steps"}
        Unit of t. "visits": the prompt's visits 1, 2, …. "steps": the batch's ``step``, or the
        number of the call; prompts that come once per epoch then need a window of several epochs.
        The paper's time is the step, with the same prompts in each of J steps, where both agree.
    bandwidth : float, optional
        h; makes the window grow, ``w = h t``, as the paper's formula has it. Its value is not
        known to us. `window` is then the number of visits that are kept.
    max_staleness : int
        Versions that a row may lag behind and still be taken in.
    max_unverified : float
        Largest share of NaN rewards accepted.

    Raises
    ------
    ConfigError
        If an option is unknown or out of range.

    Notes
    -----
    No code was published, and the paper was known to us through summaries alone. Any real rewards;
    with 0/1 rewards a baseline is often exactly 0 or 1. A row's own reward is left out exactly.
    Where no reward has weight, the baseline is the mean of the prompt's latest visit, and at a
    prompt's first rollout its start (see `Starts`). Costs are linear in the window. A restart
    needs `state_dict`: ``2 window`` numbers per prompt.

    Source: S. Gong et al., arXiv 2604.28005.
    """

    name: ClassVar[str] = "kae"
    columns: ClassVar[dict[str, float]] = {"start": 0.0, "visits": 0.0}
    neutral: ClassVar[float] = 0.0

    def __init__(
        self,
        pass_rates: PassRates | None = None,
        *,
        window: float = 10.0,
        clock: str = "visits",
        bandwidth: float | None = None,
        max_staleness: int = 0,
        max_unverified: float = 0.1,
    ) -> None:
        super().__init__(pass_rates, max_staleness=max_staleness, max_unverified=max_unverified)
        self.window = check_number("window", window, 1.0, 1000.0)
        if clock not in CLOCKS:
            raise ConfigError(f"clock is {clock!r}{nearest(str(clock), list(CLOCKS))}")
        self.clock = clock
        self.bandwidth = None if bandwidth is None else check_number("bandwidth", bandwidth, 1e-6)
        # A visit that is a whole window old has no weight; one is needed where none has any.
        kept = ceil(self.window) - (self.bandwidth is None)
        self.history = VisitHistory(max(kept, 1), timed=clock == "steps")
        self.now = 0

    def _tick(self, rollouts: RewardBatch, *, estimating: bool) -> None:
        if rollouts.step is not None:
            self.now = rollouts.step
        elif estimating:
            self.now += 1

    def _mean_of(self, start: Start) -> FloatArray:
        # The reference rollouts enter as they are, so 0 of 8 is 0 before the first visit too.
        own = start.total / np.maximum(start.n, 1.0)
        return np.where(start.n > 0, own, super()._mean_of(start))

    def _start(self, rows: IntArray, start: Start) -> None:
        self.states["start"][rows] = start.mean
        self.history.grow(len(self.states))
        zero = np.zeros(len(rows), dtype=np.int64)
        self.history.put(rows, zero, start.total, start.n, time=0)

    def _value(self, rows: IntArray) -> FloatArray:
        nothing = np.zeros(len(rows))
        return self._smooth(rows, nothing, nothing)

    def _predict(
        self, rows: IntArray, rollouts: RewardBatch
    ) -> tuple[FloatArray, dict[str, float]]:
        visits = Visits.of(rows, rollouts.rewards)
        count = visits.count[visits.prompt] - 1.0
        others = visits.total[visits.prompt] - rollouts.rewards  # exactly 0 for one alone
        return self._smooth(rows, others, count), {}

    def _update(self, visits: Visits, rollouts: RewardBatch) -> None:
        number = self.states["visits"]
        number[visits.rows] += 1.0
        visit = number[visits.rows].astype(np.int64)
        self.history.put(visits.rows, visit, visits.total, visits.count, self.now)

    def _smooth(self, rows: IntArray, total: FloatArray, count: FloatArray) -> FloatArray:
        """Kernel average of the past and of ``count`` rewards of now, which sum to ``total``."""
        visits = self.states["visits"][rows].astype(np.int64)
        now = visits + 1.0 if self.clock == "visits" else np.full(len(rows), float(self.now))
        window = self.window if self.bandwidth is None else np.maximum(self.bandwidth * now, 1e-9)
        sums, counts, times = self.history.of(rows, visits)
        age = np.abs(now[:, None] - times)
        kernel = np.maximum(0.0, 1.0 - age / np.reshape(window, (-1, 1)))
        weight = count + (kernel * counts).sum(axis=1)
        weighted = total + (kernel * sums).sum(axis=1)
        empty = weight <= 0.0
        if empty.any():
            latest, of_latest = self._latest(sums[empty], counts[empty], visits[empty])
            weighted[empty] = np.where(of_latest > 0, latest, self.states["start"][rows[empty]])
            weight[empty] = np.where(of_latest > 0, of_latest, 1.0)
        return np.asarray(weighted / weight)

    def _latest(
        self, sums: FloatArray, counts: FloatArray, visits: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Sum and count of the latest visit."""
        column = visits % self.history.kept
        rows = np.arange(len(column))
        return sums[rows, column], counts[rows, column]

    def _possible(self, states: PromptStates) -> BoolArray:
        visits = states["visits"]
        return np.asarray((visits >= 0.0) & (visits <= LARGEST_COUNT))

    def _state(self) -> State:
        history = self.history.to_dict(len(self.states))
        return {**super()._state(), "clock": self.clock, "now": self.now, "history": history}

    def _load(self, state: Mapping[str, Any]) -> None:
        if state["clock"] != self.clock:
            raise StateError(
                f"the saved state counts time in {state['clock']!s:.20}, this run in {self.clock}: "
                "resume with the same clock"
            )
        prompts = len(state["prompts"]["key_sizes"])
        history = self.history.loaded(state["history"], prompts)
        now = saved_integer(state["now"])
        super()._load(state)
        self.history, self.now = history, now
