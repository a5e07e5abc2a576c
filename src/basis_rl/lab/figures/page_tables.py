"""Tables of numbers beside the figures of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from basis_rl.lab.figures.numbers import pick
from basis_rl.lab.figures.paper import Results

Table = tuple[Sequence[str], list[Sequence[Any]]]
_BETAS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)


def numbers_of(results: Results, figure: str) -> Table:
    """Head and rows of a figure's table; a long list is thinned or summed up.

    Parameters
    ----------
    results : Results
    figure : str
        "2", "3a", ….
    """
    return _NUMBERS[figure](results)


def _with_interval(row: Any) -> tuple[str, str, str]:
    interval = "" if np.isnan(row.low) else f"{row.low:.4f} to {row.high:.4f}"
    return (_number(row.mse), interval, _number(row.mse_uncorrected))


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.4f}"


_MSE = ("MSE", "95% interval", "uncorrected")


def _beta_curve_rows(results: Results) -> Table:
    rows = [row for row in results.beta_curves if row.beta in _BETAS]
    return (
        ("stage", "value", "β", *_MSE),
        [(row.stage, row.value, f"{row.beta:g}", *_with_interval(row)) for row in rows],
    )


def _accuracy_rows(results: Results) -> Table:
    rows = results.accuracy
    return (
        ("estimator", "stage", "rollouts", *_MSE),
        [(row.label, row.stage, row.rollouts, *_with_interval(row)) for row in rows],
    )


def _batch_rows(results: Results) -> Table:
    return (
        ("estimator", "stage", "bin", "batches", *_MSE),
        [
            (row.label, row.stage, _span(row, 3), row.batches, *_with_interval(row))
            for row in results.heterogeneity
        ],
    )


def _difficulty_rows(results: Results, without: str, *, errors: bool, extremes: bool) -> Table:
    """Bins of the main stage, but those of one family of estimators."""
    rows: list[Sequence[Any]] = []
    for row in pick(results.difficulty, stage=results.main_stage):
        if row.estimator.startswith(without):
            continue
        extreme = "" if np.isnan(row.frequency) else f"{row.frequency:.1%}"
        told = (_with_interval(row) if errors else ()) + ((extreme,) if extremes else ())
        rows.append((row.label, _span(row, 1), row.prompts, row.rows, *told))
    told = (_MSE if errors else ()) + (("exactly 0 or 1",) if extremes else ())
    return ("estimator", "value", "prompts", "rows", *told), rows


def _sensitivity_rows(results: Results) -> Table:
    return (
        ("setting", "stage", "estimator", "value", *_MSE),
        [
            (row.panel, row.stage, row.estimator, f"{row.setting:g}", *_with_interval(row))
            for row in results.sensitivity
        ],
    )


def _beta_rows(results: Results) -> Table:
    if not results.beta_steps:
        return (
            ("stage", "batches", "median β", "95% range"),
            [
                (row.stage, row.batches, f"{row.beta:g}", f"{row.low:g} to {row.high:g}")
                for row in results.beta_stages
            ],
        )
    parts = np.array_split(np.arange(len(results.beta_steps)), min(10, len(results.beta_steps)))
    rows: list[Sequence[Any]] = []
    for part in parts:
        steps = [results.beta_steps[i] for i in part]
        medians = [
            f"{np.median([getattr(step, name) for step in steps]):.2f}"
            for name in ("beta", "beta_literal", "tau")
        ]
        rows.append((f"{steps[0].batch} to {steps[-1].batch}", *medians))
    return ("batches", "median β", "β, Eq. 5 as printed", "shift of preset robust"), rows


_NUMBERS: dict[str, Callable[[Results], Table]] = {
    "2": _beta_curve_rows,
    "3a": _accuracy_rows,
    "3b": _batch_rows,
    "3c": partial(_difficulty_rows, without="leave-one-out", errors=True, extremes=False),
    "3d": partial(_difficulty_rows, without="leave-one-out", errors=False, extremes=True),
    "4": partial(_difficulty_rows, without="group-mean", errors=True, extremes=True),
    "5": _sensitivity_rows,
    "8": _beta_rows,
}


def _span(row: Any, digits: int) -> str:
    return f"{row.bin_low:.{digits}f} to {row.bin_high:.{digits}f}"
