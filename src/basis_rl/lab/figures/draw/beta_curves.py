"""Picture of Fig. 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from basis_rl.drawing import STYLES, log_if_positive
from basis_rl.lab.figures.beta_curves import BetaPoint
from basis_rl.lab.figures.draw.looks import MSE, legend_below, line, panels
from basis_rl.lab.figures.numbers import pick

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_beta_curves(rows: Sequence[BetaPoint]) -> Figure:
    """MSE of the initial and the refined value over beta, one panel a stage."""
    stages = list(dict.fromkeys(row.stage for row in rows))
    figure, grid = panels([f"{stage} stage" for stage in stages], size=(8.4, 3.2))
    high = 1.15 * max(row.high for row in rows)
    low = 0.8 * min(max(row.low, row.mse / 2) for row in rows)
    for axes, stage in zip(grid, stages, strict=True):
        for value, style in (("initial", STYLES[1]), ("refined", STYLES[0])):
            points = pick(rows, stage=stage, value=value)
            betas = [point.beta for point in points]
            look = style | {"markevery": 0.15}  # by length of the line
            line(axes, betas, points, f"{value} value", look, band=True)
        axes.set_xscale("log")
        axes.set_xlabel("β")
        log_if_positive(axes, [row.mse for row in rows])
        if low < high:
            axes.set_ylim(low, high)
    grid[0].set_ylabel(MSE)
    legend_below(figure, grid[0])
    return figure
