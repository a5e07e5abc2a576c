"""`Basis` on real rewards: tilted moments of the stored rewards (Appendix E)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from basis_rl.batch import BoolArray, FloatArray, IntArray
from basis_rl.calibrate import BetaChoice
from basis_rl.errors import ConfigError
from basis_rl.estimators.basis_options import BasisOptions
from basis_rl.estimators.basis_shift import ShiftTracker
from basis_rl.refine import WEIGHTINGS, Weighting, refined_baselines, weight_matrix
from basis_rl.shift import Scores, ShiftState
from basis_rl.values import tilted_moments

# A row pulls the shift by no more than so many of its standard deviations.
MOST_DEVIATIONS = 3.0


class RewardTable(NamedTuple):
    """Stored rewards of every prompt, with a population to draw pseudo-observations from.

    Attributes
    ----------
    values : array, shape (sum of n,)
    offsets : int array, shape (P + 1,)
    population : array, shape (Q, A)
        A quantiles of the rewards of each of Q populations (sources, and all).
    population_of : int array, shape (P,)
        Population of each prompt.
    pseudo_count : array, shape (P,)
        Pseudo-observations that a prompt gets from its population.
    """

    values: FloatArray
    offsets: IntArray
    population: FloatArray
    population_of: IntArray
    pseudo_count: FloatArray

    def atoms(self, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Rewards and weights of prompts, shape (R, M); weight 0 is padding."""
        start, n = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
        place = np.arange(n.max())
        stored = place < n[:, None]
        index = np.where(stored, start[:, None] + place, 0)
        rewards, weights = self.values[index], stored.astype(np.float64)
        pseudo = self.pseudo_count[rows]
        if not pseudo.any():
            return rewards, weights
        drawn = self.population[self.population_of[rows]]
        drawn_weights = np.broadcast_to(pseudo[:, None] / drawn.shape[1], drawn.shape)
        return np.hstack([rewards, drawn]), np.hstack([weights, drawn_weights])


