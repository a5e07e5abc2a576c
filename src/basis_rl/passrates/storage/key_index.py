"""Row of a key: a dict for small tables, sorted hashes for large ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from basis_rl.batch import IntArray
from basis_rl.errors import PassRatesError
from basis_rl.passrates.storage.texts import PackedTexts


class DictIndex:
    """Rows of keys in a list."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._row_of = dict(zip(keys, range(len(keys)), strict=True))
        if len(self._row_of) < len(keys):
            refuse_repeats(keys, range(len(keys)))
        refuse_empty_key(self._row_of.get("", -1))

    def rows(self, keys: list[str]) -> IntArray:
        """Row of each key, -1 where there is none; int64, shape (B,)."""
        return np.fromiter(map(self._row_of.get, keys, repeat(-1)), dtype=np.int64, count=len(keys))


class HashIndex:
    """Rows of packed keys: 12 bytes a key, and each hit is compared with the key itself.

    Parameters
    ----------
    keys : PackedTexts
    hash_of : callable
        64-bit hash of a key; Python's own, which differs from process to process.
    """

    def __init__(self, keys: PackedTexts, *, hash_of: Callable[[str], int] = hash) -> None:
        self._keys = keys
        self._hash_of = hash_of
        hashes = np.empty(len(keys), dtype=np.int64)
        start = 0
        for chunk in keys.chunks():
            hashes[start : start + len(chunk)] = self._hashes_of(chunk)
            start += len(chunk)
        order = np.argsort(hashes, kind="stable")
        # Half the memory; a table of 4 billion prompts fits in no machine that this runs on.
        self._row_at = order.astype(np.uint32)
        del order
        hashes.sort()
        self._hashes = hashes
        self._refuse_repeats()
        refuse_empty_key(int(self.rows([""])[0]))

    def rows(self, keys: list[str]) -> IntArray:
        """Row of each key, -1 where there is none; int64, shape (B,)."""
        hashes = self._hashes_of(keys)
        place = np.searchsorted(self._hashes, hashes)
        np.minimum(place, len(self._hashes) - 1, out=place)
        rows: IntArray = np.full(len(keys), -1, dtype=np.int64)
        hit = np.flatnonzero(self._hashes[place] == hashes)
        if not len(hit):
            return rows
        candidates = self._row_at[place[hit]].astype(np.int64)
        for number, row, text in zip(
            hit.tolist(), candidates.tolist(), self._keys.at(candidates), strict=True
        ):
            rows[number] = row if text == keys[number] else self._next(keys[number], place[number])
        return rows

    def _next(self, key: str, place: int) -> int:
        """Row of a key whose hash is another key's too, behind a place in the sorted hashes."""
        for later in range(place + 1, len(self._hashes)):
            if self._hashes[later] != self._hashes[place]:
                break
            row = int(self._row_at[later])
            if self._keys[row] == key:
                return row
        return -1

    def _refuse_repeats(self) -> None:
        same = np.zeros(len(self._hashes) + 1, dtype=np.bool_)
        np.equal(self._hashes[1:], self._hashes[:-1], out=same[1:-1])
        shared = np.flatnonzero(same[1:] | same[:-1])
        if len(shared):
            rows = np.sort(self._row_at[shared].astype(np.int64))
            refuse_repeats(self._keys, rows.tolist())

    def _hashes_of(self, keys: Sequence[str]) -> IntArray:
        return np.fromiter(map(self._hash_of, keys), np.int64, len(keys))

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process has other hashes.
        return HashIndex, (self._keys,)


KeyIndex = DictIndex | HashIndex


def index_of(keys: Sequence[str]) -> KeyIndex:
    """Index of a table's keys.

    Raises
    ------
    PassRatesError
        If there is no key, one is empty, or one appears twice.
    """
    if not len(keys):
        raise PassRatesError("a table of pass rates needs at least one prompt: keys is empty")
    return HashIndex(keys) if isinstance(keys, PackedTexts) else DictIndex(keys)


def refuse_repeats(keys: Sequence[str], rows: Sequence[int]) -> None:
    """Refuse a key that is in two of the rows, naming both."""
    first: dict[str, int] = {}
    for row in rows:
        key = keys[row]
        if first.setdefault(key, row) != row:
            raise PassRatesError(
                f"key {key!r} is in rows {first[key]} and {row}: give each prompt one row (sum "
                "the counts, or add the second row later with with_counts or with_rewards)"
            )


def refuse_empty_key(row: int) -> None:
    """Refuse the row of an empty key; -1 is none."""
    if row >= 0:
        raise PassRatesError(f"keys[{row}] is empty: give every prompt a key")
