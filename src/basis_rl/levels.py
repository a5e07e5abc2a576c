"""Distinct pass rates of a table, and each prompt's place among them.

With 0/1 rewards a row enters every sum of the paper through its pair (pass rate, reward) only, so
a batch is counted once into ``2 L`` cells, L the number of distinct pass rates (n + 1 for one n).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from basis_rl.batch import FloatArray, IntArray

# Beyond this many the calibration sees the pass rates on a grid of logits instead.
MOST_EXACT_LEVELS = 1100
GRID_LEVELS = 128


@dataclass(frozen=True)
class Levels:
    """Logits of the distinct pass rates, and where each prompt lies.

    Attributes
    ----------
    logits : array, shape (L,), increasing
    nearest : int array, shape (P,)
        Level of each prompt.
    exact : bool
        Whether every prompt is on its level; otherwise up to half a step of a grid away.
    """

    logits: FloatArray
    nearest: IntArray
    exact: bool

    @classmethod
    def of(
        cls, logits: FloatArray, *, most_exact: int | None = None, grid: int = GRID_LEVELS
    ) -> Levels:
        """Levels of the prompts' logits, shape (P,): exact if few are distinct, else a grid."""
        distinct, index = np.unique(logits, return_inverse=True)
        finite = distinct[np.isfinite(distinct)]
        most_exact = MOST_EXACT_LEVELS if most_exact is None else most_exact
        if len(distinct) <= most_exact or len(finite) < 2:
            return cls(distinct, index.astype(np.int64), True)
        inner = np.linspace(finite[0], finite[-1], grid)
        # The infinite ends (pass rate 0 and 1) are no neighbours of the grid: kept as they are.
        below, above = distinct[np.isneginf(distinct)], distinct[np.isposinf(distinct)]
        place = np.interp(logits, inner, np.arange(grid, dtype=np.float64))
        nearest = np.rint(place).astype(np.int64) + len(below)
        nearest[np.isneginf(logits)] = 0
        nearest[np.isposinf(logits)] = grid + len(below)
        return cls(np.concatenate([below, inner, above]), nearest, False)

    def count(self, codes: IntArray) -> tuple[FloatArray, FloatArray]:
        """Rows at each level with reward 0 and with reward 1, from `pair_codes`; shape (L,)."""
        counts = np.bincount(codes, minlength=2 * len(self.logits)).astype(np.float64)
        return counts[0::2], counts[1::2]


def pair_codes(levels: IntArray, rewards: npt.NDArray[np.generic]) -> IntArray:
    """``2 level + reward``: the cell of each row; rewards are 0 or 1."""
    codes = levels * 2
    codes += rewards.astype(np.int64)
    return codes
