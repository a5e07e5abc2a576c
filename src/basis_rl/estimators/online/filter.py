"""Posteriors of the prompts: drifted to the time of a batch, and written back after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from basis_rl.batch import BoolArray, FloatArray, IntArray
from basis_rl.estimators.online.drift import Weights
from basis_rl.estimators.online.mixture import LARGEST_VARIANCE
from basis_rl.estimators.online.population import Start
from basis_rl.estimators.prompt_states import PromptStates


class Posterior(NamedTuple):
    """Prompts of a batch under each filter.

    Attributes
    ----------
    mean, variance : arrays, shape (K, P)
        Of logits (of values, for real rewards) less the shift.
    time : array, shape (P,)
        Steps at which that holds.
    lag : array, shape (P,)
        Steps that the rewards are older than that; 0 unless they are stale.
    noise_sum, noise_count : arrays, shape (P,)
        Squared residuals of real rewards, and how many.
    new : bool array, shape (P,)
        Neither met nor in the table.
    """

    mean: FloatArray
    variance: FloatArray
    time: FloatArray
    lag: FloatArray
    noise_sum: FloatArray
    noise_count: FloatArray
    new: BoolArray

    def updated(self, extra: FloatArray, mean: FloatArray, variance: FloatArray) -> Posterior:
        """With what the rewards said of ``y = m + e``, e of variance ``extra`` (K, P), told of m.

        ``mean`` and ``variance`` are y's after the rewards, less e's mean (docs/online.md, Eq. 8).
        """
        share = self.variance / (self.variance + extra)
        return self._replace(
            mean=self.mean + share * (mean - self.mean),
            variance=self.variance - share**2 * (self.variance + extra - variance),
        )


class PromptFilters:
    """State of every prompt that was met, and where the others start.

    Parameters
    ----------
    start : Start
    drift : Weights
    shares, scatter : arrays, shape (K,)
        Each filter's variance at the start: a share of what `start` says, and what is added.
    """

    def __init__(
        self, start: Start, drift: Weights, shares: FloatArray, scatter: FloatArray
    ) -> None:
        self.start = start
        self.drift = drift
        self.shares = shares
        self.scatter = scatter
        size = len(drift.variances)
        self._means = [f"mean_{k}" for k in range(size)]
        self._variances = [f"variance_{k}" for k in range(size)]
        self._noise = ["noise_sum", "noise_count"] if start.is_continuous else []
        columns = [*self._means, *self._variances, "time", *self._noise]
        self.states = PromptStates(dict.fromkeys(columns, 0.0))

    def at(
        self, keys: list[str], sources: list[str] | None, times: FloatArray
    ) -> tuple[IntArray, Posterior]:
        """Rows of the prompts, -1 where they have none, and posteriors at these times."""
        rows = self.states.known(keys)
        posterior = self._met(rows, times)
        fresh = np.flatnonzero(rows < 0)
        if len(fresh):
            names = None if sources is None else [sources[i] for i in fresh]
            self._first_met(posterior, fresh, [keys[i] for i in fresh], names, times)
        # A reward older than the posterior sees what the prompt was, not what it is.
        ahead = np.maximum(times - posterior.time, 0.0)
        drifted = posterior.variance + self.drift.variances[:, None] * ahead
        return rows, posterior._replace(
            variance=np.minimum(drifted, np.maximum(posterior.variance, LARGEST_VARIANCE)),
            time=posterior.time + ahead,
            lag=posterior.time + ahead - times,
        )

    def store(self, keys: list[str], rows: IntArray, posterior: Posterior) -> None:
        """Write the posteriors of a batch's prompts, whose rows `at` gave."""
        states = self.states
        if (rows < 0).any():
            rows = states.rows(keys)
        for name, values in zip(self._means, posterior.mean, strict=True):
            states[name][rows] = values
        for name, values in zip(self._variances, posterior.variance, strict=True):
            states[name][rows] = values
        states["time"][rows] = posterior.time
        for name in self._noise:
            states[name][rows] = getattr(posterior, name)

    def rescale(self, factor: float) -> None:
        """Pass to a unit that is ``factor`` times as small; without a table.

        Had it been larger from the start, variances would be the same numbers. A smaller one makes
        nobody better known: their variances stay as they are in rewards.
        """
        for name in self._means:
            self.states[name][:] *= factor
        for name in self._variances:
            self.states[name][:] *= max(factor, 1.0) ** 2
        self.start.mean[:] *= factor

    def _met(self, rows: IntArray, times: FloatArray) -> Posterior:
        zeros = np.zeros(len(rows))
        if len(self.states) == 0:
            size = (len(self._means), len(rows))
            return Posterior(
                *(np.zeros(size), np.ones(size), times.copy(), zeros),
                *(zeros.copy(), zeros.copy(), rows > 0),
            )

        def read(name: str) -> FloatArray:
            return self.states[name][rows]

        noise_sum, noise_count = [read(name) for name in self._noise] or [zeros, zeros]
        return Posterior(
            np.array([read(name) for name in self._means]),
            np.array([read(name) for name in self._variances]),
            read("time"),
            zeros,
            noise_sum,
            noise_count,
            np.zeros(len(rows), dtype=np.bool_),
        )

    def _first_met(
        self,
        posterior: Posterior,
        fresh: IntArray,
        keys: list[str],
        sources: list[str] | None,
        times: FloatArray,
    ) -> None:
        """Fill in prompts without a state: the table's from step 0, the others from now."""
        rows, known = self.start.rows(keys, sources)
        posterior.mean[:, fresh] = self.start.mean[rows]
        variance = self.shares[:, None] * self.start.variance[rows] + self.scatter[:, None]
        posterior.variance[:, fresh] = variance
        posterior.noise_sum[fresh] = self.start.noise_sum[rows]
        posterior.noise_count[fresh] = self.start.noise_count[rows]
        posterior.time[fresh] = np.where(known, 0.0, times[fresh])
        posterior.new[fresh] = ~known

    def state(self) -> dict[str, Any]:
        """What a restart needs."""
        return self.states.to_dict()

    def load(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state`."""
        self.states.load(state)
        for name in self._variances:
            if not (self.states[name] > 0).all():
                raise ValueError(
                    f"{name} of prompt {int(self.states[name].argmin())} is not positive"
                )
