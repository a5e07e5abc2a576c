"""Drawing distinct rows, each with exactly the probability that it is meant to have."""

from __future__ import annotations

import numpy as np

from basis_rl.batch import FloatArray, IntArray
from basis_rl.errors import ConfigError


def inclusion_probabilities(sizes: FloatArray, count: int) -> FloatArray:
    """Probabilities ``min(1, c sizes_i)`` with the sum ``count``.

    Parameters
    ----------
    sizes : float64 array, shape (N,)
        Positive.
    count : int
        At most N.

    Raises
    ------
    ConfigError
        If ``count`` is not between 1 and N.
    """
    if not 1 <= count <= len(sizes):
        raise ConfigError(
            f"{count} different prompts of {len(sizes)} cannot be drawn: lower the batch size, or "
            "train on more prompts"
        )
    certain = np.zeros(len(sizes), dtype=np.bool_)
    while True:
        left = count - int(certain.sum())
        rest = np.where(certain, 0.0, sizes)
        total = rest.sum()
        probabilities = np.where(certain, 1.0, rest * (left / total) if left else 0.0)
        more = (probabilities >= 1.0 - 1e-12) & ~certain
        if not more.any():
            return probabilities
        certain |= more


def systematic(probabilities: FloatArray, rng: np.random.Generator) -> IntArray:
    """Distinct rows, each with exactly its probability; as many as the probabilities' sum.

    Systematic sampling in a random order: one uniform number decides, points at a distance of 1
    are laid over the running sum.

    Source: W. G. Madow, Annals of Mathematical Statistics 20 (1949), 333.
    """
    certain = np.flatnonzero(probabilities == 1.0)
    order = rng.permutation(np.flatnonzero(probabilities < 1.0))
    count = round(float(probabilities[order].sum()))
    if not count:
        return rng.permutation(certain)
    ends = np.cumsum(probabilities[order])
    ends *= count / ends[-1]
    points = rng.random() + np.arange(count)
    chosen = order[np.searchsorted(ends, points, side="right").clip(max=len(order) - 1)]
    return rng.permutation(np.concatenate([certain, chosen])).astype(np.int64)
