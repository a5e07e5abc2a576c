"""One look for each estimator and stage in all figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from basis_rl.drawing import STYLES, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS = {
    "basis-paper": STYLES[0],
    "batch-mean": STYLES[1],
    "group-mean": STYLES[2],
    "leave-one-out": STYLES[3],
    "basis-robust": STYLES[4],
    "basis-online": STYLES[5],
}
# Groups of one estimator differ by marker, dash and darkness.
_GROUP_LOOKS = {
    1: {"marker": "v", "linestyle": ":", "alpha": 0.55},
    2: {"marker": "<", "linestyle": "--", "alpha": 0.7},
    4: {"marker": "^", "linestyle": "-.", "alpha": 0.85},
    8: {"marker": "D", "linestyle": "-", "alpha": 1.0},
}
_RLOO_MARKERS = {2: ">", 4: "p", 8: "h"}
MSE = "mean squared error"


def look(estimator: str) -> dict[str, Any]:
    """Colour, dash and marker of an estimator, e.g. "basis-paper" or "group-mean-8"."""
    family, _, size = estimator.rpartition("-")
    if size.isdigit():
        style = _LOOKS[family] | _GROUP_LOOKS[int(size)]
        return style | ({"marker": _RLOO_MARKERS[int(size)]} if family == "leave-one-out" else {})
    return _LOOKS.get(estimator, STYLES[6])


def panels(titles: Sequence[str], *, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """A figure with panels beside each other, in rows of at most three, or two of four."""
    # Not pyplot: it has global state and asks for a display.
    from matplotlib.figure import Figure

    columns = 2 if len(titles) == 4 else min(len(titles), 3)
    rows = -(-len(titles) // columns)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axes, title in zip(grid, titles, strict=False):
        axes.set_title(title, loc="left", fontsize=10)
        plain(axes)
    for unused in grid[len(titles) :]:
        unused.set_visible(False)
    return figure, grid[: len(titles)]


def line(
    axes: Axes,
    x: Sequence[float],
    rows: Sequence[Any],
    label: str,
    style: Mapping[str, Any],
    *,
    band: bool = False,
) -> None:
    """MSE of rows with its 95% interval, as bars or as a band."""
    y = [row.mse for row in rows]
    if band:
        axes.fill_between(
            x,
            [row.low for row in rows],
            [row.high for row in rows],
            color=style["color"],
            alpha=0.12,
            linewidth=0,
        )
        axes.plot(x, y, linewidth=1.6, markersize=4, label=label, **style)
        return
    errors = [[row.mse - row.low for row in rows], [row.high - row.mse for row in rows]]
    axes.errorbar(x, y, yerr=errors, linewidth=1.6, markersize=5, capsize=2.5, label=label, **style)


def legend_below(figure: Figure, axes: Axes, *, columns: int = 4) -> None:
    """Legend under all panels, where it hides no data."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=min(columns, len(labels)),
        frameon=False,
        fontsize=9,
        handlelength=3,
    )
