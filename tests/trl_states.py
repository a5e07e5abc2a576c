"""Comparing states of estimators, which may hold arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def same_state(one: Any, other: Any) -> bool:
    """Whether two states hold the same, to the bit."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return bool(np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind == "f"))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_state(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_state, one, other))
    return bool(one == other) or (one != one and other != other)  # NaN
