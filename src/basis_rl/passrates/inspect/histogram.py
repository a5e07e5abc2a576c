"""How many prompts have which pass rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from basis_rl.batch import FloatArray
from basis_rl.passrates.table import PassRates


@dataclass(frozen=True)
class Bin:
    """Prompts of similar mean reward.

    Attributes
    ----------
    low, high : float
        Equal where the bin is one value.
    label : str
    count : int
        Prompts.
    is_end : bool
        Whether the bin is exactly 0 or exactly 1.
    """

    low: float
    high: float
    label: str
    count: int
    is_end: bool = False


def common_n(table: PassRates) -> int | None:
    """Number of rollouts that every prompt has; None if they differ or nobody knows it."""
    low, high = int(table.n.min()), int(table.n.max())
    return low if low == high and low > 0 else None


def bins(table: PassRates, *, inner: int = 10, most_values: int = 16) -> list[Bin]:
    """Bins of the mean rewards, lowest first; every prompt is in one.

    With one n, each pass rate k / n that can be has a bin of its own, as bins of equal width would
    show gaps and peaks that are none. Otherwise exactly 0 and exactly 1 have theirs, as no shift
    moves such a rate, and the rest is in bins of equal width.

    Parameters
    ----------
    table : PassRates
    inner : int
        Bins of equal width.
    most_values : int
        Largest n that each pass rate has a bin for.
    """
    n = common_n(table)
    if table.successes is not None and n is not None and n <= most_values:
        counts = np.bincount(table.successes, minlength=n + 1).tolist()
        return [Bin(k / n, k / n, f"{k}/{n}", c, k in (0, n)) for k, c in enumerate(counts)]
    means = table.means
    low, high = float(means.min()), float(means.max())
    if low < 0.0 or high > 1.0:
        return _equal(means, low, high, inner)
    middle = means[(means > 0) & (means < 1)]
    return [
        Bin(0.0, 0.0, "exactly 0", int((means == 0).sum()), True),
        *_equal(middle, 0.0, 1.0, inner),
        Bin(1.0, 1.0, "exactly 1", int((means == 1).sum()), True),
    ]


def _equal(means: FloatArray, low: float, high: float, number: int) -> list[Bin]:
    if low == high:
        return [Bin(low, high, f"{low:.2f}", len(means))]
    # Not low + k * step, by which 0.3 is left of its own edge.
    edges = low + (high - low) * np.arange(number + 1) / number
    edges[-1] = high
    counts, _ = np.histogram(means, bins=edges)
    return [
        Bin(left, right, f"{left:.2f} to {right:.2f}", count)
        for count, left, right in zip(
            counts.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True
        )
    ]
