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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from basis_rl.batch import FloatArray, IntArray, sum_by
from basis_rl.refine import exclusive_sums


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
BETWEEN = RunningVariance(default=0.02, weight=200.0, least=0.002, most=4.0, memory=0.99)
LARGEST_SURPRISE = 5.0  # standard deviations


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
        TypeError, ValueError, KeyError
            If an entry is missing, not a finite number, or a variance's information is negative.
        """
        by_source = state["by_source"]
        if not isinstance(by_source, Mapping):
            raise TypeError(f"by_source is {by_source!r}")
        return cls(
            _finite(state["common"]),
            {str(name): _finite(shift) for name, shift in by_source.items()},
            _variance(DRIFT, state["drift"]),
            _variance(BETWEEN, state["between"]),
        )

    def rescaled(self, factor: float) -> ShiftState:
        """The same state with rewards in units ``factor`` times as large."""

        def scaled(variance: RunningVariance) -> RunningVariance:
            return replace(variance, excess=variance.excess * factor**2)

        by_source = {name: shift * factor for name, shift in self.by_source.items()}
        return ShiftState(self.common * factor, by_source, scaled(self.drift), scaled(self.between))


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e100:
        raise ValueError(f"{value!r} is not a finite number")
    return float(value)


def _variance(prior: RunningVariance, saved: Any) -> RunningVariance:
    if not isinstance(saved, Sequence) or len(saved) != 2:
        raise TypeError(f"{saved!r} is not a pair of numbers")
    excess, information = map(_finite, saved)
    if information < 0:
        raise ValueError(f"information is {information}")
    return replace(prior, excess=excess, information=information)


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

    @cached_property
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
        G, H = scores.sums
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
        G, H = scores.sums
        own_G = G[scores.source] - scores.gradient
        # Leaving a row out cannot make the curvature negative, but rounding can.
        own_H = np.maximum(H[scores.source] - scores.curvature, 0.0)
        pull, weight = self._marginal(G, H)
        own_pull, own_weight = self._marginal(own_G, own_H)
        step = self._common(
            exclusive_sums(pull)[scores.source] + own_pull,
            exclusive_sums(weight)[scores.source] + own_weight,
        )
        return self._of_source(own_G, own_H, scores.start[scores.source], step), step

    def of_all_sources(self, scores: Scores, own: FloatArray, step: FloatArray) -> FloatArray:
        """Every source's shift with one row of each cell left out; shape (C, S)."""
        G, H = scores.sums
        shifts = self._of_source(G, H, scores.start, step[:, None])
        shifts[np.arange(len(own)), scores.source] = own
        return shifts

    def surprise(self, scores: Scores) -> tuple[float, float]:
        """How far the batch pulls the common shift, as ``(excess, information)`` of the drift.

        The pull ``D = sum w_s d_s`` with total weight W has expectation of D^2
        ``W + drift W^2``; each batch counts by the inverse variance of that, and no pull for more
        than 5 standard deviations.
        """
        pull, weight = (float(part.sum()) for part in self._marginal(*scores.sums))
        scale = (1.0 + self.drift * weight) ** 2
        expected = weight + self.drift * weight**2
        # One absurd reward must not open the filter for the next hundred batches.
        square = min(abs(pull), LARGEST_SURPRISE * expected**0.5) ** 2
        return (square - weight) / scale, weight**2 / scale

    def disagreement(self, scores: Scores) -> tuple[float, float]:
        """How far apart the sources pull, as ``(excess, information)`` of nu^2.

        What source s pulls beyond its share, ``u_s = G_s - H_s G / H`` with the totals G and H,
        has expectation of u_s^2
        ``H_s (1 - H_s/H) + nu^2 (H_s^2 - 2 H_s^3/H + H_s^2 sum H_k^2 / H^2)``; each source counts
        by the inverse variance of that, and none for more than 5 standard deviations. There is no
        division by H_s: with a few rows a source its own estimate G_s / H_s is of no use.
        """
        G, H = scores.sums
        if len(H) < 2 or (H > 0).sum() < 2:
            return 0.0, 0.0
        total = H.sum()
        sampling = H * (1.0 - H / total)
        information = H**2 - 2.0 * H**3 / total + H**2 * (H**2).sum() / total**2
        expected = sampling + self.between * information
        pull = np.minimum(np.abs(G - H * G.sum() / total), LARGEST_SURPRISE * expected**0.5)
        scale = (1.0 + self.between * H) ** 2
        excess = float(((pull**2 - sampling) / scale).sum())
        return excess, float((information / scale).sum())

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
        return np.minimum(np.maximum(steps, -self.largest), self.largest)  # np.clip is slower
