"""The picture of a recommendation: the best baselines by step, and all of them side by side."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from basis_rl.drawing import GREY, STYLES, log_if_positive, plain
from basis_rl.drawing import picture as drawn
from basis_rl.lab.recommend.choice import Ranked
from basis_rl.lab.recommend.run import Recommendation
from basis_rl.lab.recommend.words import GROUP

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BASELINES = 12  # side by side
GROUP_LABEL = f"GRPO, group of {GROUP} (own left out)"


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
    from matplotlib.ticker import MaxNLocator

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
    error = group_error(found)
    if error is not None:
        axes.axhline(error, color=GREY, linewidth=1.2, linestyle=(0, (6, 3)), label=GROUP_LABEL)
        least = min(least, error)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    log_if_positive(axes, [least])


def _side_by_side(axes: Axes, found: Recommendation) -> None:
    """How many rollouts each baseline needs for the noise that the chosen one leaves."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    rows = bars_of(found)
    chosen = found.choice.chosen
    axes.set_title(
        f"Rollouts needed for the same noise, {chosen.option.label} = 1", loc="left", fontsize=10
    )
    # What is far behind would leave no room to tell the others apart.
    end = 1.05 * max(bar.high for bar in rows if not bar.added) - 0.05
    for y, bar in enumerate(rows):
        if bar.value > end:
            axes.plot([end], [y], marker=">", markersize=6, color=GREY)
            axes.annotate(
                f"{bar.value:.3g}  ",
                (end, y),
                ha="right",
                va="center",
                fontsize=8,
                color=GREY,
            )
            continue
        is_chosen = bar.label == chosen.option.label
        axes.errorbar(
            [bar.value],
            [y],
            xerr=[[max(bar.value - bar.low, 0.0)], [max(bar.high - bar.value, 0.0)]],
            capsize=3,
            marker="o" if is_chosen else "s",
            markersize=7 if is_chosen else 5,
            linestyle="none",
            color=STYLES[0]["color"] if is_chosen else GREY,
        )
    axes.axvline(1, color=GREY, linewidth=0.8)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:.3g}"))
    axes.set_yticks(range(len(rows)), [bar.label for bar in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)


class Bar(NamedTuple):
    """Rollouts that a baseline needs for the noise of the chosen one, with 95% interval.

    Attributes
    ----------
    label : str
    value, low, high : float
    added : bool
        Whether it is there for comparison, however far behind.
    """

    label: str
    value: float
    low: float
    high: float
    added: bool = False


def bars_of(found: Recommendation) -> list[Bar]:
    """The best baselines, the batch's mean and the mean of a group, least first."""
    choice = found.choice
    shown = choice.distinct[:BASELINES]
    bars = [_bar(each) for each in shown]
    mean = choice.find("batch-mean")
    if mean is not None and mean not in shown:
        bars.append(_bar(mean)._replace(added=True))
    error = group_error(found)
    if error is not None:
        chosen = choice.chosen
        noise = found.curves.within + error
        bars.append(
            Bar(GROUP_LABEL, noise / chosen.noise, noise / chosen.high, noise / chosen.low, True)
        )
    return sorted(bars, key=lambda bar: bar.value)


def _bar(each: Ranked) -> Bar:
    return Bar(each.option.label, 1 + each.behind, 1 + each.behind_low, 1 + each.behind_high)


def group_error(found: Recommendation) -> float | None:
    """Squared error of the mean of a group's other rollouts; None if the record does not tell."""
    within = found.curves.within
    if found.judge.as_logged or found.judge.rollouts > 1 or not within > 0:
        return None
    return within / (GROUP - 1)
