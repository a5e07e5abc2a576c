"""Weighted moments, and whitening of token-level advantages."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from basis_rl.batch import FloatArray
from basis_rl.errors import BatchError

WHITENING_EPSILON = 1e-8  # verl's and OpenRLHF's, on the variance


def weighted_moments(
    values: FloatArray, weights: FloatArray, *, unbiased: bool = True
) -> tuple[float, float]:
    """Mean ``sum w x / sum w`` and variance ``sum w (x - mean)^2 / (sum w - 1)``.

    Weights count observations: a row of L tokens weighs L, so the variance is that of its tokens.

    Parameters
    ----------
    values, weights : arrays, shape (B,)
        Weights are positive.
    unbiased : bool
        Divide by ``sum w - 1``; False divides by ``sum w``. With one observation the variance
        is 0 either way.
    """
    total = float(weights.sum())
    mean = float(weights @ values) / total
    squares = float(weights @ (values - mean) ** 2)
    return mean, squares / (total - 1.0 if unbiased and total > 1.0 else total)


def whiten_tokens(
    values: npt.ArrayLike, mask: npt.ArrayLike, *, shift_mean: bool = True
) -> FloatArray:
    """``(x - mean) / sqrt(var + 1e-8)`` with mean and variance over the mask's tokens.

    Parameters
    ----------
    values : array, shape (B, T)
        Ignored outside the mask.
    mask : array of 0 and 1, shape (B, T)
        At least one token.
    shift_mean : bool
        False adds the mean back after scaling (for rewards; verl's and TRL's option).

    Returns
    -------
    array, shape (B, T)
        0 outside the mask.

    Raises
    ------
    BatchError
        If the shapes differ, or the mask is empty or holds another number.

    Notes
    -----
    verl's `masked_whiten`: the variance is unbiased (over tokens, minus 1). verl refuses a single
    token, has 1e-8 added to the number of tokens, and leaves numbers outside the mask. TRL's PPO
    trainer had the same function; TRL 1.16 has no token-level advantages any more. OpenRLHF
    divides by the number of tokens and by ``sqrt(max(var, 1e-8))``.
    """
    inside = as_mask(mask)
    numbers = as_matrix(values, inside.shape, what="values")
    picked = numbers[inside]
    mean, variance = weighted_moments(picked, np.ones(len(picked)))
    whitened = (picked - mean) / np.sqrt(variance + WHITENING_EPSILON)
    result = np.zeros(inside.shape)
    result[inside] = whitened if shift_mean else whitened + mean
    return result


def as_mask(mask: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Mask of tokens as booleans.

    Raises
    ------
    BatchError
        If it is no matrix of 0 and 1 with at least one 1.
    """
    array = np.asarray(mask)
    if array.ndim != 2 or not ((array == 0) | (array == 1)).all() or not array.any():
        raise BatchError(
            f"mask has shape {array.shape}: pass 0 and 1, shape (rows, tokens), 1 for at least one "
            "token that the policy wrote"
        )
    return array.astype(np.bool_)


def as_matrix(values: npt.ArrayLike, shape: tuple[int, ...], *, what: str) -> FloatArray:
    """Numbers of every token, as float64.

    Raises
    ------
    BatchError
        If the shape is not the mask's.
    """
    array: npt.NDArray[Any] = np.asarray(values, dtype=np.float64)
    if array.shape != shape:
        raise BatchError(f"{what} has shape {array.shape} and the mask {shape}: pass equal shapes")
    return array
