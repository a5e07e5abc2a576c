"""`Basis` with the shift fitted by likelihood, every row left out of its own (see `shift`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from basis_rl.batch import BoolArray, FloatArray, IntArray, group_index, sum_by
from basis_rl.estimators.basis_options import BasisOptions
from basis_rl.levels import Levels, pair_codes
from basis_rl.refine import exclusive_sums
from basis_rl.shift import Scores, ShiftState, ShiftStep
from basis_rl.values import logit_of_value, sigmoid


class ShiftTracker:
    """Shifts of the sources from batch to batch."""

    def __init__(self) -> None:
        self.state = ShiftState()

    def begin(self, sources: list[str] | None, size: int) -> SourceShifts:
        """Where a batch of ``size`` rows starts; a new source starts at the common shift."""
        before = self.state
        if sources is None:
            step = ShiftStep(before.drift.value, 0.0)
            return SourceShifts(np.zeros(size, np.int64), np.array([before.common]), [], step)
        names = list(dict.fromkeys(sources))
        start = np.array([before.by_source.get(name, before.common) for name in names])
        step = ShiftStep(before.drift.value, before.between.value)
        return SourceShifts(group_index(sources), start, names, step)

    def advance(self, scores: Scores, batch: SourceShifts) -> dict[str, float]:
        """Take a batch in; returns its metrics."""
        before, step = self.state, batch.step
        change, shifts = step.full(scores)
        moved = shifts - batch.start
        share = sum_by(scores.source, scores.count, len(moved))
        # The sources' own steps count too, else a new source would start behind the others.
        common = before.common + float(share @ moved) / float(share.sum())
        # A source that is absent moves along with the common shift.
        by_source = {name: shift + change for name, shift in before.by_source.items()}
        by_source |= dict(zip(batch.names, shifts.tolist(), strict=False))
        drift = before.drift.plus(*step.surprise(scores))
        between = before.between.plus(*step.disagreement(scores))
        self.state = ShiftState(common, by_source, drift, between)
        metrics = {"tau": common, "tau_drift_std": drift.value**0.5}
        if batch.names:
            metrics["tau_source_drift_std"] = between.value**0.5
        return metrics


class SourceShifts(NamedTuple):
    """Sources of a batch and their shifts before it.

    Attributes
    ----------
    source : int array, shape (B,)
        Number of each row's source.
    start : array, shape (S,)
    names : list of str, length S; empty where the batch names no sources
    step : ShiftStep
    """

    source: IntArray
    start: FloatArray
    names: list[str]
    step: ShiftStep


class Cells(NamedTuple):
    """Cells of equal pass rate, reward and source, and how many rows each has; shape (C,)."""

    logits: FloatArray
    rewards: FloatArray
    rows: FloatArray
    source: IntArray


class BinaryShift:
    """Shifted pass rates of 0/1 rewards, and the refinements on top of them.

    Parameters
    ----------
    logits : array, shape (P,)
        Logit of every prompt's (smoothed) pass rate.
    options : BasisOptions
    """

    def __init__(self, logits: FloatArray, options: BasisOptions) -> None:
        self.options = options
        self.logits = logits
        self.levels = Levels.of(logits)
        self.tracker = ShiftTracker()

    def baselines(
        self, rows: IntArray, rewards: FloatArray, sources: list[str] | None
    ) -> tuple[FloatArray, dict[str, float]]:
        """Baselines of rollouts, shape (R,), and metrics; ``rows`` are the prompts' places."""
        batch = self.tracker.begin(sources, len(rows))
        if self.levels.exact:
            return self.baselines_at(self.levels.nearest[rows], rewards, batch)
        cells = Cells(self.logits[rows], rewards, np.ones(len(rows)), batch.source)
        return self._of_cells(cells, batch)

    def baselines_at(
        self, levels: IntArray, rewards: FloatArray, batch: SourceShifts
    ) -> tuple[FloatArray, dict[str, float]]:
        """The same from exact levels: one cell for each (source, pass rate, reward)."""
        size = 2 * len(self.levels.logits)
        codes = pair_codes(levels, rewards)
        if len(batch.start) > 1:
            codes += batch.source * size
        counts = np.bincount(codes, minlength=size * len(batch.start))
        present = np.flatnonzero(counts)
        cells = Cells(
            self.levels.logits[present % size // 2],
            (present % 2).astype(np.float64),
            counts[present].astype(np.float64),
            present // size,
        )
        by_code = np.zeros(len(counts))
        by_code[present], metrics = self._of_cells(cells, batch)
        return by_code[codes], metrics

    def _of_cells(self, cells: Cells, batch: SourceShifts) -> tuple[FloatArray, dict[str, float]]:
        start = batch.start[cells.source]
        values = sigmoid(cells.logits + start)
        curvature = values * (1.0 - values)
        # A pass rate of exactly 0 or 1 does not move with the shift, so it says nothing about it.
        gradient = np.where(curvature > 0, cells.rewards - values, 0.0)
        scores = Scores(gradient, curvature, cells.rows, cells.source, batch.start)
        own, change = batch.step.without_each(scores)
        baselines = sigmoid(cells.logits + own)
        active_fraction = 1.0
        if self.options.variant in ("unb", "vop", "rvg"):
            shifts = batch.step.of_all_sources(scores, own, change)
            active = np.abs(cells.logits + start) < -logit_of_value(self.options.epsilon)
            baselines = self._refine(baselines, cells, shifts, active)
            active_fraction = float((cells.rows * active).sum() / cells.rows.sum())
        squares = cells.rows * (cells.rewards - baselines) ** 2
        metrics = self.tracker.advance(scores, batch)
        metrics["active_fraction"] = active_fraction
        metrics["calibration_loss"] = float(squares.sum() / cells.rows.sum())
        return baselines, metrics

    def _refine(
        self, values: FloatArray, cells: Cells, shifts: FloatArray, active: BoolArray
    ) -> FloatArray:
        """Eq. 2 with, for row i, every value taken at the shifts that leave i out; O(C S).

        The terms separate: 1 + odds e^tau (unb, vop) and 1 + e^-tau / odds (rvg), odds being the
        reference policy's. The active set is that of the last batch's shift, which i never saw.
        """
        logits, rewards, count, source = cells
        sign = -1.0 if self.options.variant == "rvg" else 1.0
        odds = np.where(active, np.exp(sign * np.where(active, logits, 0.0)), 0.0)
        passed = _rest_by_source(rewards * active, count, source, shifts.shape[1])
        passed_odds = _rest_by_source(rewards * odds, count, source, shifts.shape[1])
        factor = np.exp(sign * shifts)
        numerator = (passed + factor * passed_odds).sum(axis=1)
        if self.options.variant == "rvg":
            mass = _rest_by_source(active.astype(np.float64), count, source, 1).sum(axis=1)
        else:
            mass = (factor * _rest_by_source(odds, count, source, shifts.shape[1])).sum(axis=1)
        mass += 1.0 if self.options.variant == "vop" else 0.0
        alone = mass <= 0
        refined = values * numerator / np.where(alone, 1.0, mass)
        return np.where(active, np.where(alone, values, refined), 0.0)

    def state(self) -> dict[str, Any]:
        """Shifts after the last batch."""
        return self.tracker.state.to_dict()

    def load(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state`."""
        self.tracker.state = ShiftState.from_dict(state)


def _rest_by_source(
    terms: FloatArray, count: FloatArray, source: IntArray, size: int
) -> FloatArray:
    """Sums by source without one row of each cell; shape (C, size). Adds only."""
    if size == 1:
        return (exclusive_sums(count * terms) + (count - 1.0) * terms)[:, None]
    sums = sum_by(source, count * terms, size)
    rest = np.repeat(sums[None, :], len(terms), axis=0)
    for number in range(size):
        members = np.flatnonzero(source == number)
        own = terms[members]
        rest[members, number] = exclusive_sums(count[members] * own) + (count[members] - 1.0) * own
    return rest
