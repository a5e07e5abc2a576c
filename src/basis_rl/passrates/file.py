"""Tables of pass rates as Parquet files.

One row a prompt: ``key`` (string), ``source`` (string, dictionary-encoded; absent without sources),
``n`` (int32) and ``successes`` (int32), or ``rewards`` (list of double) in a continuous table.
The provenance is one JSON object in the file's metadata, under `METADATA_KEY`. Pages carry
checksums, which `load` verifies.
"""

from __future__ import annotations

import hashlib
import json
import os
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from basis_rl.errors import BasisError, PassRatesError
from basis_rl.files import refuse_device, write_atomically
from basis_rl.passrates.provenance import Provenance

if TYPE_CHECKING:
    from basis_rl.passrates.table import PassRates

SCHEMA_VERSION = 1
METADATA_KEY = b"basis_rl"
_MAGIC = b"PAR1"
_REBUILD = "build it again with `basis-rl cache build`, or restore it from a copy"


def save(table: PassRates, path: str | os.PathLike[str]) -> None:
    """Write a table; see `PassRates.save`."""
    provenance = table.provenance.replace(
        schema_version=SCHEMA_VERSION,
        created=table.provenance.created or now(),
        package_version=table.provenance.package_version or version("basis-rl"),
    )
    schema, columns = _columns(table)  # first: it refuses what is not Unicode
    metadata = {
        "provenance": _json_object(provenance),
        "content_sha256": _digest(table, provenance),
    }
    schema = schema.with_metadata({METADATA_KEY: json.dumps(metadata).encode()})
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table(columns, schema=schema),
        sink,
        compression="zstd",
        use_dictionary=["source"],
        write_page_checksum=True,
    )
    try:
        write_atomically(path, sink.getvalue().to_pybytes())
    except BasisError as error:
        raise PassRatesError(str(error)) from error


def load(path: str | os.PathLike[str]) -> PassRates:
    """Read a table; see `PassRates.load`."""
    # table.py imports this module only when it is called.
    from basis_rl.passrates.table import PassRates

    name = os.fspath(path)
    columns, metadata = _read(Path(path), name)
    provenance = _provenance(metadata, name)
    _check_columns(columns, name)
    keys = columns["key"].to_numpy().tolist()
    sources = columns["source"].to_numpy().tolist() if "source" in columns.column_names else None
    n = columns["n"].to_numpy()
    successes = values = None
    if "successes" in columns.column_names:
        successes = columns["successes"].to_numpy()
    else:
        rewards = columns["rewards"].combine_chunks()
        values = rewards.flatten().to_numpy(zero_copy_only=False)
        if not np.array_equal(np.diff(rewards.offsets.to_numpy()), n):
            raise PassRatesError(f"{name} is damaged: rewards do not match column n; {_REBUILD}")
    try:
        table = PassRates(
            keys,
            n,
            successes=successes,
            reward_values=values,
            sources=sources,
            provenance=provenance,
        )
    except PassRatesError as error:
        raise PassRatesError(f"{name}: {error}") from error
    if _digest(table, provenance) != metadata.get("content_sha256"):
        raise PassRatesError(
            f"{name} is damaged or was edited: its content does not match its checksum; {_REBUILD}"
        )
    return table


def now() -> str:
    """Time in ISO 8601, UTC, whole seconds."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _columns(table: PassRates) -> tuple[pa.Schema, list[pa.Array]]:
    fields = {"key": (pa.string(), _strings(table.keys, "key"))}
    if table.sources is not None:
        fields["source"] = (pa.string(), _strings(table.sources, "source"))
    fields["n"] = (pa.int32(), pa.array(table.n, pa.int32()))
    if table.successes is not None:
        fields["successes"] = (pa.int32(), pa.array(table.successes, pa.int32()))
    else:
        rewards = pa.ListArray.from_arrays(
            pa.array(table.reward_offsets, pa.int32()), pa.array(table.reward_values, pa.float64())
        )
        fields["rewards"] = (rewards.type, rewards)
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, (kind, _) in fields.items()])
    return schema, [array for _, array in fields.values()]


def _strings(values: list[str], what: str) -> pa.Array:
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
    texts = [
        json.dumps(_json_object(provenance), sort_keys=True),
        *table.keys,
        "",
        *(table.sources or []),
    ]
    digest.update("\0".join(texts).encode())
    for array in (table.n, table.successes, table.reward_values):
        if array is not None:
            digest.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def _read(path: Path, name: str) -> tuple[pa.Table, dict[str, Any]]:
    """Columns and our metadata of a file, or an error that tells what it is instead."""
    refuse_device(path, shown=name)
    try:
        with path.open("rb") as stream:
            data = stream.read()
    except FileNotFoundError:
        raise PassRatesError(
            f"no file {name}: check the path, or make it with `basis-rl cache build`"
        ) from None
    except OSError as error:
        raise PassRatesError(
            f"cannot read {name}: {error.strerror or error}; name a Parquet file that can be read"
        ) from error
    if not data.startswith(_MAGIC):
        raise PassRatesError(
            f"{name} is not a Parquet file ({len(data)} bytes): name a file that "
            "`basis-rl cache build` or PassRates.save wrote"
        )
    if not data.endswith(_MAGIC) or len(data) < 2 * len(_MAGIC):
        raise PassRatesError(f"{name} is cut short at {len(data)} bytes; {_REBUILD}")
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        text = (file.metadata.metadata or {}).get(METADATA_KEY)
        columns = file.read(use_threads=False)
        columns.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, MemoryError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise PassRatesError(f"{name} is damaged ({reason[:200]}); {_REBUILD}") from error
    return columns, _metadata(text, name)


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
    raise PassRatesError(f"{name} is damaged: its metadata cannot be read; {_REBUILD}")


def _provenance(metadata: dict[str, Any], name: str) -> Provenance:
    try:
        provenance = Provenance.from_dict(metadata["provenance"])
    except PassRatesError as error:
        raise PassRatesError(f"{name} is damaged: {error}; {_REBUILD}") from error
    if provenance.schema_version is None:
        raise PassRatesError(f"{name} is damaged: it has no schema version; {_REBUILD}")
    if provenance.schema_version > SCHEMA_VERSION:
        raise PassRatesError(
            f"{name} has schema version {provenance.schema_version}, this basis-rl reads up to "
            f"{SCHEMA_VERSION}: upgrade it (pip install -U basis-rl)"
        )
    return provenance


def _check_columns(columns: pa.Table, name: str) -> None:
    names = set(columns.column_names)
    expected = {"key": pa.string(), "n": pa.int32()}
    if "source" in names:
        expected["source"] = pa.string()
    if "rewards" in names and "successes" not in names:
        expected["rewards"] = pa.list_(pa.float64())
    else:
        expected["successes"] = pa.int32()
    for column, kind in expected.items():
        if column not in names:
            raise PassRatesError(f"{name} has no column {column!r}; {_REBUILD}")
        found = columns.schema.field(column).type
        if not found.equals(kind):
            raise PassRatesError(f"{name}: column {column!r} is {found}, not {kind}; {_REBUILD}")
        nulls = columns[column].null_count
        if column == "rewards":
            nulls += columns[column].combine_chunks().flatten().null_count
        if nulls:
            raise PassRatesError(f"{name}: column {column!r} has {nulls} nulls; {_REBUILD}")
