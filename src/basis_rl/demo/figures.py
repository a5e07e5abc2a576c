"""Figures of the demo's report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from basis_rl.drawing import GREY, STYLES, picture, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Report = Mapping[str, Any]
_SMOOTHING = 5  # steps


def smooth(values: Sequence[float], width: int = _SMOOTHING) -> list[float]:
    """Mean over the steps up to ``width // 2`` away, fewer at the ends."""
    half = width // 2
    windows = [values[max(i - half, 0) : i + half + 1] for i in range(len(values))]
    return [sum(window) / len(window) for window in windows]


def learning_curve(report: Report) -> Figure:
    """Mean reward of the training prompts in each step."""
    figure, axes = _figure("Training reward", "step", "mean reward")
    for style, run in zip(STYLES, report["runs"].values(), strict=False):
        _points_and_line(axes, *_series(run, "reward"), style, run["label"])
    axes.set_ylim(0, 1)
    _legend(axes)
    return figure


def shift(report: Report) -> Figure:
    """How far BASIS has moved the reference pass rates, step by step."""
    steps, values = _series(report["runs"]["basis"], "tau")
    figure, axes = _figure("Shift of the pass rates", "step", "logit shift τ = 1/β")
    axes.axhline(0, color=GREY, linewidth=1)
    axes.annotate(
        "reference policy",
        (1, 0),
        xycoords=("axes fraction", "data"),
        xytext=(-4, 4),
        textcoords="offset points",
        ha="right",
        color=GREY,
    )
    axes.plot(steps, values, linewidth=2, markersize=4, **STYLES[0])
    return figure


def accuracy(report: Report) -> Figure:
    """Test accuracy before and after by task, and the paired difference with its interval."""
    from matplotlib.figure import Figure

    runs = report["runs"]
    tasks = list(next(iter(runs.values()))["evaluation"])
    height = 1.6 + len(tasks) * (0.45 + 0.3 * len(runs))
    figure = Figure(figsize=(6.2, height), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    spacing = 0.8 / len(runs)
    for number, (style, run) in enumerate(zip(STYLES, runs.values(), strict=False)):
        look = {"color": style["color"], "marker": style["marker"], "linestyle": "none"}
        for row, task in enumerate(tasks):
            result = run["evaluation"][task]
            y = row + (number - (len(runs) - 1) / 2) * spacing
            left.plot([result["before"], result["after"]], [y, y], color=style["color"])
            left.plot([result["before"]], [y], markerfacecolor="white", **look)
            left.plot([result["after"]], [y], **look)
            right.errorbar(
                [result["difference"]],
                [y],
                xerr=[
                    [result["difference"] - result["low"]],
                    [result["high"] - result["difference"]],
                ],
                capsize=4,
                label=run["label"] if row == 0 else None,
                **look,
            )
    left.set_yticks(range(len(tasks)), tasks)
    left.set_ylim(len(tasks) - 0.4, -0.6)
    left.set_xlim(0, 1)
    left.set_title("Test accuracy")
    left.set_xlabel("open: before, filled: after")
    right.axvline(0, color=GREY, linewidth=1)
    right.set_title("Difference")
    right.set_xlabel("after - before, 95% interval")
    for axes in (left, right):
        plain(axes)
    if len(runs) > 1:
        figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def advantages(report: Report) -> Figure:
    """Spread of the advantages; with no baseline it would be that of the rewards."""
    figure, axes = _figure("Spread of the advantages", "step", "standard deviation")
    runs = report["runs"]
    for style, run in zip(STYLES, runs.values(), strict=False):
        if run["estimator"] == "group-mean":
            continue  # divided by its group's deviation: another unit
        _points_and_line(axes, *_series(run, "advantage_std"), style, run["label"])
    grey = {"color": GREY, "linestyle": "-", "marker": "x"}
    _points_and_line(axes, *_series(runs["basis"], "reward_std"), grey, "rewards of the BASIS run")
    axes.set_ylim(bottom=0)
    _legend(axes)
    return figure


FIGURES = {
    "learning-curve": learning_curve,
    "accuracy": accuracy,
    "shift": shift,
    "advantages": advantages,
}


def png(figure: Figure) -> bytes:
    """Image file of a figure."""
    return picture(figure, "png")


def _figure(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    # Not pyplot: it has global state and asks for a display.
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6.2, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    plain(axes)
    return figure, axes


def _points_and_line(
    axes: Axes, steps: list[int], values: list[float], style: Mapping[str, Any], label: str
) -> None:
    """Values as pale points, their moving average as a line."""
    color = style["color"]
    axes.plot(
        steps, values, style["marker"], color=color, alpha=0.45, markersize=4, linestyle="none"
    )
    axes.plot(
        steps,
        smooth(values),
        color=color,
        linestyle=style["linestyle"],
        linewidth=2,
        label=label,
    )


def _legend(axes: Axes) -> None:
    axes.legend(frameon=False, loc="best")


def _series(run: Mapping[str, Any], name: str) -> tuple[list[int], list[float]]:
    """Steps that have a metric, and its values."""
    rows = [row for row in run["history"] if name in row]
    return [row["step"] for row in rows], [row[name] for row in rows]
