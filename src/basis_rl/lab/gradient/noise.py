"""Signal, noise and bias of estimators' gradients, with intervals over the prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from basis_rl.batch import FloatArray
from basis_rl.lab.gradient.batches import Layout
from basis_rl.lab.gradient.products import Products

LEVEL = 0.95


@dataclass(frozen=True)
class Figure:
    """A number with its interval.

    Attributes
    ----------
    value, low, high : float
        The interval is NaN where it cannot be told.
    """

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: FloatArray) -> Figure:
        """The first is the value, the others are resampled ones: a percentile interval."""
        value, resampled = float(values[0]), values[1:]
        unknown = ~np.isfinite(resampled)
        if not len(resampled) or unknown.mean() > (1 - LEVEL) / 4:
            return cls(value, float("nan"), float("nan"))
        tail = (1 - LEVEL) / 2
        low, high = np.quantile(resampled[~unknown], [tail, 1 - tail])
        return cls(value, float(low), float(high))


@dataclass(frozen=True)
class GradientNoise:
    """Noise of one estimator's gradient in one layout; first entry the value, then resampled.

    Attributes
    ----------
    name, label : str
        Of the estimator.
    layout : Layout
    signal : array, shape (1 + R,)
        ``|E G|^2``.
    variance : array
        ``tr Var G`` of a batch.
    within : array
        Its part within prompts; the rest is between them.
    length : array
        ``E |G|^2``.
    towards : array
        ``<E G, E g>``, with E g the gradient of the mean reward.
    reference : array
        ``|E g|^2``.
    """

    name: str
    label: str
    layout: Layout
    signal: FloatArray
    variance: FloatArray
    within: FloatArray
    length: FloatArray
    towards: FloatArray
    reference: FloatArray

    @property
    def snr(self) -> FloatArray:
        """Signal-to-noise ratio per rollout, ``|E G|^2 / tr Var G / N``.

        One over it is the size of a batch whose signal is as large as its noise.
        """
        return np.asarray(self.signal / self.variance / self.layout.size)

    @property
    def noise(self) -> FloatArray:
        """Variance per rollout in units of the signal that all unbiased estimators share.

        ``N tr Var G / (c^2 |E g|^2)``, with c the `scale`; NaN without a signal.
        """
        shared = ratio(self.towards**2, self.reference)
        return ratio(self.layout.size * self.variance, shared)

    @property
    def between_share(self) -> FloatArray:
        """Part of the variance that comes from which prompts are in the batch."""
        return np.asarray(1.0 - self.within / self.variance)

    @property
    def scale(self) -> FloatArray:
        """``c = <E G, E g> / |E g|^2``: 1 without bias, NaN without a signal."""
        found = np.asarray(self.towards / self.reference)
        is_exact = np.allclose(found, found[0], rtol=1e-9, atol=0.0)  # a known slope
        return found if is_exact else np.where(self.reference > 0, found, np.nan)

    @property
    def cosine(self) -> FloatArray:
        """Of E G and the gradient of the mean reward; 1 without bias, NaN without a signal."""
        return self._over_root(self.signal)

    @property
    def batch_cosine(self) -> FloatArray:
        """Of one batch's G and the gradient of the mean reward, root mean square over batches."""
        return self._over_root(self.length)

    def _over_root(self, square: FloatArray) -> FloatArray:
        positive = (square > 0) & (self.reference > 0)
        root = np.sqrt(np.where(positive, square * self.reference, 1.0))
        return np.where(positive, self.towards / root, np.nan)


def ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """Ratio of two resampled numbers; NaN where one is not positive."""
    positive = (above > 0) & (below > 0)
    return np.where(positive, above / np.where(positive, below, 1.0), np.nan)


def noise_of(
    products: Sequence[Products], reference: FloatArray, *, resamples: int = 2000, seed: int = 0
) -> list[GradientNoise]:
    """Signal, noise and bias of each estimator and layout.

    The prompts are resampled with replacement, the same for all estimators, and pairs of a prompt
    with its copy are left out. An estimator is not run again on a resampled batch: what one
    prompt does to the baselines of the others is as it was.

    Parameters
    ----------
    products : sequence of Products
    reference : float64 array, shape (P, P)
    resamples : int
    seed : int
    """
    P = len(reference)
    random = np.random.default_rng(seed)
    weights = np.vstack([np.ones(P), random.multinomial(P, np.full(P, 1 / P), size=resamples)])
    true = _mean_of_pairs(reference, weights)
    return [_noise(one, weights, true) for one in products]


def _noise(one: Products, weights: FloatArray, true: FloatArray) -> GradientNoise:
    P, n = len(weights[0]), one.layout.prompts
    signal = _mean_of_pairs(one.other, weights)
    pairs = signal * (n - 1) / n
    fresh = weights @ one.fresh + pairs
    if one.own_pairs:
        pairs = P * (P - 1) * _mean_of_pairs(one.own, weights)
    own = weights @ np.diag(one.own) + pairs
    towards = _mean_of_pairs(one.reference, weights)
    return GradientNoise(
        one.advantages.name,
        one.advantages.label,
        one.layout,
        signal,
        variance=own - signal,
        within=own - fresh,
        length=own,
        towards=towards,
        reference=true,
    )


def _mean_of_pairs(matrix: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted mean off the diagonal, ``sum_{i != j} w_i w_j M_ij / sum_{i != j} w_i w_j``."""
    apart = matrix - np.diag(np.diag(matrix))
    total = weights.sum(1) ** 2 - (weights**2).sum(1)
    return np.asarray(((weights @ apart) * weights).sum(1) / total)
