"""Checks of what a table of pass rates is made from; each error names row, prompt and remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from basis_rl.batch import FloatArray, IntArray
from basis_rl.batch import as_keys as batch_keys
from basis_rl.errors import BatchError, PassRatesError
from basis_rl.passrates.keys import HASH_DIGITS
from basis_rl.passrates.storage.texts import PackedTexts, compact

Keys = Sequence[str | int] | npt.NDArray[np.generic]
Array = TypeVar("Array", FloatArray, IntArray)
_HASH = re.compile(rf"(?:[0-9a-f]{{{HASH_DIGITS},32}})?")
MAX_COUNT = 2**31 - 1  # the file stores counts as int32


def as_keys(keys: Keys, *, what: str) -> list[str]:
    """Keys or sources as a list of strings."""
    try:
        return batch_keys(keys, what=what)
    except BatchError as error:
        raise PassRatesError(str(error)) from None


def as_texts(keys: Keys, *, what: str) -> Sequence[str]:
    """Keys or hashes as a list of strings, or packed if they are many."""
    return keys if isinstance(keys, PackedTexts) else compact(as_keys(keys, what=what))


def hashes(values: Keys, keys: Sequence[str]) -> Sequence[str]:
    """Prompt hashes as `prompt_hash` gives them, one per prompt; longer ones are cut."""
    given = as_texts(values, what="prompt_hashes")
    check_length(len(given), len(keys), what="prompt_hashes")
    is_long = False
    for row, value in enumerate(given):
        if not _HASH.fullmatch(value):
            raise PassRatesError(
                f"prompt_hashes[{row}] is {value!r} (prompt {keys[row]!r}): give what "
                "basis_rl.passrates.prompt_hash(prompt) returns, or '' if unknown"
            )
        is_long = is_long or len(value) > HASH_DIGITS
    return compact([value[:HASH_DIGITS] for value in given]) if is_long else given


def whole_rates(values: npt.ArrayLike, keys: Sequence[str]) -> FloatArray:
    """Pass rates from 0 to 1 as a float64 array of shape (P,)."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise PassRatesError(
            f"rates cannot be read as numbers ({error}): pass one from 0 to 1 per prompt"
        ) from None
    if array.ndim != 1:
        raise PassRatesError(f"rates has shape {array.shape}: pass one number per prompt")
    check_length(len(array), len(keys), what="rates")
    bad = ~((array >= 0.0) & (array <= 1.0))  # true for NaN
    if bad.any():
        row = int(bad.argmax())
        is_nan = bool(np.isnan(array[row]))
        remedy = "leave prompts without a rate out" if is_nan else "divide percentages by 100"
        raise PassRatesError(
            f"rates[{row}] is {array[row]} (prompt {keys[row]!r}): rates lie between 0 and 1; "
            f"{remedy}"
        )
    return array


def whole_counts(
    values: npt.ArrayLike, prompts: int, keys: Sequence[str], *, what: str, scalar: bool = False
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


def check_n(n: IntArray, keys: Sequence[str]) -> None:
    """Refuse a prompt without rollouts."""
    if n.min() < 1:
        row = int((n < 1).argmax())
        raise PassRatesError(
            f"n[{row}] is {n[row]} (prompt {keys[row]!r}): a prompt in the table has at least one "
            "rollout; leave it out"
        )


def check_successes(successes: IntArray, n: IntArray, keys: Sequence[str]) -> None:
    """Refuse successes outside 0 to n."""
    bad = (successes < 0) | (successes > n)
    if bad.any():
        row = int(bad.argmax())
        raise PassRatesError(
            f"successes[{row}] is {successes[row]} of n = {n[row]} (prompt {keys[row]!r}): "
            "successes lie between 0 and n"
        )


def reward_list(values: npt.ArrayLike, row: int, keys: Sequence[str]) -> list[float]:
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


def check_rewards(values: FloatArray, offsets: IntArray, keys: Sequence[str]) -> None:
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
