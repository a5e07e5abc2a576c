"""Picture of Fig. 3 a."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from basis_rl.drawing import log_if_positive
from basis_rl.lab.figures.accuracy import Accuracy
from basis_rl.lab.figures.draw.looks import (
    MSE,
    legend_below,
    line,
    look,
    panels,
)
from basis_rl.lab.figures.numbers import pick

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FAMILIES = {"group-mean": "GRPO", "leave-one-out": "RLOO"}
_SIDE = 0.06  # of a doubling, so that bars at one number of rollouts do not cover each other


def draw_accuracy(rows: Sequence[Accuracy], stage: str) -> Figure:
    """MSE over the number of rollouts per prompt at one stage."""
    rows = pick(rows, stage=stage)
    figure, (axes,) = panels([f"{stage} stage, all prompts"], size=(6.2, 4.0))
    single = [row for row in rows if row.rollouts == 1 and row.estimator != "group-mean-1"]
    for number, row in enumerate(single):
        place = 2.0 ** (_SIDE * (number - (len(single) - 1) / 2) * 2)
        line(axes, [place], [row], row.label, look(row.estimator) | {"linestyle": "none"})
        thin = {k: v for k, v in look(row.estimator).items() if k in ("color", "linestyle")}
        axes.axhline(row.mse, linewidth=0.8, alpha=0.6, **thin)
    for side, (family, label) in zip((-1, 1), _FAMILIES.items(), strict=True):
        group = [row for row in rows if row.estimator.rpartition("-")[0] == family]
        if group:
            x = [row.rollouts * 2.0 ** (side * _SIDE) for row in group]
            dash = {"linestyle": "-" if family == "group-mean" else "--"}
            line(axes, x, group, label, look(f"{family}-8") | dash)
    axes.set_xscale("log", base=2)
    sizes = sorted({row.rollouts for row in rows})
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_xlabel("rollouts per prompt")
    axes.set_ylabel(MSE)
    log_if_positive(axes, [row.mse for row in rows])
    legend_below(figure, axes, columns=3)
    return figure
