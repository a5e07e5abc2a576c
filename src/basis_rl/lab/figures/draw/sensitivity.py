"""Picture of Fig. 5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from basis_rl.drawing import GREY, STYLES, log_if_positive
from basis_rl.lab.figures.draw.looks import MSE, legend_below, line, panels
from basis_rl.lab.figures.numbers import pick
from basis_rl.lab.figures.sensitivity import PANELS, SensitivityPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABELS = {
    "epsilon": "threshold ε of the active set",
    "n": "cached rollouts n of a prompt",
    "B": "prompts B in a batch",
    "grid": "candidates for β",
}


def draw_sensitivity(rows: Sequence[SensitivityPoint]) -> Figure:
    """MSE over epsilon, n, B and the size of the grid, with 95% bands, a line per stage."""
    shown = [panel for panel in PANELS if pick(rows, panel=panel)]
    figure, grid = panels([""] * len(shown), size=(8.4, 6.0))
    stages = list(dict.fromkeys(row.stage for row in rows))
    for axes, panel in zip(grid, shown, strict=True):
        of_panel = pick(rows, panel=panel)
        for number, stage in enumerate(stages):
            style = STYLES[number % len(STYLES)]
            points = pick(of_panel, stage=stage, estimator="basis-paper")
            line(axes, [p.setting for p in points], points, stage, style, band=True)
        for number, stage in enumerate(stages):
            reference = pick(of_panel, stage=stage, estimator="batch-mean")
            if reference:
                grey = STYLES[number % len(STYLES)] | {"color": GREY, "markerfacecolor": "white"}
                label = "REINFORCE++ (grey)" if number == 0 else None
                x, mse = [p.setting for p in reference], [p.mse for p in reference]
                axes.plot(x, mse, markersize=3, linewidth=1, label=label, **grey)
        _scale(axes, panel, of_panel)
    legend_below(figure, grid[shown.index("B")] if "B" in shown else grid[0])
    return figure


def _scale(axes: Axes, panel: str, rows: list[SensitivityPoint]) -> None:
    axes.set_xscale("log", base=10 if panel == "epsilon" else 2)
    settings = sorted({row.setting for row in rows})
    if panel != "epsilon":
        axes.set_xticks(settings, [f"{s:g}" for s in settings])
    axes.set_xlabel(_LABELS[panel])
    axes.set_ylabel(MSE)
    log_if_positive(axes, [row.mse for row in rows])
