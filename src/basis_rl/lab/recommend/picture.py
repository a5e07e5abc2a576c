"""The picture of a recommendation: the best baselines by step, and all of them side by side."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from basis_rl.drawing import GREY, STYLES, plain
from basis_rl.drawing import picture as drawn
from basis_rl.lab.recommend.run import Recommendation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BASELINES = 12  # side by side


def picture(found: Recommendation) -> bytes:
    """PNG file; matplotlib is needed."""
    # Not pyplot: it has global state and asks for a display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.05))
    for axes in (left, right):
        plain(axes)
    _by_step(left, found)
    _side_by_side(right, found)
    figure.legend(
        *left.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=9,
        handlelength=3,
    )
    return drawn(figure)


def _by_step(axes: Axes, found: Recommendation) -> None:
    """Squared error of the best few, or what each reward says of it."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

    curves = found.curves
    # A single reward tells no error apart from its own noise.
    off = 0.0 if found.judge.as_logged or not math.isfinite(curves.within) else curves.within
    what = "squared error of the baseline" if off else "squared (reward - baseline)"
    axes.set_title(f"Mean {what}", loc="left", fontsize=10)
    axes.set_xlabel("step")
    x = [(first + last) / 2 for first, last in curves.steps]
    least = math.inf
    for style, label, *rows in zip(
        STYLES, curves.labels, curves.noise, curves.low, curves.high, strict=False
    ):
        values, low, high = ([value - off for value in row] for row in rows)
        least = min(least, *low)
        axes.fill_between(x, low, high, color=style["color"], alpha=0.12, linewidth=0)
        axes.plot(x, values, linewidth=1.6, markersize=4.5, label=label, **style)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    if least > 0:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.axhline(0, color=GREY, linewidth=0.8)


def _side_by_side(axes: Axes, found: Recommendation) -> None:
    """How many rollouts each baseline needs for the noise that the chosen one leaves."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    rows = found.choice.distinct[:BASELINES]
    chosen = found.choice.chosen
    axes.set_title(
        f"Rollouts needed for the same noise, {chosen.option.name} = 1", loc="left", fontsize=10
    )
    for y, each in enumerate(rows):
        low, high = each.behind - each.behind_low, each.behind_high - each.behind
        axes.errorbar(
            [1 + each.behind],
            [y],
            xerr=[[max(low, 0.0)], [max(high, 0.0)]],
            capsize=3,
            marker="o" if each is chosen else "s",
            markersize=7 if each is chosen else 5,
            linestyle="none",
            color=STYLES[0]["color"] if each is chosen else GREY,
        )
    axes.axvline(1, color=GREY, linewidth=0.8)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:.3g}"))
    axes.set_yticks(range(len(rows)), [each.option.name for each in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
