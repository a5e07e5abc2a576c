"""A few numbers for every prompt that an estimator has met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from basis_rl.batch import FloatArray, IntArray
from basis_rl.errors import StateError


class PromptStates:
    """Columns of numbers, one row a prompt, found by its key; rows are added as prompts appear.

    Parameters
    ----------
    initial : mapping of str to float
        Columns, and what a prompt has there when it is first met.
    """

    def __init__(self, initial: Mapping[str, float]) -> None:
        self.initial = dict(initial)
        self._row: dict[str, int] = {}
        self._columns = {name: np.full(64, value) for name, value in self.initial.items()}

    def __len__(self) -> int:
        return len(self._row)

    def __getitem__(self, column: str) -> FloatArray:
        """Column, shape (P,); a view, to be changed in place."""
        return self._columns[column][: len(self._row)]

    def known(self, keys: Sequence[str]) -> IntArray:
        """Row of each key, -1 where it was never met; shape (B,)."""
        get = self._row.get
        return np.array([get(key, -1) for key in keys], dtype=np.int64)

    def rows(self, keys: Sequence[str]) -> IntArray:
        """Row of each key, shape (B,); new keys get a row with the initial numbers."""
        number = self._row
        rows = np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64)
        size = len(next(iter(self._columns.values())))
        if len(number) > size:
            more = max(len(number), 2 * size) - size
            for name, value in self.initial.items():
                self._columns[name] = np.concatenate([self._columns[name], np.full(more, value)])
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Keys and columns, for `state_dict`; about 0.1 s for a million prompts."""
        encoded = [key.encode("utf-8", "surrogatepass") for key in self._row]
        sizes = np.array([len(key) for key in encoded], dtype=np.int32)
        columns = {name: self[name].copy() for name in self.initial}
        return {
            "keys": np.frombuffer(b"".join(encoded), dtype=np.uint8),
            "key_sizes": sizes,
            "columns": columns,
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Inverse of `to_dict`.

        Raises
        ------
        StateError
            If a column is missing or has another length than the keys.
        """
        text = np.asarray(saved["keys"], dtype=np.uint8).tobytes()
        ends = np.cumsum(np.asarray(saved["key_sizes"], dtype=np.int64))
        if (ends[-1] if len(ends) else 0) != len(text):
            raise StateError(
                f"the saved prompt keys have {len(text)} bytes, and their sizes sum to another "
                "number: resume from an earlier checkpoint"
            )
        starts = [0, *ends[:-1].tolist()]
        keys = [
            text[start:end].decode("utf-8", "surrogatepass")
            for start, end in zip(starts, ends.tolist(), strict=False)
        ]
        columns: dict[str, npt.NDArray[np.float64]] = {}
        for name in self.initial:
            if name not in saved["columns"]:
                raise StateError(f"the saved prompts have no {name!r}: resume with this version's")
            column = np.array(saved["columns"][name], dtype=np.float64)
            if column.shape != (len(keys),):
                raise StateError(
                    f"the saved {name!r} has shape {column.shape} for {len(keys)} prompts: resume "
                    "from an earlier checkpoint"
                )
            columns[name] = column if len(column) else np.full(64, self.initial[name])
        self._row = {key: row for row, key in enumerate(keys)}
        if len(self._row) != len(keys):
            raise StateError("the saved prompts repeat a key: resume from an earlier checkpoint")
        self._columns = columns
