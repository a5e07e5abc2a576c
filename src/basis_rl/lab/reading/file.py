"""Records of rewards as Parquet files.

One row a visit: ``key`` (string), ``step`` (int64), ``rewards`` (list of double), and ``lengths``
(list of double) and ``source`` (string) where the record has them. Rows without a step are the
record's pass rates: the rollouts of a prompt under the reference policy. What made the record is a
JSON object in the file's metadata, under `METADATA_KEY`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from basis_rl.errors import BasisError
from basis_rl.files import refuse_device, write_atomically
from basis_rl.lab.record import RecordError, RewardRecord
from basis_rl.passrates.provenance import Provenance
from basis_rl.passrates.storage.file import now
from basis_rl.passrates.table import PassRates

SCHEMA_VERSION = 1
METADATA_KEY = b"basis_rl_record"


def write_record(
    record: RewardRecord,
    path: str | os.PathLike[str],
    *,
    provenance: Provenance | Mapping[str, Any] | None = None,
) -> None:
    """Write a record as a Parquet file; one of that name is replaced at once or not at all.

    Parameters
    ----------
    record : RewardRecord
        With its pass rates, unless those are rates of an unknown number of rollouts.
    path : path
    provenance : Provenance or mapping, optional
        What made the rewards (model, sampling, verifier, …); JSON types.

    Raises
    ------
    RecordError
        If the pass rates have no n, the provenance is no JSON, or the file cannot be written.
    """
    table = _rows(record, record.sources)
    if record.pass_rates is not None:
        table = pa.concat_tables([table, _reference(record)])
    told = provenance.to_dict() if isinstance(provenance, Provenance) else dict(provenance or {})
    metadata: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "name": record.name,
        "created": now(),
        "package_version": version("basis-rl"),
        "provenance": told,
    }
    if record.pass_rates is not None:
        metadata["pass_rates"] = record.pass_rates.provenance.to_dict()
        metadata["kind"] = record.pass_rates.kind
    try:
        text = json.dumps(metadata, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RecordError(
            f"provenance cannot be stored ({error}): keep to JSON types in it"
        ) from None
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata({METADATA_KEY: text.encode()}),
        sink,
        compression="zstd",
        use_dictionary=["key", "source"],
        write_page_checksum=True,
    )
    try:
        write_atomically(path, sink.getvalue())
    except BasisError as error:
        raise RecordError(str(error)) from error


def is_record(path: Path) -> bool:
    """Whether a Parquet file is one of `write_record`."""
    try:
        return METADATA_KEY in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowException):
        return False


def record_provenance(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What made a record that `write_record` wrote.

    Raises
    ------
    RecordError
        If it is no such file.
    """
    provenance: dict[str, Any] = _metadata(Path(path))["provenance"]
    return provenance


def load_record(path: str | os.PathLike[str]) -> RewardRecord:
    """Read a file that `write_record` wrote.

    Raises
    ------
    RecordError
        If it is missing, damaged or of a newer version.
    """
    file = Path(path)
    metadata = _metadata(file)
    try:
        table = pq.read_table(file, page_checksum_verification=True)
        visited = table.column("step").is_valid()
        visits, reference = table.filter(visited), table.filter(pc.invert(visited))
        keys, prompt = _coded(visits.column("key"))
        sources = None
        if "source" in table.column_names:
            by_key = dict(
                zip(
                    visits.column("key").to_pylist(),
                    visits.column("source").to_pylist(),
                    strict=True,
                )
            )
            sources = [by_key[key] or "" for key in keys]
        rewards, starts = _flat(visits.column("rewards"))
        lengths = None
        if "lengths" in table.column_names:
            lengths, _ = _flat(visits.column("lengths"))
        return RewardRecord(
            keys,
            prompt,
            visits.column("step").to_numpy().astype(np.int64),
            starts,
            rewards,
            lengths=lengths,
            sources=sources,
            pass_rates=_pass_rates(reference, metadata),
            name=str(metadata["name"]),
        )
    except (pa.ArrowException, OSError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:150]
        raise RecordError(f"{file} is damaged ({reason}): fetch it or record it again") from None


