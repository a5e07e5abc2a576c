"""The figure of the gradients' noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from basis_rl.drawing import STYLES, plain
from basis_rl.lab.gradient.noise import Figure as Interval
from basis_rl.lab.gradient.noise import GradientNoise
from basis_rl.lab.gradient.table import by_estimator, sees_more

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def noise_figure(noise: Sequence[GradientNoise]) -> Figure:
    """Signal-to-noise ratio per rollout of each estimator, in both layouts, with intervals.

    Hollow are estimators that see more rollouts than are trained on.
    """
    from matplotlib.figure import Figure

    pairs = by_estimator(noise)
    figure = Figure(figsize=(6.2, 1.3 + 0.36 * len(pairs)), layout="constrained")
    axes = figure.add_subplot()
    plain(axes)
    places = np.arange(len(pairs), dtype=float)
    for number, which in enumerate(("different", "groups")):
        style, ones = STYLES[number], [getattr(pair, which) for pair in pairs]
        layout = ones[0].layout
        many = f"{layout.prompts} prompts x {layout.trained} rollout"
        label = many if layout.trained == 1 else f"{many}s"
        found = [Interval.of(1000 * one.snr) for one in ones]
        values = np.array([f.value for f in found])
        ends = np.array([[f.value - f.low, f.high - f.value] for f in found]).T
        axes.errorbar(
            values,
            places + (number - 0.5) * 0.25,
            xerr=np.maximum(np.nan_to_num(ends), 0.0),
            color=style["color"],
            marker=style["marker"],
            linestyle="none",
            capsize=2,
            label=label,
        )
        free = np.array([sees_more(one) for one in ones])
        axes.plot(
            values[free],
            (places + (number - 0.5) * 0.25)[free],
            color=style["color"],
            marker=style["marker"],
            markerfacecolor="white",
            linestyle="none",
            zorder=4,
        )
    axes.set_yticks(places, [pair.label for pair in pairs])
    axes.invert_yaxis()
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    title = "signal-to-noise ratio of the gradient per rollout, x 1000"
    for shown in sorted({p.different.layout.shown for p in pairs if sees_more(p.different)}):
        title += f"\n(hollow: one of {shown} rollouts seen is counted)"
    axes.set_xlabel(title)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure
