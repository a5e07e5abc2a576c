"""How much noise each baseline leaves in the gradient, with its uncertainty."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from basis_rl.batch import FloatArray, IntArray

DRAWS = 1000
FEW_STEPS = 32  # with more, what the prompts of one step have in common averages out
_CHUNK = 4096  # prompts or rows


@dataclass(frozen=True)
class Shown:
    r"""Noise of each baseline at each rollout that was shown to the estimators.

    The noise of one rollout's part of the gradient grows with ``E (r - b)^2 = Var(r) + (b - V)^2``,
    r being a reward that the baseline b does not know, and V the prompt's value: the first term is
    the same whatever the baseline, the second is its squared error.

    Attributes
    ----------
    names : list of str, length E
        Contenders.
    noise : float64 array, shape (E, N)
        Unbiased estimate of ``E (r - b)^2`` for each row.
    prompt, step, visit : int arrays, shape (N,)
        Prompt of each row, training step, and which visit of the prompt it is, from 0.
    within : float
        Mean of Var(r) over the rows; NaN if the record does not tell.
    """

    names: list[str]
    noise: FloatArray
    prompt: IntArray
    step: IntArray
    visit: IntArray
    within: float

    @cached_property
    def means(self) -> FloatArray:
        """Noise of each contender, shape (E,)."""
        return np.asarray(self.noise.mean(axis=1))

    @cached_property
    def drawn(self) -> FloatArray:
        """Noise of each contender had other prompts been drawn, shape (draws, E).

        A prompt's rows are kept together: their errors are not independent. Every prompt counts a
        Poisson(1) number of times (Poisson bootstrap). Of a record of few steps the steps are drawn
        too: all baselines of a batch may be wrong together.
        """
        if 1 < len(np.unique(self.step)) < FEW_STEPS:
            return resampled_both(self.noise, self.prompt, self.step)
        return resampled(self.noise, self.prompt)

    def mse(self) -> FloatArray:
        """Mean squared error of each baseline, shape (E,); NaN if `within` is."""
        errors: FloatArray = self.means - self.within
        return errors

    def interval(self, level: float = 0.95) -> FloatArray:
        """Interval of each contender's noise, shape (E, 2)."""
        return interval_of(self.drawn, level)

    def of(self, name: str) -> FloatArray:
        """Rows of one contender, shape (N,)."""
        rows: FloatArray = self.noise[self.names.index(name)]
        return rows


def resampled(
    values: FloatArray, prompt: IntArray, *, draws: int = DRAWS, seed: int = 0
) -> FloatArray:
    """Means of values (E, N) over prompts drawn with replacement; shape (draws, E)."""
    rng = np.random.default_rng(seed)
    _, index = np.unique(prompt, return_inverse=True)
    counts = np.bincount(index).astype(np.float64)
    sums = np.stack([np.bincount(index, weights=row) for row in values])
    total, weight = np.zeros((draws, len(values))), np.zeros(draws)
    for start in range(0, len(counts), _CHUNK):
        part = slice(start, start + _CHUNK)
        times = rng.poisson(1.0, (draws, len(counts[part]))).astype(np.float64)
        total += times @ sums[:, part].T
        weight += times @ counts[part]
    drawn = total / np.maximum(weight, 1.0)[:, None]
    return np.asarray(drawn[weight > 0])


def resampled_both(
    values: FloatArray, prompt: IntArray, step: IntArray, *, draws: int = DRAWS, seed: int = 0
) -> FloatArray:
    """As `resampled`, over prompts and steps at once: a row counts as the product of the two."""
    rng = np.random.default_rng(seed)
    times, places = [], []
    for groups in (prompt, step):
        names, index = np.unique(groups, return_inverse=True)
        times.append(rng.poisson(1.0, (draws, len(names))).astype(np.float32))
        places.append(index)
    total, weight = np.zeros((draws, len(values))), np.zeros(draws)
    for start in range(0, values.shape[1], _CHUNK):
        part = slice(start, start + _CHUNK)
        counts = times[0][:, places[0][part]] * times[1][:, places[1][part]]
        total += counts @ values[:, part].T
        weight += counts.sum(axis=1)
    return np.asarray(total[weight > 0] / weight[weight > 0, None])


def interval_of(drawn: FloatArray, level: float = 0.95) -> FloatArray:
    """Percentile interval of each column, shape (E, 2)."""
    tail = (1.0 - level) / 2.0
    # Draws themselves: nothing lies between two that are infinite.
    bounds: FloatArray = np.quantile(drawn, [tail, 1.0 - tail], axis=0, method="inverted_cdf")
    return bounds.T


def exceeding(values: FloatArray, reference: FloatArray) -> FloatArray:
    """``values / reference - 1``, 0 where both are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = values / reference - 1.0
    excess: FloatArray = np.where((values == 0.0) & (reference == 0.0), 0.0, ratio)
    return excess
