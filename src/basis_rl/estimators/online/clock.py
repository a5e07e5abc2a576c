"""Which step a batch belongs to, and at which step its rows were sampled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from basis_rl.batch import FloatArray, RewardBatch

MOST_STEPS = 2**53  # more are no floats of their own


class Clock:
    """Steps since the first batch; batches with the same ``step`` are at the same time."""

    def __init__(self) -> None:
        self.now = 0
        self.step: int | None = None
        self.started = False

    def advance(self, batch: RewardBatch) -> int:
        """Move to the batch's step; how many steps that was, 0 within one.

        Without a step, or where the trainer counts anew, each batch is one step more. The first
        batch is at 0, whatever its step: it is the reference policy's as far as anybody knows.
        """
        steps = int(self.started)
        if batch.step is not None and self.step is not None and batch.step >= self.step:
            steps = batch.step - self.step
        self.now = min(self.now + steps, MOST_STEPS)
        self.step, self.started = batch.step, True
        return steps

    def times(self, batch: RewardBatch) -> FloatArray:
        """Step at which each row was sampled, shape (B,): one policy version is one step."""
        now = float(self.now)
        if batch.row_versions is None:
            return np.full(len(batch), now)
        newest = batch.policy_version
        if newest is None:
            newest = int(batch.row_versions.max())
        return now - np.maximum(newest - batch.row_versions, 0).astype(np.float64)

    def state(self) -> dict[str, Any]:
        """What a restart needs."""
        return {"now": self.now, "step": self.step, "started": self.started}

    def load(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state`."""
        now, step, started = state["now"], state["step"], state["started"]
        if not (_is_step(now) and (step is None or _is_step(step)) and isinstance(started, bool)):
            raise ValueError(f"the clock is at {now!r}, step {step!r}, started {started!r}")
        self.now, self.step, self.started = now, step, started


def _is_step(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= MOST_STEPS
