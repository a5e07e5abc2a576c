"""Columns of a table of pass rates, to Arrow and back, a bounded number of rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from basis_rl.batch import FloatArray, IntArray
from basis_rl.errors import PassRatesError
from basis_rl.passrates.storage.texts import PackedTexts, is_many

if TYPE_CHECKING:
    from basis_rl.passrates.table import PassRates

ROWS = 2**20  # a row group; lists of rewards and texts stay within Arrow's 32 bits
REBUILD = "build it again with `basis-rl cache build`, or restore it from a copy"
TYPES = {
    "key": pa.string(),
    "source": pa.string(),
    "prompt_hash": pa.string(),
    "n": pa.int32(),
    "successes": pa.int32(),
    "rewards": pa.list_(pa.float64()),
    "rate": pa.float64(),
}
OPTIONAL = ("source", "prompt_hash")
# What there is beside the keys, by kind of table.
NUMBERS = {"counts": ("n", "successes"), "rewards": ("n", "rewards"), "rates": ("rate",)}


class Read(NamedTuple):
    """Arguments of a table that were read from a file."""

    keys: Sequence[str]
    n: IntArray | int
    successes: IntArray | None
    reward_values: FloatArray | None
    rates: FloatArray | None
    sources: list[str] | None
    prompt_hashes: Sequence[str] | None


def schema(table: PassRates) -> pa.Schema:
    """Fields of a table's file, in order."""
    present = {"source": table.sources, "prompt_hash": table.prompt_hashes}
    names = [
        "key",
        *(name for name in OPTIONAL if present[name] is not None),
        *NUMBERS[table.kind],
    ]
    return pa.schema([_field(name) for name in names])


def _field(name: str) -> pa.Field:
    if name == "rewards":
        # As Arrow's own constructor of lists has it: files of schema version 1 do.
        return pa.field(name, pa.list_(pa.float64()), nullable=False)
    return pa.field(name, TYPES[name], nullable=False)


def groups(table: PassRates, fields: pa.Schema) -> Iterator[pa.Table]:
    """Row groups of a table.

    Raises
    ------
    PassRatesError
        If a text cannot be stored.
    """
    for start in range(0, len(table), ROWS):
        rows = slice(start, min(start + ROWS, len(table)))
        yield pa.table([_column(table, name, rows) for name in fields.names], schema=fields)


def _column(table: PassRates, name: str, rows: slice) -> pa.Array:
    if name in ("key", *OPTIONAL):
        values = {"key": table.keys, "source": table.sources, "prompt_hash": table.prompt_hashes}
        texts = values[name]
        assert texts is not None
        return _strings(texts[rows], name)
    if name == "rewards":
        assert table.reward_offsets is not None
        assert table.reward_values is not None
        offsets = table.reward_offsets[rows.start : rows.stop + 1]
        inside = table.reward_values[offsets[0] : offsets[-1]]
        return pa.ListArray.from_arrays(
            pa.array(offsets - offsets[0], pa.int32()), pa.array(inside, pa.float64())
        )
    numbers = {"n": table.n, "successes": table.successes, "rate": table.rates}[name]
    assert numbers is not None
    return pa.array(numbers[rows], TYPES[name])


def _strings(values: Sequence[str], what: str) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        bad = next(value for value in values if not _is_unicode(value))
        raise PassRatesError(
            f"{what} {bad!r} is not valid Unicode and cannot be stored: rename it"
        ) from None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_schema(fields: pa.Schema, name: str) -> list[str]:
    """Names of the columns to read, of a file that has them with the right types.

    Raises
    ------
    PassRatesError
        If a column is missing or has another type.
    """
    there = set(fields.names)
    kind = "counts"
    if "successes" not in there:
        kind = next((k for k in ("rewards", "rates") if NUMBERS[k][-1] in there), kind)
    wanted = ["key", *(o for o in OPTIONAL if o in there), *NUMBERS[kind]]
    for column in wanted:
        if column not in there:
            raise PassRatesError(f"{name} has no column {column!r}; {REBUILD}")
        found = fields.field(column).type
        if not found.equals(TYPES[column]):
            raise PassRatesError(
                f"{name}: column {column!r} is {found}, not {TYPES[column]}; {REBUILD}"
            )
    return wanted