class ContinuousGrid:
    """Tilted moments, a refinement (Eq. 7), and the beta with the least loss (Eq. 5).

    There is no active set: every prompt counts, so both averages of Eq. 5 are one. For "rvg" a
    prompt whose value is within epsilon of 0 is inactive, since it is divided by.
    """

    def __init__(self, table: RewardTable, options: BasisOptions) -> None:
        self.table = table
        self.options = options
        self.choice = BetaChoice(options.betas, options.from_previous_batch)

    def baselines(
        self, rows: IntArray, rewards: FloatArray, sources: list[str] | None
    ) -> tuple[FloatArray, dict[str, float]]:
        """Baselines of rollouts, shape (R,), and metrics."""
        distinct, place = np.unique(rows, return_inverse=True)
        atoms, weights = self.table.atoms(distinct)
        losses = np.empty(len(self.options.betas))
        baselines = np.empty((len(losses), len(rows)))
        for k, beta in enumerate(self.options.betas):
            values, active, weighting = self._terms(atoms, weights, beta, place)
            baselines[k] = values
            if weighting is not None:
                baselines[k] = refined_baselines(values, rewards, active, weighting)
            losses[k] = ((rewards - baselines[k]) ** 2).mean()
        index = self.choice.take(losses)
        beta = float(self.options.betas[index])
        active = self._terms(atoms, weights, beta, place)[1]
        return baselines[index], {
            "beta": beta,
            "tau": 1.0 / beta,
            "active_fraction": float(active.mean()),
            "calibration_loss": float(losses[index]),
        }

    def _terms(
        self, atoms: FloatArray, weights: FloatArray, beta: float, place: IntArray
    ) -> tuple[FloatArray, BoolArray, Weighting | None]:
        means, variances = tilted_moments(atoms, 1.0 / beta, weights)
        values = means[place]
        floored = np.maximum(variances[place], self.options.variance_floor)
        active = np.ones(len(values), dtype=np.bool_)
        if self.options.variant == "initial":
            return values, active, None
        if self.options.variant == "rvg":
            active = np.abs(values) > self.options.epsilon
        divisible = np.where(active, values, 1.0)
        return values, active, WEIGHTINGS[self.options.variant](divisible, floored)

    def weights(self, rows: IntArray, rewards: FloatArray, sources: list[str] | None) -> FloatArray:
        """Matrix W of Fig. 1 at the beta that `baselines` would choose; leaves the state alone."""
        kept = self.choice.next_tau
        _, metrics = self.baselines(rows, rewards, sources)
        self.choice.next_tau = kept
        atoms, weights = self.table.atoms(rows)
        values, active, weighting = self._terms(
            atoms, weights, metrics["beta"], np.arange(len(rows))
        )
        assert weighting is not None  # Basis.weights refuses the unrefined variants
        return weight_matrix(values, active, weighting)

    def state(self) -> dict[str, Any]:
        """The beta of the next batch, where it comes from this one."""
        return self.choice.state()

    def load(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state`."""
        self.choice.load(state)


class ContinuousShift:
    """Tilted mean with the shift fitted by likelihood, every row left out of its own.

    Real rewards have outliers, and a tilted mean runs after the largest stored reward. So stored
    rewards are drawn in to a range around the table's 1% and 99% quantiles, and no row pulls the
    shift by more than three of its standard deviations. Rewards are in units of the table's
    standard deviation, so that a step of the shift means the same whatever the rewards' unit.
    """

    def __init__(self, table: RewardTable, options: BasisOptions) -> None:
        if options.variant not in ("shift", "initial"):
            raise ConfigError(
                f"variant {options.variant!r} with calibration 'leave-one-out' needs 0/1 rewards: "
                "use calibration='whole-batch', or variant='shift'"
            )
        low, high = usual_range(table.values)
        values = np.clip(table.values, low, high)
        self.unit = float(values.std()) or 1.0
        self.table = table._replace(
            values=values / self.unit,
            population=np.clip(table.population, low, high) / self.unit,
        )
        self.tracker = ShiftTracker()

    def baselines(
        self, rows: IntArray, rewards: FloatArray, sources: list[str] | None
    ) -> tuple[FloatArray, dict[str, float]]:
        """Baselines of rollouts, shape (R,), and metrics."""
        batch = self.tracker.begin(sources, len(rows))
        atoms, weights = self.table.atoms(rows)
        means, variances = tilted_moments(atoms, batch.start[batch.source], weights)
        # A prompt whose stored rewards are all alike has limit 0: it says nothing of the shift.
        limit = MOST_DEVIATIONS * np.sqrt(variances)
        gradient = np.clip(rewards / self.unit - means, -limit, limit)
        scores = Scores(gradient, variances, np.ones(len(rows)), batch.source, batch.start)
        own, _ = batch.step.without_each(scores)
        baselines = tilted_moments(atoms, own, weights)[0] * self.unit
        metrics = self.tracker.advance(scores, batch)
        metrics = {name: value / self.unit for name, value in metrics.items()}
        metrics["active_fraction"] = 1.0
        metrics["calibration_loss"] = float(((rewards - baselines) ** 2).mean())
        return baselines, metrics

    def state(self) -> dict[str, Any]:
        """Shifts after the last batch, and the unit of reward they are in."""
        return self.tracker.state.to_dict() | {"unit": self.unit}

    def load(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state`; a table that has grown since may have another unit."""
        unit = float(state["unit"])
        if not 0 < unit < float("inf"):
            raise ValueError(f"unit is {unit!r}")
        self.tracker.state = ShiftState.from_dict(state).rescaled(self.unit / unit)


def usual_range(values: FloatArray) -> tuple[float, float]:
    """Range that stored rewards are drawn in to: 1% to 99% quantile, and half as far again.

    The whole range where those quantiles are equal (a rare success among equal failures).
    """
    low, high = (float(q) for q in np.quantile(values, [0.01, 0.99]))
    if high <= low:
        return float(values.min()), float(values.max())
    margin = 0.5 * (high - low)
    return low - margin, high + margin
