"""The last few visits of every prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from basis_rl.batch import FloatArray, IntArray
from basis_rl.errors import StateError

# A small count, because there are as many as prompts times visits.
_TYPES: dict[str, Any] = {"total": np.float64, "count": np.uint16, "time": np.int64}
_MOST_ROLLOUTS = 65535.0
Table = npt.NDArray[Any]


class VisitHistory:
    """Sum of rewards, number of rollouts and time of each prompt's last visits.

    Visit number v of a prompt is in column ``v % kept``, over visit ``v - kept``. Of more than
    65,535 rollouts in one visit, the mean is kept.

    Parameters
    ----------
    kept : int
        Visits kept of a prompt.
    timed : bool
        Whether a visit's time is anything but its number.
    """

    def __init__(self, kept: int, *, timed: bool) -> None:
        self.kept = kept
        self._types = {name: _TYPES[name] for name in _TYPES if timed or name != "time"}
        self._tables = {name: np.zeros((64, kept), kind) for name, kind in self._types.items()}

    def grow(self, prompts: int) -> None:
        """Have room for that many prompts; new ones have no visits."""
        size = len(self._tables["total"])
        if prompts <= size:
            return
        more = max(prompts, 2 * size) - size
        for name, table in self._tables.items():
            empty = np.zeros((more, self.kept), dtype=table.dtype)
            self._tables[name] = np.concatenate([table, empty])

    def put(
        self, rows: IntArray, visit: IntArray, total: FloatArray, count: FloatArray, time: int
    ) -> None:
        """Write one visit of each prompt; arrays of shape (U,)."""
        column = visit % self.kept
        stored = np.minimum(count, _MOST_ROLLOUTS)
        share = np.where(count > stored, stored / np.maximum(count, 1.0), 1.0)
        self._tables["total"][rows, column] = total * share
        self._tables["count"][rows, column] = stored
        if "time" in self._tables:
            self._tables["time"][rows, column] = time

    def of(self, rows: IntArray, latest: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Sums, counts (0 where there is no visit) and times; shape (B, kept) each.

        Parameters
        ----------
        rows : int array, shape (B,)
        latest : int array, shape (B,)
            Number of each prompt's latest visit.
        """
        total = self._tables["total"][rows]
        count = self._tables["count"][rows].astype(np.float64)
        if "time" in self._tables:
            return total, count, self._tables["time"][rows].astype(np.float64)
        number = latest[:, None]
        return total, count, (number - (number - np.arange(self.kept)) % self.kept) * 1.0

    def to_dict(self, prompts: int) -> dict[str, Any]:
        """Arrays, for `state_dict`."""
        return {name: table[:prompts].copy() for name, table in self._tables.items()}

    def loaded(self, saved: Mapping[str, Any], prompts: int) -> VisitHistory:
        """History of the same form from what `to_dict` gave.

        Raises
        ------
        StateError
            If a table has another shape or type, or a number that is not finite.
        """
        history = VisitHistory(self.kept, timed="time" in self._tables)
        for name, kind in self._types.items():
            table = np.array(saved[name])
            if table.shape != (prompts, self.kept):
                raise StateError(
                    f"the saved visits have shape {table.shape} for {prompts} prompts and a window "
                    f"of {self.kept} earlier visits: resume with the same window"
                )
            if table.dtype != kind or not np.isfinite(table).all():
                raise StateError(
                    f"the saved {name!r} of visits are {table.dtype} numbers, or not all finite: "
                    "resume from an earlier checkpoint"
                )
            history._tables[name] = table if prompts else history._tables[name]
        return history
