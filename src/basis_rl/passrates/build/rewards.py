"""Warnings where all rewards of a build are the same: most often something is set up wrongly."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from basis_rl.batch import IntArray
from basis_rl.passrates.build.record import JUDGED, Record

_ENOUGH = 16  # completions; fewer may well have one reward by chance
_EARLY = 200
_SHOWN = 60


class RewardWarnings:
    """Looks at the rewards once early, and at the end.

    Parameters
    ----------
    record : Record
    rows : int64 array
        Prompts of the build.

    Attributes
    ----------
    first_text : str
        A completion to show.
    """

    def __init__(self, record: Record, rows: IntArray) -> None:
        self._record, self._rows = record, rows
        self._looked = False
        self.first_text = ""

    def early(self) -> None:
        """Warn, once, if none of the first 200 completions was right."""
        if self._looked or self._record.judged < _EARLY:
            return
        self._looked = True
        rewards = self._given()
        if len(rewards) and not rewards.any():
            self._warn(f"none of the first {len(rewards)} completions was right", _WRONG)

    def at_end(self) -> None:
        """Warn if no completion was right, or every one."""
        rewards = self._given()
        if len(rewards) < _ENOUGH:
            return
        if not rewards.any():
            self._warn("no completion was right", _WRONG)
        elif (rewards == 1.0).all():
            self._warn("every completion was right", _RIGHT)

    def _given(self) -> np.ndarray[Any, Any]:
        rewards = self._record.rewards[self._rows]
        judged = self._record.status[self._rows] == JUDGED
        given: np.ndarray[Any, Any] = rewards[judged & ~np.isnan(rewards)]
        return given

    def _warn(self, what: str, check: str) -> None:
        end = self.first_text[-_SHOWN:]
        dots = "…" if len(self.first_text) > _SHOWN else ""
        first = f" (first completion: {dots + end!r})" if end else ""
        warnings.warn(f"{what}: check {check}{first}", stacklevel=2)


_WRONG = "the template, the answer column and the verifier"
_RIGHT = "the answer column and the verifier"
