r"""What all prompts have in common: a shift, each source's own, and a sharpening.

Prompt i's logit is ``m_i + phi_i . x`` with the common state x = (c, u, w, e_1, ..., e_S), whose
entries all walk at random: ``phi_i . x = c + f_i u + e_source(i)`` with f_i in -1 to 1 for hard to
easy prompts, and w is the trend of c. A batch's rewards enter through the score g_i and the
information h_i of each prompt (docs/online.md, Eq. 5), so that x is normal again after the batch,
and the batch without row i costs one division (Eq. 7): with C the covariance after the batch, b
the sum of the scores and ``c_i = phi_i' C phi_i``,

    phi_i . x_{-i} = phi_i . x + (phi_i' C b - c_i g_i) / (1 - c_i h_i).

How fast x walks is learned like the prompts' drift: filters side by side, weighted by likelihood.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from basis_rl.batch import FloatArray, IntArray, sum_by
from basis_rl.estimators.online.drift import Weights

# Standard deviation of the shift's step, in logits or in units of the rewards' spread.
DEVIATIONS = 0.005 * 4.0 ** np.arange(4)
# Per step of the clock; a policy that collapses changes its pace from one step to the next.
SWITCHING = 0.01
# Variances at the start, and of the steps as shares of the shift's.
SHARPENING_START, SOURCE_START, TREND_START = 0.02, 0.25, 1e-5
SHARPENING_SHARE, SOURCE_SHARE, TREND_SHARE = 0.1, 0.5, 3e-4
TREND_MEMORY = 0.99  # a policy that gained in the last hundred steps gains in the next
LARGEST_STEP = 1.0  # in one batch: the reach of a quadratic model of the likelihood
MOST_SOURCES = 32  # with a shift of their own, whose cost is the cube; further ones share the last
MOST_STEPS = 100  # at the fastest pace, nothing is known of the shift after so many
SHIFT, SHARPENING, TREND, FIRST_SOURCE = 0, 1, 2, 3


@dataclass(frozen=True)
class Design:
    """The vectors phi of a batch's prompts.

    Attributes
    ----------
    feature : array, shape (P,)
        f, from -1 to 1.
    place : int array, shape (P,), or None
        Entry of x of each prompt's source; None without sources.
    size : int
        Entries of x.
    """

    feature: FloatArray
    place: IntArray | None
    size: int

    def of(self, prompts: IntArray) -> Design:
        """Those of some prompts."""
        place = None if self.place is None else self.place[prompts]
        return Design(self.feature[prompts], place, self.size)

    def dot(self, x: FloatArray) -> FloatArray:
        """``phi . x`` for each of M states, shape (M, D); shape (M, P)."""
        product = x[:, :1] + self.feature * x[:, 1:2]
        return product if self.place is None else product + x[:, self.place]

    def dot_one(self, x: FloatArray) -> FloatArray:
        """``phi . x`` for one state, shape (P,)."""
        return np.asarray(self.dot(x[None])[0])

    def quadratic(self, C: FloatArray) -> FloatArray:
        """``phi' C phi`` for each of M matrices, shape (M, D, D); shape (M, P)."""
        f = self.feature
        form = C[:, 0, 0, None] + 2.0 * f * C[:, 0, 1, None] + f**2 * C[:, 1, 1, None]
        if self.place is None:
            return form
        own = C[:, self.place, self.place]
        return form + own + 2.0 * (C[:, 0, self.place] + f * C[:, 1, self.place])

    def sums(self, g: FloatArray, h: FloatArray) -> tuple[FloatArray, FloatArray]:
        """``b = sum g phi``, shape (D,), and ``H = sum h phi phi'``, shape (D, D)."""
        f, size = self.feature, self.size
        b, H = np.zeros(size), np.zeros((size, size))
        b[SHIFT], b[SHARPENING] = g.sum(), g @ f
        H[SHIFT, SHIFT], H[SHARPENING, SHARPENING] = h.sum(), h @ f**2
        H[SHIFT, SHARPENING] = H[SHARPENING, SHIFT] = h @ f
        if self.place is not None:
            own, sloped = sum_by(self.place, h, size), sum_by(self.place, h * f, size)
            b += sum_by(self.place, g, size)
            H[SHIFT] += own
            H[:, SHIFT] += own
            H[SHARPENING] += sloped
            H[:, SHARPENING] += sloped
            H[np.arange(size), np.arange(size)] += own
        return b, H


