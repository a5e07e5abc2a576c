"""Fig. 3 b: MSE by the spread of the values in a batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from basis_rl.batch import FloatArray
from basis_rl.lab.figures.draws import Draws, mean_where
from basis_rl.lab.figures.numbers import interval

BINS = 5


@dataclass(frozen=True)
class HeterogeneityBin:
    """MSE of one estimator in the batches of one bin.

    Attributes
    ----------
    bin_low, bin_high : float
        Edges: five equal bins from the least to the greatest standard deviation seen.
    batches : int
    heterogeneity : float
        Mean standard deviation of the prompts' values in these batches.
    mse, low, high : float
        Oracle's sampling variance taken off; NaN in an empty bin.
    mse_uncorrected : float
    mse_between : float
        As `mse`, on the prompts whose reference pass rate is neither 0 nor 1.
    """

    stage: str
    estimator: str
    label: str
    rollouts: int
    bin: int
    bin_low: float
    bin_high: float
    batches: int
    heterogeneity: float
    mse: float
    low: float
    high: float
    mse_uncorrected: float
    mse_between: float


def scores(draws: Draws) -> FloatArray:
    """Heterogeneity of each batch: standard deviation of its oracle values, shape (N,)."""
    # Sorted, so that batches of the same prompts are alike to the last bit.
    return np.asarray(np.sort(draws.stage.oracle[draws.rows], axis=1).std(axis=1))


def heterogeneity(draws: Draws) -> list[HeterogeneityBin]:
    """Fig. 3 b of one stage."""
    score = scores(draws)
    edges = np.linspace(score.min(), score.max(), BINS + 1)
    place = np.clip(np.searchsorted(edges, score, side="right") - 1, 0, BINS - 1)
    corrected, raw = draws.errors(), draws.squared_errors(draws.stage.oracle)
    rows = []
    for e, c in enumerate(draws.compared):
        for b in range(BINS):
            inside = place == b
            mse = (float("nan"),) * 3
            if inside.any():
                mse = interval(corrected[e][inside], draws.rows[inside], draws.batch_of[inside])
            rows.append(
                HeterogeneityBin(
                    draws.stage.name,
                    c.name,
                    c.label,
                    c.rollouts,
                    b + 1,
                    float(edges[b]),
                    float(edges[b + 1]),
                    int(inside.sum()),
                    mean_where(score, inside),
                    *mse,
                    mean_where(raw[e], inside),
                    mean_where(corrected[e], inside[:, None] & draws.between),
                )
            )
    return rows
