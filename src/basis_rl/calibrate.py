r"""Choosing beta (Eq. 5): the loss of every candidate from counts of (pass rate, reward) pairs.

Both losses average ``(r_i - b_i)^2`` where ``b_i`` is the refined baseline at that beta:

- over the whole batch, an inactive prompt having b = 0 (this package's reading of Eq. 5);
- over the active set, as Eq. 5 is printed. That set depends on beta, so a beta that leaves only a
  few failing prompts active has loss 0 and wins: kept for reproduction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from basis_rl.batch import FloatArray
from basis_rl.refine import bernoulli_weighting, exclusive_sums_of_counts
from basis_rl.values import active_set, tilted_value


class ValueGrid(NamedTuple):
    """Tilted values and weighting terms of L pass rates at K betas; all shape (K, L).

    Terms, and for the refined variants the values, are 0 where inactive.
    """

    values: FloatArray
    reward_terms: FloatArray
    mass_terms: FloatArray
    active: FloatArray
    prior: float
    refined: bool


def value_grid(logits: FloatArray, betas: FloatArray, variant: str, epsilon: float) -> ValueGrid:
    """Tabulate a variant ("initial", "unb", "vop", "rvg") for every pass rate and beta."""
    tilted = np.add.outer(1.0 / betas, logits)
    values = tilted_value(tilted, 0.0)
    active = active_set(values, epsilon)
    if variant == "initial":
        zeros = np.zeros_like(values)
        return ValueGrid(values, zeros, zeros, active.astype(np.float64), 0.0, False)
    odds = np.exp(np.where(active, tilted, 0.0))
    x, y, prior = bernoulli_weighting(variant, odds)
    return ValueGrid(
        np.where(active, values, 0.0),
        np.where(active, x, 0.0),
        np.where(active, y, 0.0),
        active.astype(np.float64),
        prior,
        True,
    )


class PairBaselines(NamedTuple):
    """Baseline of a row by its pass rate, for either reward; shape (K, L) each."""

    failed: FloatArray
    passed: FloatArray


def pair_baselines(grid: ValueGrid, failures: FloatArray, passes: FloatArray) -> PairBaselines:
    """Leave-one-out baselines of Eq. 2 for every (beta, pass rate, reward).

    Parameters
    ----------
    grid : ValueGrid
    failures, passes : arrays, shape (L,)
        Rows of the batch at each pass rate with reward 0 and 1.
    """
    if not grid.refined:
        return PairBaselines(grid.values, grid.values)
    numerator, numerator_rest = exclusive_sums_of_counts(grid.reward_terms, passes)
    _, mass = exclusive_sums_of_counts(grid.mass_terms, failures + passes)
    if grid.prior:
        mass += grid.prior
    alone = mass <= 0  # no other row is active: baseline 0
    if alone.any():
        scale = np.where(alone, 0.0, grid.values / np.where(alone, 1.0, mass))
    else:
        scale = grid.values / mass
    failed, passed = scale * numerator[:, None], scale * numerator_rest
    return PairBaselines(failed, passed)


def whole_batch_loss(
    baselines: PairBaselines, failures: FloatArray, passes: FloatArray
) -> FloatArray:
    """Mean over all rows of ``(r - b)^2`` for every beta; shape (K,)."""
    loss = (baselines.failed**2) @ failures + ((1.0 - baselines.passed) ** 2) @ passes
    return np.asarray(loss / (failures.sum() + passes.sum()))


def active_set_loss(
    baselines: PairBaselines, active: FloatArray, failures: FloatArray, passes: FloatArray
) -> FloatArray:
    """Mean over the active rows of ``(r - b)^2`` (Eq. 5 as printed); infinite where none is."""
    loss = (active * baselines.failed**2) @ failures
    loss += (active * (1.0 - baselines.passed) ** 2) @ passes
    size = active @ (failures + passes)
    return np.divide(loss, size, out=np.full_like(loss, np.inf), where=size > 0)


def best_index(losses: FloatArray) -> int:
    """Index of the least loss; among equals the largest beta, nearest to the reference policy."""
    return len(losses) - 1 - int(np.argmin(losses[::-1]))


class BetaChoice:
    """Which beta a batch uses: its own best one, or the best one of the batch before.

    Parameters
    ----------
    betas : array, shape (K,), increasing
    from_previous_batch : bool
        Appendix D's variant, which keeps the refinement unbiased. The first batch takes the
        largest beta: the policy is still the reference policy.
    """

    def __init__(self, betas: FloatArray, from_previous_batch: bool) -> None:
        self.betas = betas
        self.from_previous_batch = from_previous_batch
        self.next_tau: float | None = None

    def take(self, losses: FloatArray) -> int:
        """Index of this batch's beta; remembers the best one for the next batch."""
        best = best_index(losses)
        if not self.from_previous_batch:
            return best
        index = len(self.betas) - 1
        if self.next_tau is not None:
            index = int(np.abs(1.0 / self.betas - self.next_tau).argmin())
        self.next_tau = float(1.0 / self.betas[best])
        return index

    def state(self) -> dict[str, float | None]:
        """JSON types; 1/beta, which is finite at beta = infinity too."""
        return {"next_tau": self.next_tau}

    def load(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state`.

        Raises
        ------
        KeyError, ValueError
            If the entry is missing or not a number of at least 0.
        """
        tau = state["next_tau"]
        number = isinstance(tau, int | float) and not isinstance(tau, bool)
        if tau is not None and not (number and 0 <= tau < float("inf")):
            raise ValueError(f"next_tau is {tau!r}")
        self.next_tau = None if tau is None else float(tau)
