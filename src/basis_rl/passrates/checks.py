"""Checks of what a table of pass rates is made from; each error names row, prompt and remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from basis_rl.batch import FloatArray, IntArray
from basis_rl.batch import as_keys as batch_keys
from basis_rl.errors import BatchError, PassRatesError

Keys = Sequence[str | int] | npt.NDArray[np.generic]
Array = TypeVar("Array", FloatArray, IntArray)
MAX_COUNT = 2**31 - 1  # the file stores counts as int32


def as_keys(keys: Keys, *, what: str) -> list[str]:
    """Keys or sources as a list of strings."""
    try:
        return batch_keys(keys, what=what)
    except BatchError as error:
        raise PassRatesError(str(error)) from None


def index_of(keys: list[str]) -> dict[str, int]:
    """Row of each key; refuses an empty table, an empty key and a key that appears twice."""
    if not keys:
        raise PassRatesError("a table of pass rates needs at least one prompt: keys is empty")
    row_of = dict(zip(keys, range(len(keys)), strict=True))
    if len(row_of) < len(keys):
        first: dict[str, int] = {}
        for row, key in enumerate(keys):
            if first.setdefault(key, row) != row:
                raise PassRatesError(
                    f"key {key!r} is in rows {first[key]} and {row}: give each prompt one row (sum "
                    "the counts, or add the second row later with with_counts or with_rewards)"
                )
    if "" in row_of:
        raise PassRatesError(f"keys[{row_of['']}] is empty: give every prompt a key")
    return row_of


def whole_counts(
    values: npt.ArrayLike, prompts: int, keys: list[str], *, what: str, scalar: bool = False
) -> IntArray:
    """Read counts as an int64 array of shape (P,); a scalar stands for all prompts."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise PassRatesError(
            f"{what} is not an array ({error}): pass one integer per prompt"
        ) from None
    if array.ndim == 0 and scalar:
        array = np.broadcast_to(array, (prompts,))
    if array.ndim != 1:
        raise PassRatesError(f"{what} has shape {array.shape}: pass one integer per prompt")
    check_length(len(array), prompts, what=what)
    if array.dtype.kind not in "biuf":
        raise PassRatesError(f"{what}[0] is {array[0]!r} ({array.dtype}): pass integers")
    if array.dtype.kind == "f":
        whole = np.isfinite(array) & (array == np.rint(array))
        if not whole.all():
            row = int(whole.argmin())
            raise PassRatesError(
                f"{what}[{row}] is {array[row]} (prompt {keys[row]!r}): pass whole numbers, or the "
                "rewards themselves with from_rewards"
            )
    too_large = array > MAX_COUNT
    if too_large.any():
        row = int(too_large.argmax())
        raise PassRatesError(
            f"{what}[{row}] is {array[row]} (prompt {keys[row]!r}): counts go up to {MAX_COUNT}"
        )
    return array.astype(np.int64)


def check_n(n: IntArray, keys: list[str]) -> None:
    """Refuse a prompt without rollouts."""
    if n.min() < 1:
        row = int((n < 1).argmax())
        raise PassRatesError(
            f"n[{row}] is {n[row]} (prompt {keys[row]!r}): a prompt in the table has at least one "
            "rollout; leave it out"
        )


def check_successes(successes: IntArray, n: IntArray, keys: list[str]) -> None:
    """Refuse successes outside 0 to n."""
    bad = (successes < 0) | (successes > n)
    if bad.any():
        row = int(bad.argmax())
        raise PassRatesError(
            f"successes[{row}] is {successes[row]} of n = {n[row]} (prompt {keys[row]!r}): "
            "successes lie between 0 and n"
        )


def reward_list(values: npt.ArrayLike, row: int, keys: list[str]) -> list[float]:
    """One prompt's rewards as a list of floats."""
    prompt = f" (prompt {keys[row]!r})" if row < len(keys) else ""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise PassRatesError(
            f"rewards[{row}]{prompt} cannot be read as numbers ({error}): pass a list of floats"
        ) from None
    if array.ndim != 1 or array.size == 0:
        raise PassRatesError(
            f"rewards[{row}]{prompt} is {values!r}: pass a list with at least one reward per prompt"
        )
    rewards: list[float] = array.tolist()
    return rewards


def check_rewards(values: FloatArray, offsets: IntArray, keys: list[str]) -> None:
    """Refuse rewards that are not finite, or not one per rollout."""
    check_length(len(values), int(offsets[-1]), what="reward_values", of="rollouts")
    finite = np.isfinite(values)
    if not finite.all():
        position = int(finite.argmin())
        row = int(np.searchsorted(offsets, position, side="right")) - 1
        raise PassRatesError(
            f"rewards[{row}][{position - offsets[row]}] is {values[position]} (prompt "
            f"{keys[row]!r}): leave out rollouts without a verdict"
        )


def check_length(length: int, expected: int, *, what: str, of: str = "prompts") -> None:
    """Refuse an array that is not one per prompt."""
    if length != expected:
        raise PassRatesError(
            f"{what} has {length} entries for {expected} {of}: pass one per {of.rstrip('s')}"
        )


def frozen(array: Array) -> Array:
    """Make an array read-only."""
    array.flags.writeable = False
    return array
