"""Initial values of a prompt: pass rate, tilted value (Prop. 2), tilted moments (Appendix E)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from basis_rl.batch import FloatArray
from basis_rl.errors import ConfigError


def beta_grid() -> FloatArray:
    """The paper's 230 candidates for beta: 0.01, 0.02, …, 2.00, then 2.1, 2.2, …, 5.0.

    Source: arXiv 2605.27293, Appendix D.
    """
    return np.concatenate([np.arange(1, 201) / 100, np.arange(21, 51) / 10])


def check_betas(betas: npt.ArrayLike) -> FloatArray:
    """Betas as an increasing array.

    Raises
    ------
    ConfigError
        If there is none, or one is not positive (infinity, the reference policy, is allowed).
    """
    try:
        array = np.unique(np.asarray(betas, dtype=np.float64))
    except (TypeError, ValueError):
        raise ConfigError(f"betas is {betas!r:.60}: give a list of positive numbers") from None
    wrong = array[~(array >= 1e-300)]  # NaN fails the comparison too
    if array.size == 0 or wrong.size:
        shown = f"has {float(wrong[0])}" if wrong.size else "is empty"
        raise ConfigError(f"betas {shown}: give one or more positive numbers")
    return array


def logit_of_counts(successes: npt.ArrayLike, failures: npt.ArrayLike) -> FloatArray:
    """Logit of a pass rate, ``log(successes / failures)``, from (pseudo-)counts.

    Minus or plus infinity where one count is 0. Counts, not the rate, keep full precision near 1.
    """
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(successes) - np.log(failures), dtype=np.float64)


def logit_of_value(value: float) -> float:
    """``log(V / (1 - V))``."""
    return float(np.log(value) - np.log1p(-value))


def sigmoid(x: npt.ArrayLike) -> FloatArray:
    """``1 / (1 + exp(-x))``, accurate relative to the result at both ends."""
    with np.errstate(over="ignore"):  # exp(-x) = inf gives the right limit, 0
        return np.asarray(1.0 / (1.0 + np.exp(-np.asarray(x, dtype=np.float64))))


def tilted_value(logits: npt.ArrayLike, inverse_beta: npt.ArrayLike) -> FloatArray:
    r"""Value of the tilted policy for 0/1 rewards, ``sigmoid(logit p + 1/beta)``.

    Proposition 2 with a Bernoulli reward: ``p e^{1/beta} / (p e^{1/beta} + 1 - p)``, written so
    that no exponential overflows. The inverse beta may be negative: a policy worse than its
    reference.

    Parameters
    ----------
    logits : array
        Logit of the reference pass rate.
    inverse_beta : array
        ``1/beta``; broadcast against ``logits``.

    Returns
    -------
    array in [0, 1]
    """
    return sigmoid(np.add(logits, inverse_beta))


def active_set(values: FloatArray, epsilon: float = 1e-6) -> npt.NDArray[np.bool_]:
    """Prompts with ``epsilon < V < 1 - epsilon`` (Section 4): the others get baseline 0."""
    return (values > epsilon) & (values < 1.0 - epsilon)


def tilted_moments(
    rewards: FloatArray, inverse_beta: npt.ArrayLike, weights: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    r"""Mean and variance of the reward under the tilted policy, from reference rewards.

    ``V = sum q r / sum q`` and ``M2 = sum q r^2 / sum q`` with ``q_m = w_m exp(r_m / beta)``; the
    variance ``M2 - V^2`` is summed around the mean, so it is never negative. Appendix E, before
    the floor delta.

    Parameters
    ----------
    rewards : array, shape (B, M)
    inverse_beta : array, shape () or (B,)
    weights : array, shape (B, M), optional
        Non-negative, not all 0 in a row; 0 marks padding. All 1 when omitted.

    Returns
    -------
    means, variances : arrays, shape (B,)
    """
    exponents = np.expand_dims(np.asarray(inverse_beta, dtype=np.float64), -1) * rewards
    if weights is None:
        weights = np.ones_like(rewards)
    exponents = np.where(weights > 0, exponents, -np.inf)
    # The largest exponent cancels in the ratio; without it exp overflows at small beta.
    q = weights * np.exp(exponents - exponents.max(axis=-1, keepdims=True))
    q /= q.sum(axis=-1, keepdims=True)
    means = (q * rewards).sum(axis=-1)
    variances = (q * (rewards - means[..., None]) ** 2).sum(axis=-1)
    return means, variances
