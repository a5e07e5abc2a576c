"""Groups of rows: by step, by heterogeneity of the batch, by difficulty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from basis_rl.batch import BoolArray, FloatArray, IntArray

BINS = 5


@dataclass(frozen=True)
class Bins:
    """Rows in groups.

    Attributes
    ----------
    title : str
    labels : list of str, length G
    rows : list of int array, length G
    """

    title: str
    labels: list[str]
    rows: list[IntArray]


def even_bins(title: str, values: FloatArray, low: float, high: float, bins: int) -> Bins:
    """Bins of equal width; NaN is in none, the ends hold what lies outside."""
    edges = np.linspace(low, high, bins + 1)
    usable: BoolArray = ~np.isnan(values)
    number = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, bins - 1)
    labels = [f"{edges[i]:.3g}-{edges[i + 1]:.3g}" for i in range(bins)]
    return Bins(title, labels, [np.flatnonzero(usable & (number == i)) for i in range(bins)])
