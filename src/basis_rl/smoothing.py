"""Pseudo-counts that keep a pass rate measured on few rollouts away from 0 and 1."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from basis_rl.batch import FloatArray, IntArray
from basis_rl.errors import ConfigError

SMOOTHINGS = ("none", "jeffreys", "empirical-bayes")
# Pseudo-observations for stored rewards; "empirical-bayes" fits the number.
_PSEUDO_OBSERVATIONS = {"none": 0.0, "jeffreys": 1.0}
_PSEUDO_COUNT_RANGE = (0.05, 1e3)


def pseudo_counts(method: str, successes: IntArray, n: IntArray) -> tuple[float, float]:
    """Pseudo-successes and pseudo-failures ``(a, b)`` of a smoothing.

    The smoothed pass rate is ``(successes + a) / (n + a + b)``: "none" is (0, 0), "jeffreys" is
    (1/2, 1/2), "empirical-bayes" the Beta distribution fitted to the table and to two prompts of
    one rollout, one right and one wrong.

    Raises
    ------
    ConfigError
        If the method is unknown.
    """
    if method == "none":
        return 0.0, 0.0
    if method == "jeffreys":
        return 0.5, 0.5
    if method == "empirical-bayes":
        # Two more prompts of one rollout, one right and one wrong: no table is quite certain.
        return fit_beta_binomial(np.append(successes, [0, 1]), np.append(n, [1, 1]))
    raise ConfigError(f"smoothing is {method!r}: use one of {', '.join(SMOOTHINGS)}")


def fit_beta_binomial(
    successes: npt.ArrayLike, n: npt.ArrayLike, *, tolerance: float = 1e-6, iterations: int = 2000
) -> tuple[float, float]:
    r"""Beta(a, b) of the prompts' pass rates by maximum marginal likelihood.

    Fixed point ``a <- a sum_i [psi(k_i + a) - psi(a)] / sum_i [psi(n_i + a + b) - psi(a + b)]``,
    and likewise b. A difference of digammas is the finite sum ``sum_{j<k} 1 / (a + j)``, so the
    prompts enter through how many of them have more than j successes.

    Parameters
    ----------
    successes : array of int, shape (P,)
    n : int or array of int, shape (P,)

    Returns
    -------
    a, b : float
        Between 0.05 and 1000 (all prompts alike has no finite maximum).

    Source: T. Minka, Estimating a Dirichlet distribution, 2000, Eq. 65.
    """
    k = np.asarray(successes, dtype=np.int64)
    total = np.broadcast_to(np.asarray(n, dtype=np.int64), k.shape)
    exceeding_successes, exceeding_failures, exceeding_n = map(_exceeding, (k, total - k, total))
    steps = np.arange(len(exceeding_n), dtype=np.float64)
    a = b = 0.5
    for _ in range(iterations):
        denominator = float((exceeding_n / (a + b + steps)).sum())
        new_a = a * float((exceeding_successes / (a + steps[: len(exceeding_successes)])).sum())
        new_b = b * float((exceeding_failures / (b + steps[: len(exceeding_failures)])).sum())
        new_a, new_b = np.clip([new_a / denominator, new_b / denominator], *_PSEUDO_COUNT_RANGE)
        change = max(abs(new_a / a - 1.0), abs(new_b / b - 1.0))
        a, b = float(new_a), float(new_b)
        if change < tolerance:
            break
    return a, b


def pseudo_observations(method: str, values: FloatArray, offsets: IntArray) -> float:
    """Pseudo-observations that a prompt with stored rewards gets from its population.

    0 for "none", 1 for "jeffreys", fitted to the table for "empirical-bayes".
    """
    if method == "empirical-bayes":
        return credibility_pseudo_count(values, offsets)
    return _PSEUDO_OBSERVATIONS[method]


def credibility_pseudo_count(values: FloatArray, offsets: IntArray) -> float:
    """Pseudo-observations that the population is worth for real rewards, ``within / between``.

    Variance within prompts over variance of the prompts' true means, by moments (Bühlmann's
    credibility). Between 0.05 and 1000; 1 where no prompt has a second reward to tell them apart.
    """
    n = np.diff(offsets)
    if n.max() == 1:
        return 1.0
    means = np.add.reduceat(values, offsets[:-1]) / n
    deviations = values - np.repeat(means, n)
    within = float((deviations**2).sum() / max(len(values) - len(n), 1))
    between = float(means.var() - within * np.mean(1.0 / n))
    low, high = _PSEUDO_COUNT_RANGE
    return high if between <= within / high else max(within / between, low)


def _exceeding(counts: IntArray) -> FloatArray:
    """Number of prompts with more than j, for j = 0, 1, …."""
    histogram = np.bincount(counts)
    return np.asarray(histogram[::-1].cumsum()[::-1][1:], dtype=np.float64)
