"""Picture of Fig. 8."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from basis_rl.drawing import STYLES
from basis_rl.lab.figures.beta_steps import BetaStage, BetaStep
from basis_rl.lab.figures.draw.looks import legend_below, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEAST, _LARGEST = 0.01, 5.0


def draw_beta_steps(rows: Sequence[BetaStep]) -> Figure:
    """Beta of every batch (points) and its running median (line)."""
    figure, (axes,) = panels(["calibrated β, batch by batch"], size=(6.2, 4.0))
    batches = [row.batch for row in rows]
    width = max(len(rows) // 20, 5)
    for style, label, betas in (
        (STYLES[0], "Eq. 5 over the whole batch", [row.beta for row in rows]),
        (STYLES[1], "Eq. 5 as printed", [row.beta_literal for row in rows]),
    ):
        axes.plot(
            batches,
            betas,
            linestyle="none",
            marker=style["marker"],
            color=style["color"],
            alpha=0.3,
            markersize=3,
        )
        axes.plot(
            batches,
            _running_median(betas, width),
            color=style["color"],
            linestyle=style["linestyle"],
            linewidth=2,
            label=label,
        )
    axes.set_xlabel("batch")
    _scale(axes)
    legend_below(figure, axes)
    return figure


def _running_median(values: Sequence[float], width: int) -> list[float]:
    """Median over the batches up to ``width // 2`` away: Eq. 5 as printed jumps between two."""
    half = width // 2
    return [median(values[max(i - half, 0) : i + half + 1]) for i in range(len(values))]


def draw_beta_stages(rows: Sequence[BetaStage]) -> Figure:
    """Median and 95% range of the betas chosen in each stage."""
    figure, (axes,) = panels(["calibrated β by stage"], size=(6.2, 4.0))
    for number, row in enumerate(rows):
        errors = [[row.beta - row.low], [row.high - row.beta]]
        style = STYLES[0] | {"linestyle": "none"}
        label = "median and 95% range of batches" if number == 0 else None
        axes.errorbar([number], [row.beta], yerr=errors, capsize=4, label=label, **style)
    axes.set_xticks(range(len(rows)), [row.stage for row in rows])
    axes.set_xlabel("stage")
    axes.set_xlim(-0.5, len(rows) - 0.5)
    _scale(axes)
    legend_below(figure, axes)
    return figure


def _scale(axes: Axes) -> None:
    from matplotlib.ticker import NullFormatter

    axes.set_yscale("log")
    axes.set_ylim(_LEAST, _LARGEST * 1.15)
    ticks = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 5.0]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("β")
