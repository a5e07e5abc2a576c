"""Rows of JSONL, JSON, CSV and Parquet files, a few at a time, each with its place."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from basis_rl.errors import PassRatesError

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".parquet", ".csv")
PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".bin")
_BATCH = 256  # rows of a Parquet file at a time; a row may hold many long completions


def rows_of(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of a file with their places; a JSON file that is one object is one row.

    Raises
    ------
    BasisError
        If the file is damaged, naming it and the line or row.
    """
    name = path.name
    if name.endswith(".parquet"):
        return _parquet_rows(path)
    if name.endswith(".csv"):
        return _csv_rows(path)
    if name.endswith((".json", ".json.gz")):
        return _json_rows(path)
    from basis_rl.prompts import files

    return files.read_rows(str(path))


def first_row(path: Path) -> dict[str, Any] | None:
    """First row of a file, None if it has none.

    Raises
    ------
    BasisError
        As `rows_of`.
    """
    for _, row in rows_of(path):
        return row
    return None


def refuse_pickle(path: Path) -> None:
    """Refuse a pickle: opening one runs whatever its maker wrote into it.

    Raises
    ------
    PassRatesError
    """
    if path.name.endswith(PICKLES):
        raise PassRatesError(
            f"{path} is a pickle, which runs code when it is opened: if you trust it, load it with "
            "torch.load(..., weights_only=True) and write one JSON object a rollout (prompt, "
            "reward) into a .jsonl file; import that with --reward-column reward"
        )


def _parquet_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            _refuse_twins(path, file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=_BATCH):
                for row in batch.to_pylist():
                    yield f"{path}, row {number}", row
                    number += 1
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, f"row {number}", error) from None


def _csv_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    csv.field_size_limit(sys.maxsize)
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream, strict=True)
        checked = False
        while True:
            try:
                row = next(reader, None)
            except (csv.Error, UnicodeDecodeError) as error:
                raise _damaged(path, f"line {reader.line_num + 1}", error) from None
            if row is None:
                return
            if not checked:
                _refuse_twins(path, list(reader.fieldnames or []))
                checked = True
            if None in row or None in row.values():
                reason = f"it has not the {len(reader.fieldnames or [])} fields of the first line"
                raise _damaged(path, f"line {reader.line_num}", ValueError(reason))
            yield f"{path}, line {reader.line_num}", dict(row)


def _json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import gzip
    import zlib

    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.name.endswith(".gz") else data
        document = json.loads(data)
    except json.JSONDecodeError as error:
        raise _damaged(path, f"line {error.lineno}", error) from None
    except (ValueError, OSError, EOFError, RecursionError, zlib.error) as error:
        raise _damaged(path, "the text", error) from None
    except MemoryError:
        raise PassRatesError(
            f"{path} does not fit into memory: write one object a line, as .jsonl"
        ) from None
    if isinstance(document, dict):
        yield str(path), document
        return
    if not isinstance(document, list):
        raise PassRatesError(f"{path} holds {document!r:.40}: a list of objects was expected")
    for index, row in enumerate(document):
        if not isinstance(row, dict):
            raise PassRatesError(f"{path}, item {index} is {row!r:.40}: each item is an object")
        yield f"{path}, item {index}", row


def _refuse_twins(path: Path, names: list[str]) -> None:
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise PassRatesError(f"{path} has two columns {twins[0]!r}: rename one of them")


def _damaged(path: Path, place: str, error: BaseException) -> PassRatesError:
    reason = " ".join(str(error).split())[:150]
    return PassRatesError(f"{path} is damaged at {place} ({reason}): mend it, or fetch it again")