@dataclass(frozen=True)
class Fitted:
    """The common state after a batch, under each of M filters.

    Attributes
    ----------
    design : Design
    weights : array, shape (M,)
        Of the filters before the batch.
    x, centre : arrays, shapes (M, D), (D,)
        States before, and their mean, at which the scores were taken.
    b : array, shape (M, D)
        Sum of the scores at each filter's own state.
    C, H : arrays, shapes (M, D, D), (D, D)
        Covariance after the batch, and the batch's information.
    shrinkage : array, shape (M, D, D)
        ``I + P H``, P the covariance before: ``C = shrinkage^-1 P``.
    """

    design: Design
    weights: FloatArray
    x: FloatArray
    centre: FloatArray
    b: FloatArray
    C: FloatArray
    H: FloatArray
    shrinkage: FloatArray

    @cached_property
    def step(self) -> FloatArray:
        """``C b``, shape (M, D)."""
        return np.asarray((self.C @ self.b[:, :, None])[:, :, 0])

    def without(
        self, g: FloatArray, h: FloatArray, prompts: IntArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of ``phi . x`` with rows of these scores left out (Eq. 7).

        Row i is one of prompt ``prompts[i]``, or the whole prompt i; shape (R,) each.
        """
        design = self.design if prompts is None else self.design.of(prompts)
        c = design.quadratic(self.C)
        # The score at the filter's own state.
        own = g - h * design.dot(self.x - self.centre)
        rest = 1.0 - c * h
        step = (design.dot(self.step) - c * own) / rest
        offset = design.dot(self.x) + np.minimum(np.maximum(step, -LARGEST_STEP), LARGEST_STEP)
        mean = self.weights @ offset
        return mean, self.weights @ (c / rest + (offset - mean) ** 2)

    def log_likelihood(self) -> FloatArray:
        """Of the batch under each filter, up to what they share; shape (M,)."""
        moved = self.x - self.centre
        # The quadratic model of the likelihood around the centre, and its mean over N(x, before).
        at = (moved * self.b).sum(axis=1)
        at = at + 0.5 * ((moved @ self.H) * moved).sum(axis=1)
        _, log_determinant = np.linalg.slogdet(self.shrinkage)
        return np.asarray(at + 0.5 * (self.b * self.step).sum(axis=1) - 0.5 * log_determinant)


class CommonState:
    """The common state x and its filters.

    Parameters
    ----------
    start_variance : float
        Of the common shift before the first batch.
    """

    def __init__(self, start_variance: float) -> None:
        self.pace = Weights(DEVIATIONS, SWITCHING)
        self.x = np.zeros((len(DEVIATIONS), FIRST_SOURCE))
        start = np.diag([start_variance, SHARPENING_START, TREND_START])
        self.covariance = np.tile(start, (len(DEVIATIONS), 1, 1))
        self.places: dict[str, int] = {}

    def begin(self, sources: list[str] | None, feature: FloatArray, steps: int) -> Design:
        """Let x walk for some steps, and place the batch's prompts."""
        for source in dict.fromkeys(sources or []):
            if source not in self.places:
                self._add(source)
        size, steps = self.x.shape[1], min(steps, MOST_STEPS)
        walk = np.full(size, SOURCE_SHARE)
        walk[[SHIFT, SHARPENING, TREND]] = 1.0, SHARPENING_SHARE, TREND_SHARE
        onwards = np.eye(size)
        onwards[TREND, TREND] = TREND_MEMORY**steps
        onwards[SHIFT, TREND] = (1.0 - TREND_MEMORY**steps) / (1.0 - TREND_MEMORY)
        self.x = self.x @ onwards.T
        self.covariance = onwards @ self.covariance @ onwards.T + (
            steps * self.pace.variances[:, None, None] * np.diag(walk)
        )
        return self.design(sources, feature)

    def design(self, sources: list[str] | None, feature: FloatArray) -> Design:
        """Vectors phi; all sources have been met."""
        size = self.x.shape[1]
        if sources is None:
            return Design(feature, None, size)
        place = [self.places[source] for source in sources]
        return Design(feature, np.array(place, dtype=np.int64), size)

    def mean(self) -> FloatArray:
        """Mean of x over the filters, shape (D,)."""
        return np.asarray(self.pace.weights @ self.x)

    def fit(self, design: Design, g: FloatArray, h: FloatArray) -> Fitted:
        """What a batch's scores, taken at `mean`, say of x."""
        centre = self.mean()
        b, H = design.sums(g, h)
        shrinkage = np.eye(len(b)) + self.covariance @ H
        C = np.linalg.solve(shrinkage, self.covariance)
        at_own = b - (self.x - centre) @ H
        return Fitted(design, self.pace.weights, self.x, centre, at_own, C, H, shrinkage)

    def advance(self, fitted: Fitted, steps: int) -> dict[str, float]:
        """Take a batch in; returns metrics."""
        self.pace.learn(fitted.log_likelihood(), steps)
        self.x = fitted.x + np.clip(fitted.step, -LARGEST_STEP, LARGEST_STEP)
        self.covariance = 0.5 * (fitted.C + fitted.C.transpose(0, 2, 1))
        shift, sharpening, trend = self.mean()[:FIRST_SOURCE].tolist()
        return {
            "shift": shift,
            "shift_trend": trend,
            "sharpening": sharpening,
            "shift_drift_std": self.pace.deviation,
        }

    def now(self, sources: list[str] | None, feature: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of ``phi . x`` at present, shape (P,) each.

        A source that was never met has the common shift.
        """
        weights, centre, size = self.pace.weights, self.mean(), self.x.shape[1]
        moved = self.x - centre
        covariance = np.zeros((1, size + 1, size + 1))
        covariance[0, :size, :size] = np.tensordot(weights, self.covariance, 1)
        covariance[0, :size, :size] += (weights * moved.T) @ moved
        place = None
        if sources is not None:
            place = np.array([self.places.get(source, size) for source in sources], dtype=np.int64)
        design = Design(feature, place, size + 1)
        return design.dot_one(np.append(centre, 0.0)), design.quadratic(covariance)[0]

    def rescale(self, factor: float) -> None:
        """Pass to a unit that is ``factor`` times as small, like `PromptFilters.rescale`."""
        self.x *= factor
        self.covariance *= max(factor, 1.0) ** 2

    def _add(self, source: str) -> None:
        """A source starts at the common shift."""
        filters, size = self.x.shape
        self.places[source] = place = _place(len(self.places))
        if place < size:
            return
        self.x = np.hstack([self.x, np.zeros((filters, 1))])
        covariance = np.zeros((filters, size + 1, size + 1))
        covariance[:, :size, :size] = self.covariance
        covariance[:, size, size] = SOURCE_START
        self.covariance = covariance

    def state(self) -> dict[str, Any]:
        """What a restart needs."""
        return {
            "pace": self.pace.state(),
            "x": self.x,
            "covariance": self.covariance,
            "sources": list(self.places),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state`."""
        sources = list(state["sources"])
        if len(set(sources)) != len(sources) or not all(isinstance(s, str) for s in sources):
            raise ValueError("the sources are not distinct names")
        size = FIRST_SOURCE + min(len(sources), MOST_SOURCES)
        x, covariance = (np.array(state[name], dtype=np.float64) for name in ("x", "covariance"))
        if x.shape != (len(self.x), size) or covariance.shape != (len(self.x), size, size):
            raise ValueError(f"the common state has shapes {x.shape}, {covariance.shape}")
        if not (np.isfinite(x).all() and np.isfinite(covariance).all()):
            raise ValueError("the common state is not finite")
        least = -1e-9 * max(1.0, float(np.abs(covariance).max()))
        if not (np.linalg.eigvalsh(covariance) > least).all():
            raise ValueError("the common state's covariance is negative")
        self.pace.load(state["pace"])
        self.x, self.covariance = x, covariance
        self.places = {source: _place(number) for number, source in enumerate(sources)}


def _place(number: int) -> int:
    """Entry of x of a source, by order of appearance; the last is that of all further ones."""
    return FIRST_SOURCE + min(number, MOST_SOURCES - 1)
