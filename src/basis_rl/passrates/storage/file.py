"""Tables of pass rates as Parquet files.

One row a prompt: ``key`` (string), ``source`` (string, dictionary-encoded; absent without sources),
``prompt_hash`` (string; absent without hashes), and what the kind of table has: ``n`` (int32) and
``successes`` (int32), or ``n`` and ``rewards`` (list of double), or ``rate`` (double) alone.
The provenance is one JSON object in the file's metadata, under `METADATA_KEY`. Pages carry
checksums, which `load` verifies. Version 2 added ``prompt_hash`` and ``rate``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from datetime import datetime, timezone
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from basis_rl.errors import BasisError, PassRatesError
from basis_rl.files import refuse_device, write_atomically
from basis_rl.passrates.provenance import Provenance
from basis_rl.passrates.storage import columns
from basis_rl.passrates.storage.columns import REBUILD
from basis_rl.passrates.storage.texts import joined

if TYPE_CHECKING:
    from basis_rl.passrates.table import PassRates

SCHEMA_VERSION = 2
METADATA_KEY = b"basis_rl"
_MAGIC = b"PAR1"
_MOST_WHOLE = 2**24


def save(table: PassRates, path: str | os.PathLike[str]) -> None:
    """Write a table; see `PassRates.save`."""
    check_name(path)
    provenance = table.provenance.replace(
        schema_version=_version_of(table),
        created=table.provenance.created or now(),
        package_version=table.provenance.package_version or version("basis-rl"),
    )
    fields = columns.schema(table)
    sink = pa.BufferOutputStream()
    groups = columns.groups(table, fields)
    first = next(groups)
    try:
        digest = _digest(table, provenance)
    except UnicodeEncodeError:
        deque(groups, maxlen=0)  # names the text that cannot be stored
        raise
    metadata = {"provenance": _json_object(provenance), "content_sha256": digest}
    fields = fields.with_metadata({METADATA_KEY: json.dumps(metadata).encode()})
    with pq.ParquetWriter(
        sink,
        fields,
        compression="zstd",
        use_dictionary=["source"],
        write_page_checksum=True,
    ) as writer:
        for group in chain([first], groups):
            writer.write_table(group)
    try:
        write_atomically(path, sink.getvalue())
    except BasisError as error:
        raise PassRatesError(str(error)) from error


def load(path: str | os.PathLike[str]) -> PassRates:
    """Read a table; see `PassRates.load`."""
    # table.py imports this module only when it is called.
    from basis_rl.passrates.table import PassRates

    name = check_name(path)
    found, metadata = _read(Path(path), name)
    provenance = _provenance(metadata, name)
    try:
        table = PassRates(**found._asdict(), provenance=provenance)
    except PassRatesError as error:
        raise PassRatesError(f"{name}: {error}") from error
    if _digest(table, provenance) != metadata.get("content_sha256"):
        raise PassRatesError(
            f"{name} is damaged or was edited: its content does not match its checksum; {REBUILD}"
        )
    return table


def check_name(path: object) -> str:
    """Name of a file.

    Raises
    ------
    PassRatesError
        If it is no path.
    """
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str) or not name:
        raise PassRatesError(
            f"the path is {path!r} ({type(path).__name__}): name a file, e.g. 'pass-rates.parquet'"
        )
    return name


def _version_of(table: PassRates) -> int:
    """Oldest schema version that has all of the table, so that older programs can read it."""
    return 1 if table.rates is None and table.prompt_hashes is None else 2


def now() -> str:
    """Time in ISO 8601, UTC, whole seconds."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _json_object(provenance: Provenance) -> dict[str, Any]:
    entries = provenance.to_dict()
    try:
        text = json.dumps(entries, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise PassRatesError(
            f"provenance cannot be stored ({error}): keep JSON types in extra"
        ) from None
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def _digest(table: PassRates, provenance: Provenance) -> str:
    """SHA-256 of what the file says: the pages have checksums, the file's footer has none."""
    digest = hashlib.sha256()
    parts = [[json.dumps(_json_object(provenance), sort_keys=True)], table.keys, [""]]
    if table.sources is not None:
        parts.append(table.sources)
    if table.prompt_hashes is not None:
        parts += [["", "prompt_hash"], table.prompt_hashes]
    for place, texts in enumerate(parts):
        digest.update(b"\0" if place else b"")
        for piece in joined(texts, "\0"):
            digest.update(piece.encode())
    n = None if table.rates is not None else table.n
    for array in (n, table.successes, table.reward_values, table.rates):
        if array is not None:
            digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
    return digest.hexdigest()


def _read(path: Path, name: str) -> tuple[columns.Read, dict[str, Any]]:
    """Columns and our metadata of a file, or an error that tells what it is instead."""
    refuse_device(path, shown=name)
    try:
        with path.open("rb") as stream:
            size = _check_magic(stream, name)
            return _read_stream(stream, size, name)
    except FileNotFoundError:
        raise PassRatesError(
            f"no file {name}: check the path, or make it with `basis-rl cache build`"
        ) from None
    except OSError as error:
        raise PassRatesError(
            f"cannot read {name}: {error.strerror or error}; name a Parquet file that can be read"
        ) from error


def _check_magic(stream: BinaryIO, name: str) -> int:
    """Size of a file that begins and ends as a Parquet file does."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    if stream.read(len(_MAGIC)) != _MAGIC:
        raise PassRatesError(
            f"{name} is not a Parquet file ({size} bytes): name a file that "
            "`basis-rl cache build` or PassRates.save wrote"
        )
    stream.seek(max(size - len(_MAGIC), 0))
    if stream.read() != _MAGIC or size < 2 * len(_MAGIC):
        raise PassRatesError(f"{name} is cut short at {size} bytes; {REBUILD}")
    stream.seek(0)
    return size


def _read_stream(stream: BinaryIO, size: int, name: str) -> tuple[columns.Read, dict[str, Any]]:
    try:
        # A small file whole: its reads are many and tiny.
        source = pa.BufferReader(stream.read()) if size < _MOST_WHOLE else stream
        file = pq.ParquetFile(source, page_checksum_verification=True)
        metadata = _metadata((file.metadata.metadata or {}).get(METADATA_KEY), name)
        _provenance(metadata, name)  # a newer version may have other columns
        names = columns.check_schema(file.schema_arrow, name)
        collector = columns.Collector(names, file.metadata.num_rows)
        for batch in file.iter_batches(columns.ROWS // 4, columns=names, use_threads=False):
            batch.validate(full=True)
            collector.add(batch)
        return collector.read(name), metadata
    except PassRatesError:
        raise
    except (pa.ArrowException, OSError, ValueError, MemoryError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise PassRatesError(f"{name} is damaged ({reason[:200]}); {REBUILD}") from error


def _metadata(text: bytes | None, name: str) -> dict[str, Any]:
    if text is None:
        raise PassRatesError(
            f"{name} is a Parquet file without basis-rl's metadata: read its columns and save them "
            "with PassRates.from_counts(keys, successes, n).save(path)"
        )
    try:
        metadata = json.loads(text)
        if isinstance(metadata["provenance"], dict):
            return {**metadata}
    except (ValueError, KeyError, TypeError):
        pass
    raise PassRatesError(f"{name} is damaged: its metadata cannot be read; {REBUILD}")


def _provenance(metadata: dict[str, Any], name: str) -> Provenance:
    try:
        provenance = Provenance.from_dict(metadata["provenance"])
    except PassRatesError as error:
        raise PassRatesError(f"{name} is damaged: {error}; {REBUILD}") from error
    if provenance.schema_version is None:
        raise PassRatesError(f"{name} is damaged: it has no schema version; {REBUILD}")
    if provenance.schema_version > SCHEMA_VERSION:
        raise PassRatesError(
            f"{name} has schema version {provenance.schema_version}, this basis-rl reads up to "
            f"{SCHEMA_VERSION}: upgrade it (pip install -U basis-rl)"
        )
    return provenance
