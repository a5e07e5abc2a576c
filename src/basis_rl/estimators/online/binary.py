r"""0/1 rewards: the logit of a prompt's value is normal, and its value the sigmoid of that.

Integrals over the normal distribution are Gauss-Hermite sums. One reward is little, so the nodes
of the prior serve for its posterior too; several rewards can narrow it much, so there the nodes
are laid around the posterior's mode (docs/online.md, Eq. 4).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from basis_rl.batch import FloatArray
from basis_rl.estimators.online.rewards import Predicted, Rewards
from basis_rl.values import sigmoid

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
# Columns: for E[f], E[f x], E[f x^2] with x standard normal.
_MOMENTS = np.stack([WEIGHTS, WEIGHTS * NODES, WEIGHTS * NODES**2], axis=1)
MODE_ITERATIONS = 2  # near enough: the nodes need a centre and a scale
LEAST_VARIANCE = 1e-8
FEATURE_WIDTH = 3.0  # logits; 5% and 95% are at the ends
_LEAST_LIKELIHOOD = 1e-12


def value_and_slope(mean: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """``E[V]`` and ``E[V (1 - V)]`` of ``V = sigmoid(x)``, x normal; the latter is dE[V] / dmean.

    Any shape.
    """
    values = sigmoid(mean[..., None] + np.sqrt(variance)[..., None] * NODES)
    return values @ WEIGHTS, (values * (1.0 - values)) @ WEIGHTS


def after_one(
    mean: FloatArray, variance: FloatArray, rewards: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Predicted value, log-likelihood, and the posterior's moments after one reward each.

    Parameters
    ----------
    mean, variance : arrays, shape (..., B)
        Of the logits before.
    rewards : array, shape (B,)

    Returns
    -------
    value, log_likelihood, mean, variance : arrays, shape (..., B)
    """
    deviation = np.sqrt(variance)
    values = deviation[..., None] * -NODES
    values -= mean[..., None]
    np.exp(values, out=values)
    values += 1.0
    np.reciprocal(values, out=values)
    sums = values @ _MOMENTS
    value = sums[..., 0]
    passed = rewards > 0
    likelihood = np.maximum(np.where(passed, value, 1.0 - value), _LEAST_LIKELIHOOD)
    first = np.where(passed, sums[..., 1], -sums[..., 1]) / likelihood
    second = np.where(passed, sums[..., 2], 1.0 - sums[..., 2]) / likelihood
    narrowed = np.maximum(variance * (second - first**2), LEAST_VARIANCE)
    return value, np.log(likelihood), mean + deviation * first, narrowed


def after_many(
    mean: FloatArray,
    variance: FloatArray,
    successes: FloatArray,
    n: FloatArray,
    *,
    nodes: int = 9,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """The same after ``successes`` of ``n`` rewards of 1; the value is that after them.

    Shapes broadcast. n may be 0.
    """
    places, log_weights = _around_mode(nodes)
    mode, curvature = _mode(mean, variance, successes, n)
    deviation = 1.0 / np.sqrt(curvature)
    x = mode[..., None] + deviation[..., None] * places
    odds = np.exp(-x)
    # log N(x; mean, variance) - log N(x; mode, deviation^2) + log-likelihood of the rewards
    log_terms = (
        log_weights
        - 0.5 * (x - mean[..., None]) ** 2 / variance[..., None]
        - (n - successes)[..., None] * x
        - n[..., None] * np.log1p(odds)
        + 0.5 * np.log(deviation**2 / variance)[..., None]
    )
    top = log_terms[..., nodes // 2, None]  # near the mode
    terms = np.exp(log_terms - top)
    total = terms.sum(axis=-1)
    terms /= total[..., None]
    after = np.einsum("...k,...k->...", terms, x)
    narrowed = np.einsum("...k,...k->...", terms, (x - after[..., None]) ** 2)
    value = np.einsum("...k,...k->...", terms, 1.0 / (1.0 + odds))
    return value, np.log(total) + top[..., 0], after, np.maximum(narrowed, LEAST_VARIANCE)


@lru_cache
def _around_mode(nodes: int) -> tuple[FloatArray, FloatArray]:
    """Nodes, and logarithms of the weights divided by the density that they stand for."""
    places, weights = np.polynomial.hermite_e.hermegauss(nodes)
    return places, np.log(weights / weights.sum()) + 0.5 * places**2


def _mode(
    mean: FloatArray, variance: FloatArray, successes: FloatArray, n: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mode of the posterior of the logit and minus its second derivative there, by Newton."""
    failures = n - successes
    weight = (successes + 0.5) * (failures + 0.5) / (n + 1.0)
    guess = np.log((successes + 0.5) / (failures + 0.5))
    x = np.where(n > 0, (mean / variance + weight * guess) / (1.0 / variance + weight), mean)
    for _ in range(MODE_ITERATIONS):
        value = sigmoid(x)
        curvature = 1.0 / variance + n * value * (1.0 - value)
        step = (successes - n * value - (x - mean) / variance) / curvature
        x = x + np.minimum(np.maximum(step, -2.0), 2.0)
    return x, curvature


class BinaryForm:
    """Rewards 0 and 1; the noise of a reward follows from its value."""

    def feature(self, mean: FloatArray) -> FloatArray:
        """``tanh(mean / 3)``."""
        return np.asarray(np.tanh(mean / FEATURE_WIDTH))

    def predicted(self, mean: FloatArray, variance: FloatArray, noise: FloatArray) -> Predicted:
        """First two moments of the prompts' rewards, shape (P,)."""
        value, slope = value_and_slope(mean, variance)
        slope = np.maximum(slope, LEAST_VARIANCE)
        return Predicted(value, slope, slope, np.maximum(value * (1.0 - value) - slope, 0.0))

    def after(
        self, mean: FloatArray, variance: FloatArray, rewards: Rewards
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray | None]:
        """Log-likelihood, mean and variance after the rewards, and the value before one."""
        if (rewards.n == 1).all():
            value, log_likelihood, after, narrowed = after_one(mean, variance, rewards.total)
            return log_likelihood, after, narrowed, value
        _, log_likelihood, after, narrowed = after_many(mean, variance, rewards.total, rewards.n)
        return log_likelihood, after, narrowed, None

    def value(self, mean: FloatArray, variance: FloatArray, rewards: Rewards) -> FloatArray:
        """Expected value after the rewards, shape (C,)."""
        return after_many(mean, variance, rewards.total, rewards.n)[0]

    def spread(self, mean: FloatArray, variance: FloatArray, noise: FloatArray) -> FloatArray:
        """``E[sqrt(V (1 - V))]``, shape (P,)."""
        values = sigmoid(mean[:, None] + np.sqrt(variance)[:, None] * NODES)
        return np.asarray(np.sqrt(values * (1.0 - values)) @ WEIGHTS)
