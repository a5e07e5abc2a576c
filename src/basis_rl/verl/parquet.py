"""Keys of the rows of a Parquet file, each different prompt hashed once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from basis_rl.adapters.rows import RowNames
from basis_rl.batch import IntArray
from basis_rl.errors import BasisError, BatchError, ConfigError, PromptsError
from basis_rl.passrates.keys import prompt_key

_ROWS = 1 << 18  # of a batch: large, so that prompts that come again are hashed seldom


class ParquetPart:
    """One file of the training data.

    Parameters
    ----------
    path : Path
    names : RowNames

    Raises
    ------
    PromptsError
        If the file is damaged.
    ConfigError
        If a column is missing.
    """

    def __init__(self, path: Path, names: RowNames) -> None:
        self.path = path
        self._names = names
        try:
            with pq.ParquetFile(path) as file:
                self._rows, columns = file.metadata.num_rows, file.schema_arrow.names
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error) from error
        names.check(columns)

    def __len__(self) -> int:
        return int(self._rows)

    def row_keys(self) -> list[str]:
        """Key of each row.

        Raises
        ------
        BatchError
            If a key or a source is missing or empty, or a prompt cannot be hashed.
        """
        names = self._names
        if names.source_column is not None:
            self._values(names.source_column)
        return self.codes() if names.key_column is None else self._values(names.key_column)

    def codes(self) -> list[str]:
        """Content hash of each row's prompt."""
        column, known, codes = self._names.prompt_column, dict[Any, str](), list[str]()
        for prompts in self._column(column):
            number, first = distinct(prompts)
            keys = [
                self._hashed(prompt, len(codes) + row, known)
                for row, prompt in zip(first.tolist(), prompts.take(first).to_pylist(), strict=True)
            ]
            codes.extend(map(keys.__getitem__, number.tolist()))
        return codes

    def prompt(self, row: int) -> Any:
        """Prompt in a row."""
        start = 0
        for prompts in self._column(self._names.prompt_column):
            if row < start + len(prompts):
                return prompts[row - start].as_py()
            start += len(prompts)
        raise IndexError(row)

    def rows(self, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        """Rows with some of the columns, as far as there are such."""
        try:
            with pq.ParquetFile(self.path) as file:
                wanted = [name for name in columns if name in file.schema_arrow.names]
                for batch in file.iter_batches(_ROWS // 64, columns=wanted, use_threads=False):
                    yield from batch.to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error) from error

    def _hashed(self, prompt: Any, row: int, known: dict[Any, str]) -> str:
        entry = prompt if isinstance(prompt, str) else _hashable(prompt)
        key = known.get(entry) if entry is not None else None
        if key is None:
            try:
                key = prompt_key(prompt)
            except BasisError as error:
                raise BatchError(f"row {row}: {error}") from error
            if entry is not None:
                known[entry] = key
        return key

    def _values(self, path: str) -> list[str]:
        """A column of ids as texts; each different value is looked at once."""
        names = RowNames(path, None, self._names.prompt_column, words=self._names.words)
        texts: list[str] = []
        for values in self._column(path):
            number, first = distinct(values)
            found = []
            for row, value in zip(first.tolist(), values.take(first).to_pylist(), strict=True):
                try:
                    found.append(names.key({path: value}))
                except BatchError:
                    at = len(texts) + row
                    prompt = {names.prompt_column: self.prompt(at)}
                    names.key({path: value, **prompt})  # the error names the prompt
            texts.extend(map(found.__getitem__, number.tolist()))
        return texts

    def _column(self, path: str) -> Iterator[Any]:
        """Arrays of one column, or of a field inside one."""
        try:
            with pq.ParquetFile(self.path) as file:
                own = path in file.schema_arrow.names
                fields = [] if own else path.split(".")[1:]
                for batch in file.iter_batches(_ROWS, columns=[path], use_threads=False):
                    if not batch.num_columns:
                        raise _no_field(path, file.schema_arrow)
                    array = batch.column(0)
                    for name in fields:
                        array = pc.struct_field(array, name)
                    yield array
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: BaseException) -> PromptsError:
        reason = " ".join(str(error).split())[:150] or type(error).__name__
        return PromptsError(f"{self.path} is damaged ({reason}): mend it, or fetch it again")


def _no_field(path: str, schema: Any) -> ConfigError:
    """Error for a field that a column does not have."""
    name = path.partition(".")[0]
    kind = schema.field(name).type
    inside = [f"{name}.{field.name}" for field in kind] if pa.types.is_struct(kind) else []
    known = f"only {', '.join(inside)}: name one of them" if inside else "name another column"
    return ConfigError(f"the training data have no field {path!r}, {known}")


def distinct(array: Any) -> tuple[IntArray, IntArray]:
    """Number of each entry's value among the different ones, and the first row of each.

    Chats are told apart without making Python objects of them; where a message has more than
    texts, every row counts as different.
    """
    number = _numbers(array)
    if number is None:
        rows = np.arange(len(array))
        return rows, rows
    _, first, number = np.unique(number, return_index=True, return_inverse=True)
    return number.reshape(-1), first


def _numbers(array: Any) -> IntArray | None:
    """Equal numbers for equal entries; None where that is not known."""
    kind = array.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _numbers_of_lists(array)
    if pa.types.is_struct(kind):
        number: IntArray = array.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
        for field in kind:
            inner = _numbers(pc.struct_field(array, field.name))
            if inner is None:
                return None
            number = _compact(number, inner)
        return number
    if pa.types.is_dictionary(kind) or pa.types.is_nested(kind):
        return None
    codes = array.dictionary_encode().indices.fill_null(-1)
    return np.asarray(codes.to_numpy(zero_copy_only=False), dtype=np.int64)


def _numbers_of_lists(array: Any) -> IntArray | None:
    lengths: IntArray = array.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False)
    lengths = lengths.astype(np.int64)
    inner = _numbers(array.flatten())
    if inner is None:
        return None
    starts = np.concatenate([[0], np.cumsum(np.maximum(lengths, 0))[:-1]])
    number = lengths
    for place in range(int(lengths.max(initial=0))):
        inside = lengths > place
        entry = np.full(len(lengths), -1)
        entry[inside] = inner[starts[inside] + place]
        number = _compact(number, entry)
    return number


def _compact(one: IntArray, other: IntArray) -> IntArray:
    """Numbers of the pairs of two columns of numbers from -1."""
    width = int(other.max(initial=0)) + 2
    _, number = np.unique((one + 1) * width + other + 1, return_inverse=True)
    return np.asarray(number.reshape(-1), dtype=np.int64)


def _hashable(prompt: Any) -> Any:
    """A chat of texts as a key of a dict; None for anything else."""
    try:
        entry = tuple(tuple(message.items()) for message in prompt)
        hash(entry)
    except (TypeError, AttributeError):
        return None
    return entry
