"""What an estimator is given (`RewardBatch`) and what it gives back (`Estimate`)."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from basis_rl.errors import BatchError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


_NUMBERS = ("lengths", "greedy_rewards", "values", "divergences")
LARGEST_REWARD = 1e100  # squares of anything larger overflow
LARGEST_COUNT = 2**53 - 1  # so far, float64 holds every whole number


def as_keys(keys: Sequence[str | int] | npt.NDArray[np.generic], *, what: str) -> list[str]:
    """Prompt keys (or sources, or rollout ids) as a list of strings.

    Parameters
    ----------
    keys : sequence of str or int, shape (B,)
    what : str
        How an error names the sequence.

    Raises
    ------
    BatchError
        If an element is neither a string nor an integer.
    """
    if isinstance(keys, str | bytes):
        raise BatchError(f"{what} is the single string {keys!r}: pass a list with one per row")
    items: Any = keys.tolist() if isinstance(keys, np.ndarray) else keys
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise BatchError(f"{what} is a {type(keys).__name__}: pass a list with one per row")
    if set(map(type, items)) <= {str}:
        return list(items)
    for row, item in enumerate(items):
        if isinstance(item, bool) or not isinstance(item, str | int | np.integer):
            raise BatchError(
                f"{what}[{row}] is {item!r} ({type(item).__name__}): use strings or integers"
            )
    return [str(item) for item in items]


@dataclass(frozen=True)
class RewardBatch:
    """One step's rewards, one row a rollout (or a turn of a rollout).

    Attributes
    ----------
    keys : list of str, length B
        Prompt of each row; rows with the same key are rollouts of the same prompt. Integers
        are taken as their decimal strings.
    rewards : float64 array, shape (B,)
        NaN means *no verdict* (the verifier's infrastructure failed), never a wrong answer.
    sources : list of str, length B, optional
        Data set or task of each row.
    rollout_ids : list of str, length B, optional
        Rows of one prompt with the same id are turns of one rollout and share its reward.
        Without it every row is a rollout of its own.
    lengths : float64 array, shape (B,), optional
        Completion lengths in tokens, positive.
    step : int, optional
        The trainer's step.
    policy_version : int, optional
        Version of the policy that trains on the batch.
    row_versions : int array, shape (B,), optional
        Version of the policy that sampled each row; stale rows have less than `policy_version`.
    greedy_rewards : float64 array, shape (B,), optional
        Reward of the prompt's greedy answer (ReMax).
    values : float64 array, shape (B,), optional
        A critic's value of the row's prompt.
    divergences : float64 array, shape (B,), optional
        How far the policy moved since the prompt's last visit: mean absolute change of the
        log-probability per token (SPO's forgetting).

    Raises
    ------
    BatchError
        If the batch is empty, lengths differ, a reward is infinite (or beyond 1e100), a length is
        not positive, a step, version or length reaches 2**53, or one of the last three holds a NaN
        or does not fit its range.
    """

    keys: list[str]
    rewards: FloatArray
    sources: list[str] | None = field(default=None, kw_only=True)
    rollout_ids: list[str] | None = field(default=None, kw_only=True)
    lengths: FloatArray | None = field(default=None, kw_only=True)
    step: int | None = field(default=None, kw_only=True)
    policy_version: int | None = field(default=None, kw_only=True)
    row_versions: IntArray | None = field(default=None, kw_only=True)
    greedy_rewards: FloatArray | None = field(default=None, kw_only=True)
    values: FloatArray | None = field(default=None, kw_only=True)
    divergences: FloatArray | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # the dataclass is frozen
        set_field(self, "keys", as_keys(self.keys, what="keys"))
        set_field(self, "rewards", _as_floats(self.rewards, what="rewards"))
        for name in ("sources", "rollout_ids"):
            value = getattr(self, name)
            if value is not None:
                set_field(self, name, as_keys(value, what=name))
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is not None:
                set_field(self, name, _as_floats(value, what=name))
        for name in ("step", "policy_version"):
            value = getattr(self, name)
            if value is not None:
                set_field(self, name, _as_integer(value, what=name))
        if self.row_versions is not None:
            set_field(self, "row_versions", _as_integers(self.row_versions, what="row_versions"))
        self._check()

    def __len__(self) -> int:
        return len(self.keys)

    def _check(self) -> None:
        if not self.keys:
            raise BatchError("the batch is empty: an estimator needs at least one row")
        for name in ("rewards", "sources", "rollout_ids", "row_versions", *_NUMBERS):
            value = getattr(self, name)
            if value is not None and len(value) != len(self.keys):
                raise BatchError(
                    f"{name} has {len(value)} entries for {len(self.keys)} keys: pass one per row"
                )
        infinite = np.abs(self.rewards) > LARGEST_REWARD  # false for NaN
        if infinite.any():
            row = int(infinite.argmax())
            raise BatchError(
                f"rewards[{row}] is {self.rewards[row]} (prompt {self.keys[row]!r}): rewards are "
                f"finite and below {LARGEST_REWARD:g}; NaN stands for no verdict"
            )
        # Comparisons are false for NaN.
        if (x := self.lengths) is not None:
            usable = (x > 0) & (x <= LARGEST_COUNT)
            _refuse("lengths", x, usable, "a completion has at least one token, and below 2**53")
        for name in ("greedy_rewards", "values"):
            if (x := getattr(self, name)) is not None:
                _refuse(name, x, np.abs(x) <= LARGEST_REWARD, "pass a finite number per row")
        if (x := self.divergences) is not None:
            _refuse("divergences", x, x >= 0, "pass 0 or more")


@dataclass(frozen=True)
class Estimate:
    """Baselines and advantages of a batch.

    Attributes
    ----------
    baselines : float64 array, shape (B,)
        NaN in rows without a verdict.
    advantages : float64 array, shape (B,)
        ``rewards - baselines``; exactly 0 in rows without a verdict. Take those rows out of the
        loss's denominator: ``np.isnan(baselines)`` names them.
    metrics : dict of str to float
        Flat scalars about this call.
    """

    baselines: FloatArray
    advantages: FloatArray
    metrics: Mapping[str, float]


def group_index(keys: Sequence[Hashable]) -> IntArray:
    """Number of each row's prompt, in order of first appearance; shape (B,)."""
    number: dict[Hashable, int] = {}
    return np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64)


def sum_by(index: IntArray, values: FloatArray, size: int) -> FloatArray:
    """Sum of the values of each index 0, 1, …; shape (size,)."""
    return np.bincount(index, weights=values, minlength=size).astype(np.float64, copy=False)


def _refuse(what: str, values: npt.NDArray[Any], usable: BoolArray, remedy: str) -> None:
    """Refuse a column with a number that is not usable, naming the first."""
    if not usable.all():
        row = int(usable.argmin())
        raise BatchError(f"{what}[{row}] is {values[row]}: {remedy}")


def _as_floats(values: npt.ArrayLike, *, what: str) -> FloatArray:
    try:
        array = np.array(values, dtype=np.float64)  # a copy: checked once, and not changed later
    except (TypeError, ValueError) as error:
        raise BatchError(f"{what} cannot be read as numbers ({error}): pass floats") from None
    if array.ndim != 1:
        raise BatchError(f"{what} has shape {array.shape}: pass one number per row, shape (B,)")
    return array


def _as_integer(value: Any, *, what: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or abs(number) > LARGEST_COUNT:
        shown = repr(value)
        raise BatchError(
            f"{what} is {shown[:40]}{'…' * (len(shown) > 40)}: pass a whole number below 2**53"
        ) from None
    return number


def _as_integers(values: npt.ArrayLike, *, what: str) -> IntArray:
    array = np.array(values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise BatchError(
            f"{what} has shape {array.shape} and type {array.dtype}: pass one integer per row"
        )
    inside = (array >= -LARGEST_COUNT) & (array <= LARGEST_COUNT)
    _refuse(what, array, inside, "pass whole numbers below 2**53")
    return array.astype(np.int64)
