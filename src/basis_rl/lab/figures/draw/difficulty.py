"""Pictures of Fig. 3 c and d, and of Fig. 4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from basis_rl.drawing import log_if_positive
from basis_rl.lab.figures.difficulty import DifficultyBin
from basis_rl.lab.figures.draw.looks import (
    MSE,
    legend_below,
    line,
    look,
    panels,
)
from basis_rl.lab.figures.numbers import pick

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GRPO, _RLOO = "group-mean", "leave-one-out"


def draw_difficulty(rows: Sequence[DifficultyBin], stage: str) -> Figure:
    """Fig. 3 c: MSE by the prompt's value; GRPO alone of the group baselines, as in the paper."""
    figure, (axes,) = panels([f"{stage} stage, prompts by value"], size=(6.2, 4.0))
    _errors(axes, _without(rows, stage, _RLOO))
    legend_below(figure, axes)
    return figure


def draw_extremes(rows: Sequence[DifficultyBin], stage: str) -> Figure:
    """Fig. 3 d: how often a baseline is exactly 0 or 1, by the prompt's value."""
    figure, (axes,) = panels([f"{stage} stage, baselines of exactly 0 or 1"], size=(6.2, 4.0))
    _frequencies(axes, _without(rows, stage, _RLOO))
    legend_below(figure, axes)
    return figure


def draw_leave_one_out(rows: Sequence[DifficultyBin], stage: str) -> Figure:
    """Fig. 4: both for RLOO."""
    titles = [f"{stage} stage, prompts by value", "baselines of exactly 0 or 1"]
    figure, (left, right) = panels(titles, size=(8.4, 3.8))
    shown = _without(rows, stage, _GRPO)
    _errors(left, shown)
    _frequencies(right, shown)
    legend_below(figure, left, columns=4)
    return figure


def _without(rows: Sequence[DifficultyBin], stage: str, family: str) -> list[DifficultyBin]:
    return [row for row in pick(rows, stage=stage) if not row.estimator.startswith(family)]


def _errors(axes: Axes, rows: list[DifficultyBin]) -> None:
    for name in dict.fromkeys(row.estimator for row in rows):
        bins = pick(rows, estimator=name)
        line(axes, [b.bin for b in bins], bins, bins[0].label, look(name))
    _bins(axes, rows)
    axes.set_ylabel(MSE)
    log_if_positive(axes, [row.mse for row in rows])


def _frequencies(axes: Axes, rows: list[DifficultyBin]) -> None:
    for name in dict.fromkeys(row.estimator for row in rows):
        bins = pick(rows, estimator=name)
        axes.plot(
            [b.bin for b in bins],
            [b.frequency for b in bins],
            linewidth=1.6,
            markersize=5,
            label=bins[0].label,
            **look(name),
        )
    _bins(axes, rows)
    axes.set_ylim(-0.03, 1.03)
    axes.set_ylabel("share of baselines")


def _bins(axes: Axes, rows: list[DifficultyBin]) -> None:
    labels = {row.bin: f"{row.bin_low:g} to {row.bin_high:g}\n({row.prompts})" for row in rows}
    axes.set_xticks(list(labels), list(labels.values()), fontsize=8.5)
    axes.set_xlabel("value of the prompt (in brackets: number of prompts)")
