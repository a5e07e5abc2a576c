"""Pictures of the figures that results hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from basis_rl.lab.figures.draw.accuracy import draw_accuracy
from basis_rl.lab.figures.draw.beta_curves import draw_beta_curves
from basis_rl.lab.figures.draw.beta_steps import draw_beta_stages, draw_beta_steps
from basis_rl.lab.figures.draw.difficulty import (
    draw_difficulty,
    draw_extremes,
    draw_leave_one_out,
)
from basis_rl.lab.figures.draw.heterogeneity import draw_heterogeneity
from basis_rl.lab.figures.draw.sensitivity import draw_sensitivity
from basis_rl.lab.figures.paper import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DRAWN: dict[str, Callable[[Results], Figure]] = {
    "2": lambda r: draw_beta_curves(r.beta_curves),
    "3a": lambda r: draw_accuracy(r.accuracy, r.main_stage),
    "3b": lambda r: draw_heterogeneity(r.heterogeneity, r.main_stage),
    "3c": lambda r: draw_difficulty(r.difficulty, r.main_stage),
    "3d": lambda r: draw_extremes(r.difficulty, r.main_stage),
    "4": lambda r: draw_leave_one_out(r.difficulty, r.main_stage),
    "5": lambda r: draw_sensitivity(r.sensitivity),
    "8": lambda r: (
        draw_beta_steps(r.beta_steps) if r.beta_steps else draw_beta_stages(r.beta_stages)
    ),
}


def pictures(results: Results) -> dict[str, Figure]:
    """A picture of every figure, by its name ("2", "3a", …)."""
    return {name: _DRAWN[name](results) for name in results.figures}
