"""Fig. 3 c and d, and Fig. 4: MSE by the prompt's value, and baselines of exactly 0 or 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from basis_rl.batch import BoolArray, FloatArray, IntArray
from basis_rl.lab.figures.draws import Draws, mean_where
from basis_rl.lab.figures.numbers import interval

EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True)
class DifficultyBin:
    """One estimator on the prompts of one bin of values.

    Attributes
    ----------
    rows : int
        Drawn prompts, counted as often as they were drawn; bins by the whole oracle.
    prompts : int
        The same, each counted once.
    mse, low, high : float
        A prompt is put in its bin by one half of the oracle's rollouts and measured against the
        other half, whose sampling variance is taken off, and the other way round: with one oracle
        for both, its noise would sort the prompts.
    mse_uncorrected : float
        The paper's definition: the whole oracle for both, its variance left in.
    mse_between : float
        As `mse`, on the prompts whose reference pass rate is neither 0 nor 1.
    frequency : float
        How often a baseline is exactly 0 or 1; bins by the whole oracle.
    frequency_0, frequency_1 : float
    """

    stage: str
    estimator: str
    label: str
    rollouts: int
    bin: int
    bin_low: float
    bin_high: float
    rows: int
    prompts: int
    mse: float
    low: float
    high: float
    mse_uncorrected: float
    mse_between: float
    frequency: float
    frequency_0: float
    frequency_1: float


def difficulty(draws: Draws) -> list[DifficultyBin]:
    """Fig. 3 c, d and Fig. 4 of one stage."""
    stage = draws.stage
    crossed = [(stage.oracle, stage.oracle, stage.oracle_variance)]
    if stage.halves is not None and stage.halves_variance is not None:
        crossed = [(stage.halves[1 - h], stage.halves[h], stage.halves_variance[h]) for h in (0, 1)]
    binned = [_bins(by[draws.rows]) for by, _, _ in crossed]
    corrected = [
        draws.squared_errors(values) - variance[draws.rows] for _, values, variance in crossed
    ]
    whole, raw = _bins(stage.oracle[draws.rows]), draws.squared_errors(stage.oracle)
    rows = []
    for e, c in enumerate(draws.compared):
        for b in range(len(EDGES) - 1):
            inside = whole == b
            own = [errors[e] for errors in corrected]
            mse = _crossed_mean(draws, own, [bins == b for bins in binned])
            between = _crossed_mean(draws, own, [(bins == b) & draws.between for bins in binned])
            rows.append(
                DifficultyBin(
                    stage.name,
                    c.name,
                    c.label,
                    c.rollouts,
                    b + 1,
                    EDGES[b],
                    EDGES[b + 1],
                    int(inside.sum()),
                    len(np.unique(draws.rows[inside])),
                    *mse,
                    mean_where(raw[e], inside),
                    between[0],
                    mean_where(draws.zeros[e] + draws.ones[e], inside),
                    mean_where(draws.zeros[e], inside),
                    mean_where(draws.ones[e], inside),
                )
            )
    return rows


def _bins(values: FloatArray) -> IntArray:
    return np.clip(np.searchsorted(EDGES, values, side="right") - 1, 0, len(EDGES) - 2)


def _crossed_mean(
    draws: Draws, errors: list[FloatArray], inside: list[BoolArray]
) -> tuple[float, float, float]:
    """Mean of the errors in a bin over both halves, and its 95% interval."""
    picked = np.concatenate([e[i] for e, i in zip(errors, inside, strict=True)])
    if not len(picked):
        return (float("nan"),) * 3
    prompts = np.concatenate([draws.rows[i] for i in inside])
    return interval(picked, prompts, np.concatenate([draws.batch_of[i] for i in inside]))
