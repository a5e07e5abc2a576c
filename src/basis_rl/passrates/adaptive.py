"""Where further rollouts are worth most: a stopping rule for each prompt's pass rate.

The error of a mean of n rewards is v / n, v the variance of the prompt's rewards; one more rollout
lowers it by about v / n^2. Sampling where that is largest makes n proportional to sqrt(v), the
allocation with the least mean error for its number of rollouts (Neyman). For rewards of 0 and 1
v = V (1 - V): a prompt that is solved half of the time gets all ``limit`` rollouts, one that is
never or always solved the fewest. As v is not known it is replaced by its posterior mean, under a
prior fitted to all prompts: no successes in 8 rollouts do not prove V = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from basis_rl.batch import FloatArray, IntArray
from basis_rl.errors import PassRatesError
from basis_rl.smoothing import fit_beta_binomial

FIRST = 8
STEP = 8  # a request for one rollout costs a whole prefill, and every stage its slowest answer
PRIOR_ROLLOUTS = 1.0  # what the pooled variance of real rewards counts
FULL_VARIANCE = 0.25  # of rewards 0 and 1 at V = 1/2
_TOP_QUANTILE = 0.9  # real rewards: prompts with this variance get all rollouts
_LEAST_PSEUDO_COUNT = 0.5


@dataclass(frozen=True)
class Savings:
    """What adaptive sampling saved against ``limit`` rollouts of every prompt.

    Attributes
    ----------
    rollouts, fixed_rollouts : int
        Sampled so far, and what ``limit`` each would have been.
    share_saved : float
        1 - rollouts / fixed_rollouts.
    error, fixed_error : float
        Root mean square error of the pass rates that is expected at the rollouts they have, and
        at ``limit`` each; in units of the reward.
    equivalent_n : float
        Rollouts of every prompt alike that would have the error ``error``.
    """

    rollouts: int
    fixed_rollouts: int
    share_saved: float
    error: float
    fixed_error: float
    equivalent_n: float


def next_rollouts(
    sums: npt.ArrayLike,
    squares: npt.ArrayLike,
    given: npt.ArrayLike,
    sampled: npt.ArrayLike,
    *,
    limit: int,
    first: int = FIRST,
) -> IntArray:
    r"""Rollouts to sample now of each prompt; 0 where it is done.

    The wanted number is ``limit * sqrt(E[v] / v_full)``, E[v] the posterior mean of the variance
    of the prompt's reward and v_full that of V = 1/2 (of real rewards, the 90% quantile). It is
    asked for in multiples of 8, and at most as many as the prompt has, so that few rollouts are
    not taken on the word of a few. Ask again when all of them are sampled, until all are 0. The
    result does not depend on the order of the prompts.

    Parameters
    ----------
    sums, squares : array of float, shape (P,)
        Sum of the rewards that have a verdict, and of their squares.
    given : array of int, shape (P,)
        Rollouts with a verdict.
    sampled : array of int, shape (P,)
        Rollouts sampled, with a verdict or without; never more than ``limit`` in the end.
    limit : int
        Most rollouts of a prompt.
    first : int
        Rollouts that every prompt gets.

    Returns
    -------
    int64 array, shape (P,)

    Raises
    ------
    PassRatesError
        If ``limit`` or ``first`` is not positive, lengths differ, or the numbers contradict each
        other.
    """
    if limit < 1 or first < 1:
        raise PassRatesError(f"limit is {limit} and first {first}: use positive numbers")
    total, total_squares, counts, taken = _checked(sums, squares, given, sampled)
    variance, full = _variances(total, total_squares, counts, floor=_LEAST_PSEUDO_COUNT)
    wanted = np.minimum(np.sqrt(variance / full), 1.0) * limit
    missing = np.maximum(wanted - counts, 0.0)
    rollouts: IntArray = (np.ceil(missing / STEP) * STEP).astype(np.int64)
    rollouts = np.minimum(rollouts, np.maximum(taken, first))
    rollouts = np.where(taken < first, first - taken, rollouts)
    return np.minimum(rollouts, np.maximum(limit - taken, 0))


def expected_error(
    sums: npt.ArrayLike,
    squares: npt.ArrayLike,
    given: npt.ArrayLike,
    *,
    n: npt.ArrayLike | None = None,
) -> float:
    r"""Root mean square error that is expected of the pass rates, ``sqrt(mean(E[v_i] / n_i))``.

    Parameters
    ----------
    sums, squares : array of float, shape (P,)
        Sum of a prompt's rewards, and of their squares; for counts, the successes twice.
    given : array of int, shape (P,)
        Rollouts with a verdict; prompts with none are left out.
    n : int or array of int, shape (P,), optional
        Rollouts to state the error for; by default those given.

    Returns
    -------
    float
        In units of the reward; NaN if no prompt has a verdict.

    Raises
    ------
    PassRatesError
        If lengths differ or the numbers contradict each other.
    """
    total, total_squares, counts, _ = _checked(sums, squares, given, given)
    seen = counts > 0
    if not seen.any():
        return math.nan
    variance, _ = _variances(total, total_squares, counts, floor=0.0)
    at = counts if n is None else np.broadcast_to(np.asarray(n, dtype=np.float64), counts.shape)
    return math.sqrt(math.fsum((variance[seen] / at[seen]).tolist()) / int(seen.sum()))


def savings(
    sums: npt.ArrayLike,
    squares: npt.ArrayLike,
    given: npt.ArrayLike,
    sampled: npt.ArrayLike,
    *,
    limit: int,
) -> Savings:
    """What was saved against ``limit`` rollouts of every prompt; parameters as `next_rollouts`."""
    *_, taken = _checked(sums, squares, given, sampled)
    rollouts, fixed = int(taken.sum()), limit * len(taken)
    error = expected_error(sums, squares, given)
    fixed_error = expected_error(sums, squares, given, n=limit)
    alike = limit * (fixed_error / error) ** 2 if error > 0 else float(limit)
    return Savings(
        rollouts,
        fixed,
        1.0 - rollouts / fixed if fixed else 0.0,
        error,
        fixed_error,
        alike,
    )


def _variances(
    sums: FloatArray, squares: FloatArray, given: FloatArray, *, floor: float
) -> tuple[FloatArray, float]:
    """Posterior mean of each prompt's variance of rewards, and the variance that gets ``limit``."""
    if np.array_equal(sums, squares) and np.array_equal(sums, np.rint(sums)):
        a, b = _prior(sums, given, floor)
        total = given + a + b
        return (sums + a) * (given - sums + b) / (total * (total + 1.0)), FULL_VARIANCE
    seen = given > 0
    inside = np.zeros_like(sums)
    inside[seen] = np.maximum(squares[seen] - sums[seen] ** 2 / given[seen], 0.0)
    # fsum: the same to the last bit in any order of the prompts.
    freedom = math.fsum((given[seen] - 1.0).tolist())
    pooled = math.fsum(inside.tolist()) / freedom if freedom else 0.0
    if pooled == 0.0:  # no prompt's rewards differ: done where there are two, open elsewhere
        return np.where(given > 1, 0.0, FULL_VARIANCE), FULL_VARIANCE
    variance = (inside + PRIOR_ROLLOUTS * pooled) / (np.maximum(given - 1.0, 0.0) + PRIOR_ROLLOUTS)
    return variance, float(np.quantile(variance, _TOP_QUANTILE))


