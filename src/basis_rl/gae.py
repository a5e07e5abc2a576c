"""Generalised advantage estimation over tokens, for trainers with a critic."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from basis_rl.batch import FloatArray
from basis_rl.errors import BatchError, ConfigError
from basis_rl.whitening import as_mask, as_matrix


def gae(
    rewards: npt.ArrayLike,
    values: npt.ArrayLike,
    mask: npt.ArrayLike,
    gamma: float = 1.0,
    lam: float = 1.0,
) -> tuple[FloatArray, FloatArray]:
    r"""Advantages and returns of every token from a critic's values.

    ``A_t = d_t + gamma lam A_{t+1}`` with ``d_t = r_t + gamma V_{t+1} - V_t``, backwards over the
    mask's tokens alone; behind the last one ``V`` and ``A`` are 0. Returns are ``A_t + V_t``. With
    ``gamma = lam = 1``, ``A_t`` is the sum of the rewards from t on, minus ``V_t``.

    Parameters
    ----------
    rewards, values : arrays, shape (B, T)
        Of each token; what is outside the mask is ignored, a reward too.
    mask : array of 0 and 1, shape (B, T)
        1 for tokens that the policy wrote; tool output in between is skipped.
    gamma, lam : float
        0 to 1; 1 and 1 are verl's defaults.

    Returns
    -------
    advantages, returns : arrays, shape (B, T)
        0 outside the mask. Not whitened: `whitening.whiten_tokens` is the step that verl adds.

    Raises
    ------
    ConfigError
        If gamma or lam is outside 0 to 1.
    BatchError
        If shapes differ, or a number inside the mask is not finite.

    Notes
    -----
    verl's `compute_gae_advantage_return` without its whitening. verl carries the next token's
    advantage into the positions outside the mask.

    Source: J. Schulman et al., arXiv 1506.02438, Eq. 16.
    """
    for name, value in (("gamma", gamma), ("lam", lam)):
        if not 0.0 <= value <= 1.0:
            raise ConfigError(f"{name} is {value!r}: give a number from 0 to 1")
    inside = as_mask(mask)
    r = np.where(inside, as_matrix(rewards, inside.shape, what="rewards"), 0.0)
    v = np.where(inside, as_matrix(values, inside.shape, what="values"), 0.0)
    for what, numbers in (("rewards", r), ("values", v)):
        if not np.isfinite(numbers).all():
            row, token = np.argwhere(~np.isfinite(numbers))[0]
            raise BatchError(
                f"{what}[{row}, {token}] is {numbers[row, token]}: take the row out of the mask, "
                "or pass a finite number"
            )
    advantages = np.zeros(inside.shape)
    advantage, next_value = np.zeros(len(r)), np.zeros(len(r))
    for t in reversed(range(inside.shape[1])):
        here = inside[:, t]
        delta = r[:, t] + gamma * next_value - v[:, t]
        advantage = np.where(here, delta + gamma * lam * advantage, advantage)
        next_value = np.where(here, v[:, t], next_value)
        advantages[:, t] = np.where(here, advantage, 0.0)
    return advantages, advantages + v
