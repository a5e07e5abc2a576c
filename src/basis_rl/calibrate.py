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

from basis_rl.batch import FloatArray, IntArray
from basis_rl.refine import bernoulli_weighting, exclusive_sums_of_counts
from basis_rl.values import active_set, tilted_value


class ValueGrid(NamedTuple):
    """Tilted values and weighting terms of L pass rates at K betas.

    Attributes
    ----------
    values, reward_terms, mass_terms : arrays, shape (K, L)
        Terms, and for the refined variants the values, are 0 where inactive.
    first, end : int arrays, shape (K,)
        The active pass rates at a beta are ``first`` to ``end - 1``: they rise with the level.
    prior : float
        Constant of the weighting's denominator.
    refined : bool
    """

    values: FloatArray
    reward_terms: FloatArray
    mass_terms: FloatArray
    first: IntArray
    end: IntArray
    prior: float
    refined: bool

    def active_rows(self, counts: FloatArray) -> FloatArray:
        """Active rows at every beta, shape (K,), from the rows at each pass rate."""
        up_to = np.zeros(len(counts) + 1)
        np.cumsum(counts, out=up_to[1:])
        rows: FloatArray = up_to[self.end] - up_to[self.first]
        return rows


def value_grid(logits: FloatArray, betas: FloatArray, variant: str, epsilon: float) -> ValueGrid:
    """Tabulate a variant ("initial", "unb", "vop", "rvg") for every pass rate and beta.

    Parameters
    ----------
    logits : array, shape (L,), increasing
    betas : array, shape (K,)
    """
    tilted = np.add.outer(1.0 / betas, logits)
    values = tilted_value(tilted, 0.0)
    active = active_set(values, epsilon)
    first, end = active.argmax(axis=1), active.argmax(axis=1) + active.sum(axis=1)
    if variant == "initial":
        none = np.zeros((len(betas), 0))
        return ValueGrid(values, none, none, first, end, 0.0, False)
    odds = np.exp(np.where(active, tilted, 0.0))
    x, y, prior = bernoulli_weighting(variant, odds)
    x, y, values = (np.where(active, terms, 0.0) for terms in (x, y, values))
    return ValueGrid(values, x, y, first, end, prior, True)


def losses(
    grid: ValueGrid, failures: FloatArray, passes: FloatArray, *, over_active_set: bool
) -> FloatArray:
    """Mean squared error ``(r - b)^2`` for every beta; shape (K,).

    Over the whole batch, or over the active rows as Eq. 5 is printed (infinite where none is).
    The leave-one-out sums are formed by subtraction here, which is fast: a beta is chosen by the
    result. The baselines themselves come from `pair_baselines`.

    Parameters
    ----------
    grid : ValueGrid
    failures, passes : arrays, shape (L,)
        Rows of the batch at each pass rate with reward 0 and 1.
    over_active_set : bool
    """
    counts = failures + passes
    values = grid.values
    if grid.refined:
        total = _refined_errors(grid, failures, passes)
    else:
        if over_active_set:
            level = np.arange(values.shape[1])
            active = (level >= grid.first[:, None]) & (level < grid.end[:, None])
            values = np.where(active, values, 0.0)
        total = (values**2) @ failures + ((1.0 - values) ** 2) @ passes
    if not over_active_set:
        return np.asarray(total / counts.sum())
    # An inactive row has b = 0, so it added its reward.
    total -= passes.sum() - grid.active_rows(passes)
    size = grid.active_rows(counts)
    return np.divide(total, size, out=np.full_like(total, np.inf), where=size > 0)


def _refined_errors(grid: ValueGrid, failures: FloatArray, passes: FloatArray) -> FloatArray:
    """Sum over all rows of ``(r - b)^2`` for every beta; shape (K,)."""
    counts = failures + passes
    mass = (grid.mass_terms @ counts + grid.prior)[:, None] - grid.mass_terms
    # Where nobody else is active the baseline is 0; where nobody is at all it plays no part.
    alone = grid.active_rows(counts) <= 1.0
    mass[alone] = np.inf
    absent = counts == 0
    if absent.any():
        mass[:, absent] = np.inf
    scale = np.divide(grid.values, mass, out=mass)
    failed = scale * (grid.reward_terms @ passes)[:, None]
    # In place: b of a passed row is failed - scale x; then (1 - b)^2.
    passed = np.multiply(scale, grid.reward_terms, out=scale)
    np.subtract(failed, passed, out=passed)
    passed -= 1.0
    passed *= passed
    failed *= failed
    return np.asarray(failed @ failures + passed @ passes)


class PairBaselines(NamedTuple):
    """Baseline of a row by its pass rate, for either reward; shape (L,) each."""

    failed: FloatArray
    passed: FloatArray


def pair_baselines(
    grid: ValueGrid, index: int, failures: FloatArray, passes: FloatArray
) -> PairBaselines:
    """Leave-one-out baselines of Eq. 2 at one beta, for every pair (pass rate, reward).

    Parameters
    ----------
    grid : ValueGrid
    index : int
        Place of the beta.
    failures, passes : arrays, shape (L,)
        Rows of the batch at each pass rate with reward 0 and 1.
    """
    values = grid.values[index]
    if not grid.refined:
        return PairBaselines(values, values)
    numerator, numerator_rest = exclusive_sums_of_counts(grid.reward_terms[index], passes)
    _, mass = exclusive_sums_of_counts(grid.mass_terms[index], failures + passes)
    mass += grid.prior
    alone = mass <= 0  # no other row is active: baseline 0
    scale = np.where(alone, 0.0, values / np.where(alone, 1.0, mass))
    return PairBaselines(scale * numerator, scale * numerator_rest)


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
