"""Rows of JSONL, JSON and Parquet files, each with the place to name in an error."""

from __future__ import annotations

import difflib
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from basis_rl.errors import PromptsError
from basis_rl.files import refuse_device

Row = tuple[str, dict[str, Any]]
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".parquet")


def is_file_name(data: str) -> bool:
    """Whether a data name means a file rather than a hub id."""
    return data.endswith(SUFFIXES) or Path(data).exists()


def check_file(data: str) -> Path:
    """Path of a prompt file that exists and has a known suffix.

    Raises
    ------
    PromptsError
        Naming the closest file of the folder, or the suffixes that can be read.
    """
    path = Path(data).expanduser()
    if path.is_dir():
        inside = sorted(p.name for p in path.iterdir() if p.name.endswith(SUFFIXES))[:6]
        which = ", ".join(inside) or f"none of it ends in {', '.join(SUFFIXES)}"
        raise PromptsError(f"{data} is a folder: name one of its files ({which})")
    refuse_device(path, shown=data)
    if not path.exists():
        raise PromptsError(f"there is no file {data}{_files_nearby(path)}")
    if not path.name.endswith(SUFFIXES):
        raise PromptsError(
            f"{data} cannot be read: prompt files end in {', '.join(SUFFIXES)}; convert it"
        )
    return path


def _files_nearby(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f": there is no folder {folder} either; check the path"
    names = sorted(p.name for p in folder.iterdir() if p.is_file())
    close = difflib.get_close_matches(path.name, names, n=1)
    return f": did you mean {folder / close[0]}?" if close else f": check the path (in {folder})"


def read_rows(data: str) -> Iterator[Row]:
    """Rows of a file with their places (``file, line 3``).

    Raises
    ------
    PromptsError
        If the file is missing, damaged, empty, or a row is not an object.
    """
    path = check_file(data)
    try:
        if path.suffix == ".parquet":
            yield from _parquet_rows(path)
        elif path.name.endswith((".json", ".json.gz")):
            yield from _json_rows(path)
        else:
            yield from _jsonl_rows(path)
    except PermissionError:
        raise PromptsError(f"{data} may not be read: check the file's permissions") from None


def _open_text(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return path.open(encoding="utf-8-sig")


def _jsonl_rows(path: Path) -> Iterator[Row]:
    number = 0
    with _open_text(path) as lines:
        while True:
            number += 1
            try:
                line = lines.readline()
            except (OSError, EOFError, UnicodeDecodeError, zlib.error, MemoryError) as error:
                raise _damaged(path, f"line {number}", error) from None
            if not line:
                return
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise _damaged(path, f"line {number}", error) from None
            yield where, _as_object(row, where)


def _json_rows(path: Path) -> Iterator[Row]:
    try:
        with _open_text(path) as file:
            rows = json.load(file)
    except json.JSONDecodeError as error:
        raise _damaged(path, f"line {error.lineno}", error) from None
    except (ValueError, OSError, EOFError, RecursionError, zlib.error) as error:
        raise _damaged(path, "the text", error) from None
    if not isinstance(rows, list):
        raise PromptsError(
            f"{path} holds {_kind(rows)}: a .json file of prompts is a list of objects "
            "(one object a line is .jsonl)"
        )
    for index, row in enumerate(rows):
        where = f"{path}, item {index}"
        yield where, _as_object(row, where)


def _parquet_rows(path: Path) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    yield f"{path}, row {number}", row
                    number += 1
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, f"row {number}", error) from None


def _as_object(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise PromptsError(f"{where} is {_kind(row)}: every row is an object with named columns")
    return row


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", str: "a text", type(None): "null"}.get(
        type(value), f"a {type(value).__name__}"
    )


def _damaged(path: Path, place: str, error: BaseException) -> PromptsError:
    reason = " ".join(str(error).split())[:150] or type(error).__name__
    return PromptsError(f"{path} is damaged at {place} ({reason}): mend it, or fetch it again")