class Collector:
    """Columns of a file, put together from record batches.

    Parameters
    ----------
    names : list of str
        Columns to expect.
    rows : int
        Rows of the whole file.
    """

    def __init__(self, names: Sequence[str], rows: int) -> None:
        packed = is_many(rows)
        self._texts: dict[str, Texts] = {
            name: Texts(packed=packed) for name in names if name in ("key", "prompt_hash")
        }
        self._numbers: dict[str, list[npt.NDArray[Any]]] = {
            name: [] for name in names if TYPES[name] in (pa.int32(), pa.float64())
        }
        self._values: list[FloatArray] = []
        self._lengths: list[IntArray] = []
        self._sources: list[npt.NDArray[np.object_]] = []
        self._names = names
        self._nulls = dict.fromkeys(names, 0)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a record batch in."""
        for name in self._names:
            column = batch.column(name)
            self._nulls[name] += column.null_count
            if name == "rewards":
                self._nulls[name] += column.flatten().null_count
        if any(self._nulls.values()):
            return  # `read` will refuse it
        for name, texts in self._texts.items():
            texts.add(batch.column(name))
        for name, parts in self._numbers.items():
            parts.append(batch.column(name).to_numpy())
        if "source" in self._names:
            coded = batch.column("source").dictionary_encode()
            # All rows of a source share one string.
            names = np.array(coded.dictionary.to_pylist(), dtype=object)
            self._sources.append(names[coded.indices.to_numpy()])
        if "rewards" in self._names:
            rewards = batch.column("rewards")
            self._values.append(rewards.flatten().to_numpy())
            self._lengths.append(np.diff(rewards.offsets.to_numpy()).astype(np.int64))

    def read(self, name: str) -> Read:
        """All columns.

        Raises
        ------
        PassRatesError
            If a column has nulls, or the rewards are not as many as ``n`` says.
        """
        for column, nulls in self._nulls.items():
            if nulls:
                raise PassRatesError(f"{name}: column {column!r} has {nulls} nulls; {REBUILD}")
        numbers = {column: _joined(self._numbers.pop(column)) for column in list(self._numbers)}
        values = None
        if "rewards" in self._names:
            values = _joined(self._values)
            if not np.array_equal(_joined(self._lengths), numbers["n"]):
                raise PassRatesError(f"{name} is damaged: rewards do not match column n; {REBUILD}")
        hashes = self._texts.get("prompt_hash")
        return Read(
            self._texts["key"].whole(),
            numbers.get("n", 0),
            numbers.get("successes"),
            values,
            numbers.get("rate"),
            _joined(self._sources).tolist() if "source" in self._names else None,
            None if hashes is None else hashes.whole(),
        )


class Texts:
    """A column of texts: a list, or packed without a string of Python's for each."""

    def __init__(self, *, packed: bool) -> None:
        self._is_packed = packed
        self._list: list[str] = []
        self._data: list[npt.NDArray[np.uint8]] = []
        self._lengths: list[IntArray] = []

    def add(self, column: pa.StringArray) -> None:
        """Take some rows in."""
        if not self._is_packed:
            self._list += column.to_numpy(zero_copy_only=False).tolist()
            return
        _, offsets, data = column.buffers()
        ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
        # A copy: the buffer may be the whole row group's.
        self._data.append(np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]].copy())
        self._lengths.append(np.diff(ends).astype(np.int64))

    def whole(self) -> Sequence[str]:
        """All rows; call it once."""
        if not self._is_packed:
            return self._list
        data, lengths, self._data, self._lengths = self._data, self._lengths, [], []
        return PackedTexts.of_bytes(data, lengths)


def _joined(parts: Iterable[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    arrays = list(parts)
    if not arrays:
        return np.empty(0)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