def _prior(successes: FloatArray, given: FloatArray, floor: float) -> tuple[float, float]:
    """Beta distribution of the pass rates, fitted to all prompts and two of one rollout each."""
    counts = np.append(successes, [0, 1]).astype(np.int64)
    a, b = fit_beta_binomial(counts, np.append(given, [1, 1]).astype(np.int64))
    return max(a, floor), max(b, floor)


def _checked(
    sums: npt.ArrayLike, squares: npt.ArrayLike, given: npt.ArrayLike, sampled: npt.ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray, IntArray]:
    total, total_squares = (np.asarray(x, dtype=np.float64) for x in (sums, squares))
    counts, taken = np.asarray(given, dtype=np.float64), np.asarray(sampled, dtype=np.int64)
    shapes = {array.shape for array in (total, total_squares, counts, taken)}
    if len(shapes) > 1 or total.ndim != 1:
        raise PassRatesError(
            f"sums, squares, given and sampled have shapes {total.shape}, {total_squares.shape}, "
            f"{counts.shape} and {taken.shape}: pass one number per prompt in each"
        )
    bad = (counts < 0) | (counts > taken) | ~np.isfinite(total) | ~(total_squares >= 0)
    if bad.any():
        row = int(bad.argmax())
        raise PassRatesError(
            f"row {row} has sum {total[row]}, squares {total_squares[row]}, {counts[row]:.0f} "
            f"rollouts with a verdict of {taken[row]} sampled: pass finite sums, and no more "
            "verdicts than rollouts"
        )
    return total, total_squares, counts, taken
