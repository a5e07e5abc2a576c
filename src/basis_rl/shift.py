r"""Leave-one-out calibration: one common logit shift per source, fitted by likelihood.

The shift tau = 1/beta of the tilted value, but any real number. For 0/1 rewards the batch's
log-likelihood in tau has gradient ``G = sum r_j - V_j`` and curvature ``H = sum V_j (1 - V_j)``;
for real rewards the tilted reference rewards are an exponential family in tau and the same holds
with the tilted mean and variance. One Newton step from the last batch's shift,

    tau_{-i} = tau + (G - g_i) / (H - h_i + lambda),

leaves row i out exactly, because row i enters through its own g_i and h_i alone. 1 / lambda is the
variance of the shift's change between two batches, learned from earlier batches: it decides how
much a small batch may pull.

With several sources, every shift takes the common step c and one of its own with prior N(0, nu^2).
Its rows alone would ask for ``d_s = G_s / H_s`` with precision H_s, so the common step weighs the
d_s by ``w_s = H_s / (1 + nu^2 H_s)`` and each source is drawn from d_s towards c: a source with
few rows follows the others. nu^2, like lambda, comes from earlier batches, so it leaves every row
of this one out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from basis_rl.batch import FloatArray, IntArray, sum_by


@dataclass(frozen=True)
class RunningVariance:
    """A variance learned by moments over batches, with exponential forgetting and a prior.

    Attributes
    ----------
    excess, information : float
        Sums over batches; excess has the expectation variance * information.
    default, weight : float
        Prior value, and the information it is worth for ever.
    memory : float
        Weight of the sums when a batch is added.
    least, most : float
        Range of the estimate.
    """

    default: float
    weight: float
    least: float
    most: float
    memory: float
    excess: float = 0.0
    information: float = 0.0

    @property
    def value(self) -> float:
        """Present estimate."""
        estimate = (self.weight * self.default + self.excess) / (self.weight + self.information)
        return min(max(estimate, self.least), self.most)

    def plus(self, excess: float, information: float) -> RunningVariance:
        """With one batch more."""
        return replace(
            self,
            excess=self.memory * self.excess + excess,
            information=self.memory * self.information + information,
        )


# Per batch, in logits: standard deviation 0.22 (at least 0.1), and 0.14 for each source's own.
DRIFT = RunningVariance(default=0.05, weight=100.0, least=0.01, most=4.0, memory=0.95)
BETWEEN = RunningVariance(default=0.02, weight=50.0, least=0.002, most=4.0, memory=0.98)


@dataclass(frozen=True)
class ShiftState:
    """Shifts after the last batch, and the variances learned so far; what a restart needs.

    Attributes
    ----------
    common : float
        Common logit shift, in units of 1 / reward.
    by_source : dict of str to float
        Shift of every source seen so far; empty without sources.
    drift : RunningVariance
        Of the common shift's change from batch to batch, 1 / lambda.
    between : RunningVariance
        Of each source's own change from batch to batch, nu^2.
    """

    common: float = 0.0
    by_source: Mapping[str, float] = field(default_factory=dict)
    drift: RunningVariance = DRIFT
    between: RunningVariance = BETWEEN

    def to_dict(self) -> dict[str, Any]:
        """JSON types."""
        return {
            "common": self.common,
            "by_source": dict(self.by_source),
            "drift": [self.drift.excess, self.drift.information],
            "between": [self.between.excess, self.between.information],
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> ShiftState:
        """Inverse of `to_dict`.

        Raises
        ------
        ValueError
            If a number is not finite.
        """
        shifts = {str(k): float(v) for k, v in state["by_source"].items()}
        drift, between = map(float, state["drift"]), map(float, state["between"])
        made = cls(
            float(state["common"]),
            shifts,
            replace(DRIFT, **dict(zip(("excess", "information"), drift, strict=True))),
            replace(BETWEEN, **dict(zip(("excess", "information"), between, strict=True))),
        )
        numbers = [made.common, made.drift.value, made.between.value, *shifts.values()]
        if not np.isfinite(numbers).all():
            raise ValueError("a shift is not finite")
        return made


@dataclass(frozen=True)
class Scores:
    """Gradient and curvature of the log-likelihood in the shift, by cell and by source.

    A cell is a set of rows with equal value, reward and source (or one row).

    Attributes
    ----------
    gradient, curvature : arrays, shape (C,)
        ``r - V`` and ``V (1 - V)`` (or the tilted variance) of one row of the cell.
    count : array, shape (C,)
        Rows of the cell.
    source : int array, shape (C,)
    start : array, shape (S,)
        Shift of each source at which V was taken.
    """

    gradient: FloatArray
    curvature: FloatArray
    count: FloatArray
    source: IntArray
    start: FloatArray

    def sums(self) -> tuple[FloatArray, FloatArray]:
        """G and H of every source; shape (S,) each."""
        size = len(self.start)
        return (
            sum_by(self.source, self.count * self.gradient, size),
            sum_by(self.source, self.count * self.curvature, size),
        )


@dataclass(frozen=True)
class ShiftStep:
    """One Newton step from the shifts before the batch.

    Attributes
    ----------
    drift, between : float
        Variances of the common change (1 / lambda) and of each source's own (nu^2; 0 makes all
        sources take the common step).
    largest : float
        No shift moves further in one step: the reach of a quadratic model of the likelihood.
    """

    drift: float
    between: float
    largest: float = 1.0

    def full(self, scores: Scores) -> tuple[float, FloatArray]:
        """Common step and the sources' new shifts, shape (S,), from all rows."""
        G, H = scores.sums()
        pull, weight = self._marginal(G, H)
        step = self._common(pull.sum(), weight.sum())
        return float(step), self._of_source(G, H, scores.start, step)

    def without_each(self, scores: Scores) -> tuple[FloatArray, FloatArray]:
        """New shifts with one row of each cell left out.

        Returns
        -------
        own : array, shape (C,)
            Shift of the cell's own source.
        step : array, shape (C,)
            Common step.
        """
        G, H = scores.sums()
        own_G = G[scores.source] - scores.gradient
        # Leaving a row out cannot make the curvature negative, but rounding can.
        own_H = np.maximum(H[scores.source] - scores.curvature, 0.0)
        pull, weight = self._marginal(G, H)
        own_pull, own_weight = self._marginal(own_G, own_H)
        step = self._common(
            _others(pull)[scores.source] + own_pull, _others(weight)[scores.source] + own_weight
        )
        return self._of_source(own_G, own_H, scores.start[scores.source], step), step

    def of_all_sources(self, scores: Scores, own: FloatArray, step: FloatArray) -> FloatArray:
        """Every source's shift with one row of each cell left out; shape (C, S)."""
        G, H = scores.sums()
        shifts = self._of_source(G, H, scores.start, step[:, None])
        shifts[np.arange(len(own)), scores.source] = own
        return shifts

    def surprise(self, scores: Scores) -> tuple[float, float]:
        """How far the batch pulls the common shift, as ``(excess, information)`` of the drift.

        The pull ``D = sum w_s d_s`` with total weight W has expectation of D^2
        ``W + drift W^2``; each batch counts by the inverse variance of that.
        """
        pull, weight = (float(part.sum()) for part in self._marginal(*scores.sums()))
        scale = (1.0 + self.drift * weight) ** 2
        return (pull**2 - weight) / scale, weight**2 / scale

    def disagreement(self, scores: Scores) -> tuple[float, float]:
        """How far apart the sources pull, as ``(excess, information)`` of nu^2.

        ``Q = sum H_s (d_s - d)^2`` has expectation ``S - 1 + nu^2 (sum H - sum H^2 / sum H)``.

        Source: DerSimonian and Laird, Meta-analysis in clinical trials, 1986.
        """
        G, H = scores.sums()
        seen = H > 0
        if seen.sum() < 2:
            return 0.0, 0.0
        G, H = G[seen], H[seen]
        d = np.clip(G / H, -self.largest, self.largest)
        mean = (H * d).sum() / H.sum()
        excess = (H * (d - mean) ** 2).sum() - (len(d) - 1)
        return float(excess), float(H.sum() - (H**2).sum() / H.sum())

    def _marginal(self, G: FloatArray, H: FloatArray) -> tuple[FloatArray, FloatArray]:
        """``w_s d_s`` and ``w_s = H_s / (1 + nu^2 H_s)``; no division by H, which may be 0."""
        damping = 1.0 + self.between * H
        return G / damping, H / damping

    def _common(self, pull: FloatArray, weight: FloatArray) -> FloatArray:
        """``c = sum w d / (sum w + lambda)``."""
        return self._limit(pull / (weight + 1.0 / self.drift))

    def _of_source(
        self, G: FloatArray, H: FloatArray, start: FloatArray, step: FloatArray
    ) -> FloatArray:
        """``start + (nu^2 H d + c) / (nu^2 H + 1)``."""
        return start + self._limit((self.between * G + step) / (1.0 + self.between * H))

    def _limit(self, steps: FloatArray) -> FloatArray:
        return np.clip(steps, -self.largest, self.largest)


def _others(per_source: FloatArray) -> FloatArray:
    """Sum over the other sources, added and not subtracted; shape (S,)."""
    total: FloatArray = (1.0 - np.eye(len(per_source))) @ per_source
    return total