def _rows(record: RewardRecord, sources: list[str] | None) -> pa.Table:
    keys = pa.array(record.keys, pa.string())
    prompt = pa.array(record.prompt)
    columns: dict[str, Any] = {
        "key": keys.take(prompt),
        "step": pa.array(record.step, pa.int64()),
        "rewards": _lists(record.starts, record.rewards),
    }
    if record.lengths is not None:
        columns["lengths"] = _lists(record.starts, record.lengths)
    if sources is not None:
        columns["source"] = pa.array(sources, pa.string()).take(prompt)
    return pa.table(columns)


def _reference(record: RewardRecord) -> pa.Table:
    """The pass rates as rows without a step."""
    table = record.pass_rates
    assert table is not None
    if table.kind == "rates":
        raise RecordError(
            f"{record.name}: its pass rates are rates of an unknown number of rollouts, which a "
            "record does not hold: keep them in their own file, and name both"
        )
    starts = np.concatenate([[0], np.cumsum(table.n)])
    if table.successes is not None:
        place = np.arange(starts[-1]) - np.repeat(starts[:-1], table.n)
        rewards = (place < np.repeat(table.successes, table.n)).astype(np.float64)
    else:
        assert table.reward_values is not None
        rewards = table.reward_values
    columns: dict[str, Any] = {
        "key": pa.array(list(table.keys), pa.string()),
        "step": pa.nulls(len(table), pa.int64()),
        "rewards": _lists(starts, rewards),
    }
    if record.lengths is not None:
        columns["lengths"] = pa.nulls(len(table), pa.list_(pa.float64()))
    if record.sources is not None:
        own = dict(zip(table.keys, table.sources or [], strict=False))
        columns["source"] = pa.array([own.get(key) for key in table.keys], pa.string())
    return pa.table(columns)


def _lists(starts: Any, values: Any) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(values, pa.float64()))


def _coded(column: pa.ChunkedArray) -> tuple[list[str], Any]:
    """Distinct texts in order of first appearance, and each row's place among them."""
    coded = column.combine_chunks().dictionary_encode()
    return coded.dictionary.to_pylist(), coded.indices.to_numpy().astype(np.int64)


def _flat(column: pa.ChunkedArray) -> tuple[Any, Any]:
    """Values of lists in a row, and where each list starts."""
    lists = column.combine_chunks()
    sizes = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return lists.flatten().to_numpy(zero_copy_only=False).astype(np.float64), starts


def _pass_rates(rows: pa.Table, metadata: dict[str, Any]) -> PassRates | None:
    if not rows.num_rows:
        return None
    keys = rows.column("key").to_pylist()
    rewards, starts = _flat(rows.column("rewards"))
    provenance = Provenance.from_dict(metadata["pass_rates"])
    sources = None
    if "source" in rows.column_names and rows.column("source").null_count == 0:
        sources = rows.column("source").to_pylist()
    shared: dict[str, Any] = {"sources": sources, "provenance": provenance}
    if metadata["kind"] == "counts":
        successes = np.add.reduceat(rewards, starts[:-1]).astype(np.int64)
        return PassRates.from_counts(keys, successes, np.diff(starts), **shared)
    return PassRates(keys, np.diff(starts), reward_values=rewards, **shared)


def _metadata(file: Path) -> dict[str, Any]:
    refuse_device(file, shown=file)
    if not file.is_file():
        raise RecordError(f"there is no file {file}: check the path")
    try:
        found = (pq.read_schema(file).metadata or {}).get(METADATA_KEY)
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:150]
        raise RecordError(f"{file} is damaged ({reason}): fetch it or record it again") from None
    if found is None:
        raise RecordError(f"{file} is no record of rewards: name one that write_record wrote")
    metadata: dict[str, Any] = json.loads(found)
    if metadata.get("schema_version") != SCHEMA_VERSION:
        raise RecordError(
            f"{file} has schema version {metadata.get('schema_version')!r}, this program reads "
            f"{SCHEMA_VERSION}: update basis-rl"
        )
    return metadata
