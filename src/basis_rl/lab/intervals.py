"""Means with confidence intervals where rows depend on each other in two ways."""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from basis_rl.batch import FloatArray, IntArray


class Mean(NamedTuple):
    """A mean with its 95% confidence interval.

    Attributes
    ----------
    value, low, high : float
        NaN where there are no rows, or a single cluster.
    rows : int
    """

    value: float
    low: float
    high: float
    rows: int

    @property
    def error(self) -> float:
        """Half of the interval's width."""
        return (self.high - self.low) / 2.0


def clustered_mean(
    values: FloatArray, prompt: IntArray, batch: IntArray, *, level: float = 0.95
) -> Mean:
    """Mean of rows that depend on each other within a prompt and within a batch.

    The variance is ``V_prompt + V_batch - V_row``, each the sum of squares of the clusters' summed
    residuals over the squared number of rows, with the factor C / (C - 1) for C clusters; it is at
    least the larger of the first two. Quantiles are Student's, with one degree less than the
    smaller number of clusters.

    Parameters
    ----------
    values : float64 array, shape (N,)
    prompt, batch : int array, shape (N,)
        Clusters, numbered from 0.
    level : float
        Of the interval.

    Notes
    -----
    Source: A. C. Cameron, J. B. Gelbach, D. L. Miller, Robust inference with multiway clustering,
    Journal of Business & Economic Statistics 29 (2011).
    """
    size = len(values)
    if not size:
        return Mean(float("nan"), float("nan"), float("nan"), 0)
    mean = float(values.mean())
    residuals = values - mean
    by_prompt, prompts = _cluster_variance(residuals, prompt)
    by_batch, batches = _cluster_variance(residuals, batch)
    clusters = min(prompts, batches)
    if clusters < 2:
        # One batch in all: nothing tells how batches differ.
        by_batch, clusters = 0.0, max(prompts, batches)
    if clusters < 2:
        return Mean(mean, float("nan"), float("nan"), size)
    rows = float((residuals**2).sum()) / size**2
    variance = max(by_prompt + by_batch - rows, by_prompt, by_batch)
    reach = student_quantile(0.5 + level / 2.0, clusters - 1) * variance**0.5
    return Mean(mean, mean - reach, mean + reach, size)


def _cluster_variance(residuals: FloatArray, cluster: IntArray) -> tuple[float, int]:
    """Variance of the mean by one kind of cluster, and their number."""
    sums = np.bincount(cluster, weights=residuals)
    clusters = int((np.bincount(cluster) > 0).sum())
    if clusters < 2:
        return 0.0, clusters
    factor = clusters / (clusters - 1.0)
    return factor * float((sums**2).sum()) / len(residuals) ** 2, clusters


def student_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t by its expansion in 1 / degrees; within 1% from 4 degrees on.

    Source: M. Abramowitz, I. A. Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    z = NormalDist().inv_cdf(probability)
    terms = (
        z,
        (z**3 + z) / 4.0,
        (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0,
        (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0,
        (79.0 * z**9 + 776.0 * z**7 + 1482.0 * z**5 - 1920.0 * z**3 - 945.0 * z) / 92160.0,
    )
    return float(sum(term / degrees**power for power, term in enumerate(terms)))
