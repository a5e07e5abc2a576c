"""`Basis` on 0/1 rewards with beta chosen on a grid (Algorithm 1 of the paper)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from basis_rl.batch import BoolArray, FloatArray, IntArray
from basis_rl.calibrate import (
    BetaChoice,
    losses,
    pair_baselines,
    value_grid,
)
from basis_rl.estimators.basis_options import BasisOptions
from basis_rl.levels import Levels, pair_codes
from basis_rl.refine import Weighting, bernoulli_weighting, refined_baselines, weight_matrix
from basis_rl.values import active_set, tilted_value


class BinaryGrid:
    """Tilted values, a refinement, and the beta with the least loss.

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
        self.grid = value_grid(self.levels.logits, options.betas, options.variant, options.epsilon)
        self.choice = BetaChoice(options.betas, options.from_previous_batch)

    def baselines(
        self, rows: IntArray, rewards: FloatArray, sources: list[str] | None
    ) -> tuple[FloatArray, dict[str, float]]:
        """Baselines of rollouts, shape (R,), and metrics; ``rows`` are the prompts' places."""
        return self.baselines_at(self.levels.nearest[rows], rows, rewards)

    def baselines_at(
        self, levels: IntArray, rows: IntArray, rewards: FloatArray
    ) -> tuple[FloatArray, dict[str, float]]:
        """The same with the prompts' levels looked up already."""
        codes = pair_codes(levels, rewards)
        failures, passes = self.levels.count(codes)
        over_active_set = self.options.over_active_set
        all_losses = losses(self.grid, failures, passes, over_active_set=over_active_set)
        index = self.choice.take(all_losses)
        beta = float(self.options.betas[index])
        if self.levels.exact:
            pairs = pair_baselines(self.grid, index, failures, passes)
            by_code = np.stack([pairs.failed, pairs.passed], axis=1)
            baselines = by_code.ravel()[codes]
            loss = float(all_losses[index])
            share = float(self.grid.active_rows(failures + passes)[index]) / len(rows)
        else:
            baselines, active = self._exact(rows, rewards, beta)
            counted = active if over_active_set else np.ones_like(active)
            loss = float(((rewards - baselines)[counted] ** 2).mean()) if counted.any() else np.inf
            share = float(active.mean())
        return baselines, {
            "beta": beta,
            "tau": 1.0 / beta,
            "active_fraction": share,
            "calibration_loss": loss,
        }

    def _exact(
        self, rows: IntArray, rewards: FloatArray, beta: float
    ) -> tuple[FloatArray, BoolArray]:
        """Baselines from the rows' own pass rates, where the grid saw neighbours; active rows."""
        tilted = self.logits[rows] + 1.0 / beta
        values = tilted_value(tilted, 0.0)
        active = active_set(values, self.options.epsilon)
        if self.options.variant == "initial":
            return values, active
        weighting = self._weighting(tilted, active)
        return refined_baselines(values, rewards, active, weighting), active

    def _weighting(self, tilted: FloatArray, active: BoolArray) -> Weighting:
        return bernoulli_weighting(self.options.variant, np.exp(np.where(active, tilted, 0.0)))

    def weights(self, rows: IntArray, rewards: FloatArray, sources: list[str] | None) -> FloatArray:
        """Matrix W of Fig. 1 at the beta that `baselines` would choose; leaves the state alone."""
        kept = self.choice.next_tau
        _, metrics = self.baselines(rows, rewards, sources)
        self.choice.next_tau = kept
        tilted = self.logits[rows] + metrics["tau"]
        values = tilted_value(tilted, 0.0)
        active = active_set(values, self.options.epsilon)
        return weight_matrix(values, active, self._weighting(tilted, active))

    def state(self) -> dict[str, Any]:
        """The beta of the next batch, where it comes from this one."""
        return self.choice.state()

    def load(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state`."""
        self.choice.load(state)
