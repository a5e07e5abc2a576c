r"""Batchwise refinement (Eq. 2): every baseline a weighted average of the others' rewards.

All three weightings of the paper have the form

    b_i = V_i * sum_{j != i} x_j r_j / (c + sum_{j != i} y_j)

with terms x and y of the source prompt alone, so a batch needs two sums and, for each row, those
sums without the row. Rows outside the active set have x = y = 0 and baseline 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from basis_rl.batch import BoolArray, FloatArray


class Weighting(NamedTuple):
    """Terms of one weighting: ``x`` (reward), ``y`` (mass) and the constant ``c`` (prior)."""

    reward_terms: FloatArray
    mass_terms: FloatArray
    prior: float


def unbiased_weighting(values: FloatArray, variances: FloatArray) -> Weighting:
    """Best linear unbiased estimator (Prop. 1, Eq. 3; Eq. 7): x = V/s2, y = V^2/s2, c = 0."""
    return Weighting(values / variances, values**2 / variances, 0.0)


def shrinkage_weighting(values: FloatArray, variances: FloatArray) -> Weighting:
    """Variance-optimised shrinkage VOP (Prop. 3): x = V/s2, y = V^2/s2, c = 1."""
    return Weighting(values / variances, values**2 / variances, 1.0)


def ratio_weighting(values: FloatArray, variances: FloatArray) -> Weighting:
    """Ratio of values RVG (Appendix B): x = 1/V, y = 1, c = 0; variances play no part."""
    return Weighting(1.0 / values, np.ones_like(variances), 0.0)


WEIGHTINGS = {"unb": unbiased_weighting, "vop": shrinkage_weighting, "rvg": ratio_weighting}


def bernoulli_variance(values: FloatArray) -> FloatArray:
    """Variance of a 0/1 reward, ``V (1 - V)`` (Section 4)."""
    return values * (1.0 - values)


def exclusive_sums(terms: FloatArray) -> FloatArray:
    """Sum over the last axis without the element itself, adding and never subtracting.

    Subtracting a dominant element from the total loses the others' digits.
    """
    if terms.shape[-1] == 1:
        return np.zeros_like(terms)
    before = np.zeros_like(terms)
    np.cumsum(terms[..., :-1], axis=-1, out=before[..., 1:])
    after = np.zeros_like(terms)
    np.cumsum(terms[..., :0:-1], axis=-1, out=after[..., -2::-1])
    return before + after


def exclusive_sums_of_counts(terms: FloatArray, counts: FloatArray) -> tuple[float, FloatArray]:
    """Total of non-negative terms that occur several times, and the total without one of each.

    A term of more than half of the total can occur only once, and only one term can; that one
    alone is summed anew, for the others the subtraction is safe.

    Parameters
    ----------
    terms : array, shape (L,), non-negative
    counts : array, shape (L,)

    Returns
    -------
    total : float
        ``sum_l counts_l terms_l``.
    rest : array, shape (L,)
        ``total - terms_l``; without meaning where the count is 0.
    """
    total = float(terms @ counts)
    rest = total - terms
    largest = int(np.where(counts > 0, terms, 0.0).argmax())
    if terms[largest] > 0.5 * total and counts[largest] > 0:
        others = counts.copy()
        others[largest] -= 1.0
        rest[largest] = terms @ others
    return total, rest


def refined_baselines(
    values: FloatArray,
    rewards: FloatArray,
    active: BoolArray,
    weighting: Weighting,
) -> FloatArray:
    """Baselines of Eq. 2 for one row a rollout.

    Parameters
    ----------
    values, rewards, active : arrays, shape (..., B)
    weighting : Weighting
        Terms of shape (..., B); those of inactive rows are not read.

    Returns
    -------
    array, shape (..., B)
        0 outside the active set, and where the denominator is 0 (Appendix E).
    """
    numerator = exclusive_sums(np.where(active, weighting.reward_terms * rewards, 0.0))
    mass = weighting.prior + exclusive_sums(np.where(active, weighting.mass_terms, 0.0))
    alone = mass <= 0
    refined = values * numerator / np.where(alone, 1.0, mass)
    return np.where(active & ~alone, refined, 0.0)


def weight_matrix(values: FloatArray, active: BoolArray, weighting: Weighting) -> FloatArray:
    """Matrix W of Fig. 1, ``b = W r``: Eq. 3 (Eq. 6 for active rows); the diagonal is 0.

    Parameters
    ----------
    values, active : arrays, shape (B,)

    Returns
    -------
    array, shape (B, B)
        Row i is 0 where prompt i, or every other prompt, is inactive.
    """
    mass = weighting.prior + exclusive_sums(np.where(active, weighting.mass_terms, 0.0))
    usable = active & (mass > 0)
    scale = np.divide(values, mass, out=np.zeros_like(values), where=usable)
    matrix = scale[:, None] * np.where(active, weighting.reward_terms, 0.0)[None, :]
    np.fill_diagonal(matrix, 0.0)
    return matrix


def bernoulli_weighting(variant: str, odds: FloatArray) -> Weighting:
    """Terms for 0/1 rewards from the odds ``V / (1 - V)`` instead of V.

    With s2 = V (1 - V): ``V/s2 = 1 + odds``, ``V^2/s2 = odds``, ``1/V = 1 + 1/odds``. Near V = 1
    the odds keep the digits that 1 - V has lost.

    Parameters
    ----------
    variant : {"unb", "vop", "rvg"}
    odds : array, positive and finite
    """
    if variant == "rvg":
        return Weighting(1.0 + 1.0 / odds, np.ones_like(odds), 0.0)
    return Weighting(1.0 + odds, odds, 1.0 if variant == "vop" else 0.0)
