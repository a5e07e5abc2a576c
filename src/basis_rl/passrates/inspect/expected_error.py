"""How far the pass rates of a table are expected to be from the true ones, and at another n."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from basis_rl.batch import FloatArray, IntArray
from basis_rl.passrates.table import PassRates
from basis_rl.smoothing import pseudo_counts, pseudo_observations

OTHER_N = (16, 32, 64)


@dataclass(frozen=True)
class ExpectedError:
    """Expected error of a table's pass rates, in units of the reward.

    Attributes
    ----------
    error : float
        Root of the mean over prompts of the expected squared error.
    reward_variance : float
        Mean over prompts of the variance of a prompt's rewards: what a perfect baseline leaves.
    at : dict of int to float
        The error if every prompt had so many rollouts.
    """

    error: float
    reward_variance: float
    at: dict[int, float] = field(default_factory=dict)

    @property
    def excess(self) -> float:
        """Variance of the advantage that the error adds, as a share of `reward_variance`."""
        if self.reward_variance == 0:
            return 0.0 if self.error == 0 else math.inf
        return self.error**2 / self.reward_variance


def expected_error(
    table: PassRates, smoothing: str, *, at: Sequence[int] = OTHER_N
) -> ExpectedError | None:
    r"""Expected error of smoothed pass rates against the reference policy's true ones.

    A prompt with true rate p and n rollouts has the smoothed rate (k + a) / (n + a + b), whose
    mean squared error is

        (n p (1 - p) + (a - (a + b) p)^2) / (n + a + b)^2.

    Its mean is taken over the posterior of p under the Beta distribution that is fitted to the
    table (empirical Bayes), and over the prompts. With real rewards, p (1 - p) is the variance
    within prompts, and (a - (a + b) p)^2 the variance between them times the squared number of
    pseudo-observations.

    In an adaptive table n depends on the rewards, so the formula does not hold for the rollouts
    that there are. The posterior of p does not depend on why sampling stopped: there the error is
    its variance plus the squared distance of the smoothed rate from its mean.

    Parameters
    ----------
    table : PassRates
    smoothing : {"none", "jeffreys", "empirical-bayes"}
    at : sequence of int
        Other numbers of rollouts to state the error for.

    Returns
    -------
    ExpectedError or None
        None where the table does not tell: rates without n, or rewards with one rollout each.
    """
    if table.successes is not None:
        terms = _of_counts(table.successes, table.n, smoothing)
    elif table.reward_values is not None and table.n.max() > 1:
        assert table.reward_offsets is not None
        terms = _of_rewards(table.reward_values, table.reward_offsets, smoothing)
    else:
        return None
    variance, bias = float(np.mean(terms.variance)), float(np.mean(terms.squared_bias))
    squared = (table.n * terms.variance + terms.squared_bias) / (table.n + terms.pseudo_count) ** 2
    if table.successes is not None and table.is_adaptive:
        squared = _of_posterior(table.successes, table.n, smoothing)
    others = {n: (n * variance + bias) / (n + terms.pseudo_count) ** 2 for n in at}
    return ExpectedError(
        float(np.sqrt(squared.mean())), variance, {n: value**0.5 for n, value in others.items()}
    )


class _Terms(NamedTuple):
    """Expected variance of one reward, and squared pull of the pseudo-counts; per prompt or one."""

    variance: FloatArray
    squared_bias: FloatArray
    pseudo_count: float


def _of_counts(successes: IntArray, n: IntArray, smoothing: str) -> _Terms:
    prior_a, prior_b = pseudo_counts("empirical-bayes", successes, n)
    total = n + (prior_a + prior_b)
    mean = (successes + prior_a) / total
    variance = mean * (1.0 - mean) * total / (total + 1.0)
    a, b = pseudo_counts(smoothing, successes, n)
    square = mean - variance  # E[p^2]
    bias = a**2 - 2.0 * a * (a + b) * mean + (a + b) ** 2 * square
    return _Terms(variance, np.maximum(bias, 0.0), a + b)


def _of_posterior(successes: IntArray, n: IntArray, smoothing: str) -> FloatArray:
    """Expected squared error of each smoothed rate given its own rollouts."""
    prior_a, prior_b = pseudo_counts("empirical-bayes", successes, n)
    total = n + (prior_a + prior_b)
    mean = (successes + prior_a) / total
    a, b = pseudo_counts(smoothing, successes, n)
    distance = (successes + a) / (n + a + b) - mean
    return np.asarray(mean * (1.0 - mean) / (total + 1.0) + distance**2, dtype=np.float64)


def _of_rewards(values: FloatArray, offsets: IntArray, smoothing: str) -> _Terms:
    n = np.diff(offsets)
    means = np.add.reduceat(values, offsets[:-1]) / n
    inside = float(((values - np.repeat(means, n)) ** 2).sum() / max(len(values) - len(n), 1))
    between = max(float(means.var() - inside * np.mean(1.0 / n)), 0.0)
    pseudo = pseudo_observations(smoothing, values, offsets)
    return _Terms(np.array([inside]), np.array([pseudo**2 * between]), pseudo)
