"""Distinct pass rates of a table, and each prompt's place among them.

With 0/1 rewards a row enters every sum of the paper through its pair (pass rate, reward) only, so
a batch is counted once into ``2 L`` cells, L the number of distinct pass rates (n + 1 for one n).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from basis_rl.batch import FloatArray, IntArray, sum_by

# Beyond this many the calibration sees the pass rates on a grid of logits instead.
MOST_EXACT_LEVELS = 1100
GRID_LEVELS = 128


@dataclass(frozen=True)
class Levels:
    """Logits of the distinct pass rates, and where each prompt lies.

    Attributes
    ----------
    logits : array, shape (L,), increasing
    lower : int array, shape (P,)
        Level at or just below the prompt.
    fraction : array, shape (P,), or None
        How far towards the next level; None where every prompt is exactly on its level.
    """

    logits: FloatArray
    lower: IntArray
    fraction: FloatArray | None

    @classmethod
    def of(
        cls,
        logits: FloatArray,
        *,
        most_exact: int = MOST_EXACT_LEVELS,
        grid: int = GRID_LEVELS,
    ) -> Levels:
        """Levels of the prompts' logits, shape (P,): exact if few are distinct, else a grid."""
        distinct, index = np.unique(logits, return_inverse=True)
        if len(distinct) <= most_exact:
            return cls(distinct, index.astype(np.int64), None)
        finite = np.isfinite(distinct)
        inner = np.linspace(distinct[finite][0], distinct[finite][-1], grid)
        # The infinite ends (pass rate 0 and 1) are no neighbours of the grid: kept as they are.
        below, above = distinct[np.isneginf(distinct)], distinct[np.isposinf(distinct)]
        place = np.interp(logits, inner, np.arange(grid, dtype=np.float64)) + len(below)
        place[np.isneginf(logits)] = 0
        place[np.isposinf(logits)] = grid + len(below)
        lower = np.floor(place).astype(np.int64)
        return cls(np.concatenate([below, inner, above]), lower, place - lower)

    def count(self, rows: IntArray, codes: IntArray) -> tuple[FloatArray, FloatArray]:
        """Rows at each level with reward 0 and with reward 1; shape (L,) each.

        A row between two levels counts at both, in proportion.

        Parameters
        ----------
        rows : int array, shape (B,)
            Prompt of each row.
        codes : int array, shape (B,)
            `pair_codes` of the prompts' lower levels and the rewards.
        """
        size = 2 * len(self.logits)
        if self.fraction is None:
            counts = np.bincount(codes, minlength=size).astype(np.float64)
        else:
            part = self.fraction[rows]
            counts = sum_by(codes, 1.0 - part, size + 2)
            counts += sum_by(codes + 2, part, size + 2)
        return counts[0:size:2], counts[1:size:2]


def pair_codes(levels: IntArray, rewards: npt.NDArray[np.generic]) -> IntArray:
    """``2 level + reward``: the cell of each row; rewards are 0 or 1."""
    codes = levels * 2
    codes += rewards.astype(np.int64)
    return codes
