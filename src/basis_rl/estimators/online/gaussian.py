r"""Rewards on the real line: a prompt's value is normal, and a reward is the value plus noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from basis_rl.batch import FloatArray
from basis_rl.estimators.online.rewards import Predicted, Rewards

# A reward beyond so many of its standard deviations counts as one there.
MOST_DEVIATIONS = 6.0
MOST_DISTANCES = 9.0  # the same in median distances from the median, of normal rewards
# Residuals of a prompt that are remembered: older ones are of another policy.
MOST_REWARDS = 64.0
POOL_START, POOL_MEMORY = 64.0, 0.99
LEAST_NOISE = 1e-6
# Beyond that many standard deviations the filters are judged by the distance instead of its square
# (Huber): else one outlier would outvote the rest.
USUAL_DEVIATIONS = 2.0


def drawn_in(rewards: FloatArray, value: FloatArray, variance: FloatArray) -> FloatArray:
    """Rewards within 6 standard deviations of what was predicted: one outlier is no news of V."""
    limit = MOST_DEVIATIONS * np.sqrt(variance)
    return value + np.clip(rewards - value, -limit, limit)


def without_outliers(rewards: FloatArray) -> FloatArray:
    """Rewards of which nothing was predicted, not all alike, within 9 median distances.

    Those equal to the median do not count: they may be most.
    """
    middle = np.median(rewards)
    distance = np.abs(rewards - middle)
    limit = MOST_DISTANCES * np.median(distance[distance > 0])
    return np.clip(rewards, middle - limit, middle + limit)


def after_rewards(
    mean: FloatArray, variance: FloatArray, rewards: Rewards
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log-likelihood of the rewards' mean, and the posterior's moments (docs/online.md, Eq. 4).

    Parameters
    ----------
    mean, variance : arrays, shape (..., P)
        Of the values before.
    rewards : Rewards, shape (P,)
    """
    total, n, noise = rewards
    residual = total - n * mean
    spread = noise + n * variance  # n times the predicted variance of the rewards' mean
    gain = variance / spread
    deviations = np.abs(residual) / np.sqrt(np.maximum(n, 1.0) * spread)
    beyond = np.maximum(deviations - USUAL_DEVIATIONS, 0.0)
    log_likelihood = -0.5 * (np.where(n > 0, np.log(spread), 0.0) + deviations**2 - beyond**2)
    return log_likelihood, mean + gain * residual, noise * gain


class Noise:
    """Variance of a real reward around its prompt's value: of all prompts, and of each.

    In squared units, so that it starts at 1.

    Parameters
    ----------
    worth : float
        A prompt's variance is drawn to that of all prompts as if that were so many rewards.
    start : float
        Rewards that the 1 is worth.
    """

    def __init__(self, worth: float, start: float = POOL_START) -> None:
        self.worth = worth
        self.total = start
        self.weight = start

    @property
    def pooled(self) -> float:
        """Variance over all prompts."""
        return max(self.total / self.weight, LEAST_NOISE)

    def of(self, squares: FloatArray, count: FloatArray) -> FloatArray:
        """Variance of each prompt, shape (P,), from the squares and number of its residuals."""
        if self.worth == 0:
            return np.zeros_like(count)  # rewards of 0 and 1 have none of their own
        return (self.worth * self.pooled + squares) / (self.worth + count)

    def state(self) -> list[float]:
        """What a restart needs."""
        return [self.total, self.weight]

    def load(self, state: Sequence[float]) -> None:
        """Inverse of `state`."""
        total, weight = map(float, state)
        if not (0 <= total < np.inf and 0 < weight < np.inf):
            raise ValueError(f"the noise is {total!r} of {weight!r}")
        self.total, self.weight = total, weight

    def learn(self, squares: FloatArray) -> None:
        """Take in one unbiased square for each reward."""
        self.total = POOL_MEMORY * self.total + float(squares.sum())
        self.weight = POOL_MEMORY * self.weight + len(squares)


class GaussianForm:
    """Real rewards, in units of their noise."""

    def feature(self, mean: FloatArray) -> FloatArray:
        """Real rewards have a common shift and no sharpening: 0."""
        return np.zeros_like(mean)

    def predicted(self, mean: FloatArray, variance: FloatArray, noise: FloatArray) -> Predicted:
        """First two moments of the prompts' rewards, shape (P,)."""
        return Predicted(mean, np.ones_like(mean), noise, variance)

    def after(
        self, mean: FloatArray, variance: FloatArray, rewards: Rewards
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray | None]:
        """Log-likelihood, mean and variance after the rewards, and the value before them."""
        return *after_rewards(mean, variance, rewards), mean

    def value(self, mean: FloatArray, variance: FloatArray, rewards: Rewards) -> FloatArray:
        """Expected value after the rewards, shape (C,)."""
        return after_rewards(mean, variance, rewards)[1]

    def spread(self, mean: FloatArray, variance: FloatArray, noise: FloatArray) -> FloatArray:
        """Standard deviation of a reward around its value, shape (P,)."""
        return np.sqrt(noise)
