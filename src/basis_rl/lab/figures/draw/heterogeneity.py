"""Picture of Fig. 3 b."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from basis_rl.drawing import log_if_positive
from basis_rl.lab.figures.draw.looks import (
    MSE,
    legend_below,
    line,
    look,
    panels,
)
from basis_rl.lab.figures.heterogeneity import HeterogeneityBin
from basis_rl.lab.figures.numbers import pick

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_heterogeneity(rows: Sequence[HeterogeneityBin], stage: str) -> Figure:
    """MSE by the standard deviation of a batch's values at one stage."""
    rows = [row for row in pick(rows, stage=stage) if row.batches]
    figure, (axes,) = panels([f"{stage} stage, batches by heterogeneity"], size=(6.2, 4.0))
    for name in dict.fromkeys(row.estimator for row in rows):
        bins = pick(rows, estimator=name)
        line(axes, [b.heterogeneity for b in bins], bins, bins[0].label, look(name))
    axes.set_xlabel("standard deviation of the values in a batch (mean of the bin)")
    axes.set_ylabel(MSE)
    log_if_positive(axes, [row.mse for row in rows])
    legend_below(figure, axes, columns=3)
    return figure
