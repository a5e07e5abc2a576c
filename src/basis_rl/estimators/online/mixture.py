r"""A population of logits as a mixture, and the normal posteriors of prompts that come from it.

The population's density is ``sum_c w_c N(x; c, 0.5^2)`` on fixed centres c; the weights w are
fitted to the prompts' counts by expectation maximisation. Whatever its shape (two heaps, prompts
that never succeed), a prompt's posterior is then put as the normal with the same mean and variance
*of the value*: these are what a baseline is made of (docs/online.md, Eq. 2).
"""

from __future__ import annotations

import numpy as np

from basis_rl.batch import FloatArray
from basis_rl.estimators.online.binary import NODES, WEIGHTS
from basis_rl.values import sigmoid

# Values of 0.0003 to 0.9997; as wide as they are apart, they make any smooth density.
CENTRES = np.linspace(-8.0, 8.0, 33)
WIDTH = 0.5
# Integrals over a prompt's logit: 8 standard deviations to either side of its counts' own logit.
REACH, POINTS, END = 8.0, 97, 12.0
ITERATIONS, TOLERANCE = 100, 1e-4
# Of a prompt's normal: 5 logits to either side at most.
LARGEST_VARIANCE, LEAST_VARIANCE = 25.0, 1e-8
BISECTIONS, NEWTON_STEPS = 30, 4


class Counts:
    """Likelihoods of distinct counts.

    Parameters
    ----------
    successes, n : arrays, shape (G,)
        n may be 0: then a posterior is the population's own.
    """

    def __init__(self, successes: FloatArray, n: FloatArray) -> None:
        failures = n - successes
        logit = np.log((successes + 0.5) / (failures + 0.5))
        reach = REACH * np.sqrt(1.0 / (successes + 0.5) + 1.0 / (failures + 0.5))
        low = np.clip(logit - reach, -END, END - 2.0)
        high = np.clip(logit + reach, 2.0 - END, END)
        # (G, POINTS); evenly spaced, so that sums are integrals up to a factor of each row.
        self.x = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, POINTS)
        log_likelihood = -successes[:, None] * np.logaddexp(0.0, -self.x)
        log_likelihood -= failures[:, None] * np.logaddexp(0.0, self.x)
        self.likelihood = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
        # Of the counts under each component, (G, C), up to a factor of each row.
        self.evidence = np.empty((len(n), len(CENTRES)))
        for number, centre in enumerate(CENTRES):
            self.evidence[:, number] = (self.likelihood * _component(self.x, centre)).sum(axis=1)

    def fit(self, count: FloatArray, wider: FloatArray, worth: float) -> FloatArray:
        """Weights of the components, shape (C,).

        ``count`` prompts have each pair, shape (G,), and the weights ``wider`` stand in for
        ``worth`` prompts more.
        """
        seen = count > 0
        evidence, count = self.evidence[seen], count[seen]
        weights = wider
        for _ in range(ITERATIONS):
            before = weights
            expected = weights * ((count / (evidence @ weights)) @ evidence)
            weights = (expected + worth * wider) / (count.sum() + worth)
            if np.abs(weights - before).max() < TOLERANCE:
                break
        return weights

    def posteriors(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the normal logit that stands for each posterior, shape (G,) each."""
        density = self.likelihood.copy()
        density *= sum(w * _component(self.x, c) for w, c in zip(weights, CENTRES, strict=True))
        density /= density.sum(axis=1, keepdims=True)
        values = sigmoid(self.x)
        mean = (density * values).sum(axis=1)
        return normal_logit(mean, (density * (values - mean[:, None]) ** 2).sum(axis=1))


def normal_weights(mean: float, variance: float) -> FloatArray:
    """Weights of the components that make a normal population."""
    density = np.exp(-0.5 * (CENTRES - mean) ** 2 / variance)
    return np.asarray(density / density.sum())


def normal_logit(mean: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The normal logit whose sigmoid has this mean and variance, shape (G,) each.

    By the nodes that predictions use; a variance out of reach gives the widest normal.
    """
    low = np.full_like(mean, np.log(LEAST_VARIANCE))
    high = np.full_like(mean, np.log(LARGEST_VARIANCE))
    x = _logit(mean)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        deviation = np.exp(0.5 * middle)
        x = _mean_with(mean, deviation, x)
        spread = ((_values(x, deviation) - mean[:, None]) ** 2) @ WEIGHTS
        low, high = (
            np.where(spread < variance, middle, low),
            np.where(spread < variance, high, middle),
        )
    deviation = np.exp(0.5 * high)
    return _mean_with(mean, deviation, x), deviation**2


def _mean_with(mean: FloatArray, deviation: FloatArray, x: FloatArray) -> FloatArray:
    """Mean of the logit at which the value's is ``mean``, by Newton from x."""
    for _ in range(NEWTON_STEPS):
        values = _values(x, deviation)
        found = values @ WEIGHTS
        slope = (values * (1.0 - values)) @ WEIGHTS / (found * (1.0 - found))
        x = x + np.clip((_logit(mean) - _logit(found)) / np.maximum(slope, 0.05), -2.0, 2.0)
    return x


def _values(x: FloatArray, deviation: FloatArray) -> FloatArray:
    return sigmoid(x[:, None] + deviation[:, None] * NODES)


def _component(x: FloatArray, centre: float) -> FloatArray:
    return np.asarray(np.exp(-0.5 * ((x - centre) / WIDTH) ** 2))


def _logit(value: FloatArray) -> FloatArray:
    return np.log(value) - np.log1p(-value)
