from __future__ import annotations

import errno
import io
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from basis_rl import cli
from basis_rl.errors import BasisError, PassRatesError
from basis_rl.passrates import PassRates, Provenance

PROVENANCE = Provenance(model="m", temperature=0.7, created="c", extra={"note": [1, None]})


def counts() -> PassRates:
    keys = [f"key-{i}" for i in range(30)]
    successes = [i % 9 for i in range(30)]
    return PassRates.from_counts(keys, successes, 8, sources=["s", "t"] * 15, provenance=PROVENANCE)


def rewards() -> PassRates:
    values = [[0.1 * i] * (1 + i % 3) for i in range(30)]
    return PassRates.from_rewards([str(i) for i in range(30)], values, provenance=PROVENANCE)


def content(table: PassRates) -> tuple[Any, ...]:
    """All of a table that a file keeps, without what saving adds to the provenance."""
    values = table.reward_values if table.successes is None else table.successes
    assert values is not None
    known = table.provenance.to_dict()
    for name in ("schema_version", "package_version"):
        known.pop(name, None)
    return table.keys, table.sources, table.n.tolist(), values.tolist(), known


def file_bytes(table: PassRates, folder: Path) -> bytes:
    path = folder / "whole.parquet"
    table.save(path)
    return path.read_bytes()


@pytest.mark.parametrize("make", [counts, rewards])
def test_round_trip(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    make().save(path)
    loaded = PassRates.load(path)
    assert content(loaded) == content(make())
    assert loaded.provenance.schema_version == 1
    assert loaded.provenance.package_version is not None
    assert os.listdir(tmp_path) == ["table.parquet"]


def test_saving_what_was_loaded_gives_the_same_bytes(tmp_path: Path) -> None:
    first = file_bytes(counts(), tmp_path)
    assert file_bytes(PassRates.load(tmp_path / "whole.parquet"), tmp_path) == first


def test_other_tools_can_read_the_columns(tmp_path: Path) -> None:
    counts().save(tmp_path / "t.parquet")
    table = pq.read_table(tmp_path / "t.parquet")
    assert table.column_names == ["key", "source", "n", "successes"]
    assert table["successes"].type == pa.int32()
    column = pq.ParquetFile(tmp_path / "t.parquet").metadata.row_group(0).column(0)
    assert column.compression == "ZSTD"


def test_size_and_speed_for_a_large_set(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    keys = [rng.bytes(16).hex() for _ in range(17_398)]
    table = PassRates.from_counts(keys, rng.integers(0, 65, len(keys)), 64)
    path = tmp_path / "large.parquet"
    table.save(path)
    assert path.stat().st_size <= 500_000
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        loaded = PassRates.load(path)
        seconds.append(time.perf_counter() - start)
    assert loaded.keys == keys
    assert min(seconds) < 0.05


@pytest.mark.parametrize("make", [counts, rewards])
def test_a_file_cut_anywhere_is_refused(make: Any, tmp_path: Path) -> None:
    data = file_bytes(make(), tmp_path)
    path = tmp_path / "cut.parquet"
    for length in range(0, len(data), 5):
        path.write_bytes(data[:length])
        with pytest.raises(PassRatesError, match=r"cut short|not a Parquet|damaged"):
            PassRates.load(path)


@pytest.mark.parametrize("make", [counts, rewards])
def test_a_flipped_byte_is_refused_or_changes_nothing(make: Any, tmp_path: Path) -> None:
    data = file_bytes(make(), tmp_path)
    path = tmp_path / "flipped.parquet"
    rng = random.Random(0)
    refused = 0
    for position in range(0, len(data), 5):
        flipped = bytearray(data)
        flipped[position] ^= rng.randint(1, 255)
        path.write_bytes(flipped)
        try:
            loaded = PassRates.load(path)
        except PassRatesError:
            refused += 1
        else:
            assert content(loaded) == content(make())
    assert refused > len(data) / 5 / 2


def edited(change: Any, folder: Path) -> bytes:
    """A file with valid Parquet and metadata whose columns or metadata were changed."""
    file_bytes(counts(), folder)
    table = pq.read_table(folder / "whole.parquet")
    metadata = json.loads(table.schema.metadata[b"basis_rl"])
    table = change(table, metadata)
    if b"basis_rl" in (table.schema.metadata or {}):
        table = table.replace_schema_metadata({b"basis_rl": json.dumps(metadata)})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def set_column(name: str, values: Any) -> Any:
    def change(table: pa.Table, _: Any) -> pa.Table:
        return table.set_column(table.column_names.index(name), name, values)

    return change


def set_metadata(**entries: Any) -> Any:
    def change(table: pa.Table, metadata: dict[str, Any]) -> pa.Table:
        metadata["provenance"].update(entries)
        return table

    return change


def without_provenance(table: pa.Table, metadata: dict[str, Any]) -> pa.Table:
    metadata["provenance"] = None
    return table


COUNTS = pa.array([1] * 30, pa.int32())
EDITS: list[tuple[Any, str]] = [
    (lambda t, _: t.drop_columns(["key"]), "no column 'key'"),
    (lambda t, _: t.drop_columns(["n"]), "no column 'n'"),
    (lambda t, _: t.drop_columns(["successes"]), "no column 'successes'"),
    (lambda t, _: t.drop_columns(["source"]), "does not match its checksum"),
    (lambda t, _: t.slice(1), "does not match its checksum"),
    (lambda t, _: t.slice(0, 0), "at least one prompt"),
    (lambda t, _: t.replace_schema_metadata({}), "without basis-rl's metadata"),
    (set_column("n", pa.array([8.0] * 30)), "column 'n' is double, not int32"),
    (set_column("successes", pa.array([1] * 30, pa.int64())), "column 'successes' is int64"),
    (set_column("key", pa.array(range(30))), "column 'key' is int64"),
    (set_column("source", pa.array(range(30))), "column 'source' is int64"),
    (set_column("key", pa.array([None, *map(str, range(29))])), "column 'key' has 1 nulls"),
    (set_column("successes", pa.array([None] * 30, pa.int32())), "has 30 nulls"),
    (set_column("key", pa.array(["same"] * 30)), "'same' is in rows 0 and 1"),
    (set_column("n", pa.array([0] * 30, pa.int32())), "n[0] is 0"),
    (set_column("successes", pa.array([9] * 30, pa.int32())), "successes[0] is 9 of n = 8"),
    (set_column("successes", COUNTS), "does not match its checksum"),
    (set_metadata(model="other"), "does not match its checksum"),
    (set_metadata(schema_version=3), "upgrade it"),
    (set_metadata(schema_version=None), "no schema version"),
    (set_metadata(temperature="hot"), "provenance temperature is 'hot'"),
    (without_provenance, "metadata cannot be read"),
]


@pytest.fixture(scope="module")
def malformed(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Files that no part of can be trusted: no Parquet, cut short, or pages changed."""
    rng = random.Random(1)
    files = [b"", b"key,n\na,8\n", b"PAR1PAR1"]
    folder = tmp_path_factory.mktemp("malformed")
    for make in (counts, rewards):
        data = file_bytes(make(), folder)
        files += [data[: rng.randrange(len(data))] for _ in range(20)]
        row_group = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0)
        for _ in range(20):
            column = row_group.column(rng.randrange(row_group.num_columns))
            start = column.dictionary_page_offset or column.data_page_offset
            flipped = bytearray(data)  # near the chunk's end, behind the page's header
            flipped[start + column.total_compressed_size - rng.randint(1, 8)] ^= rng.randint(1, 255)
            files.append(bytes(flipped))
    return files


def info_error(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What `basis-rl cache info` says about a bad file."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["cache", "info", str(path)])
    assert caught.value.code == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert output.err.startswith("basis-rl: ")
    return output.err


@pytest.mark.parametrize("number", range(83))
def test_cache_info_on_malformed_files(
    number: int, malformed: list[bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.parquet"
    path.write_bytes(malformed[number])
    message = info_error(path, capsys)
    assert str(path) in message
    assert "basis-rl cache build" in message


@pytest.mark.parametrize(("change", "words"), EDITS)
def test_edited_files(
    change: Any, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "edited.parquet"
    path.write_bytes(edited(change, tmp_path))
    assert words in info_error(path, capsys)


def test_a_table_of_rewards_whose_lists_do_not_match_n(tmp_path: Path) -> None:
    file_bytes(rewards(), tmp_path)
    table = pq.read_table(tmp_path / "whole.parquet")
    table = table.set_column(1, "n", pa.array([7] * 30, pa.int32()))
    pq.write_table(table, tmp_path / "bad.parquet")
    with pytest.raises(PassRatesError, match="rewards do not match column n"):
        PassRates.load(tmp_path / "bad.parquet")


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(PassRatesError, match=r"no file .*: check the path"):
        PassRates.load(tmp_path / "none.parquet")
    with pytest.raises(PassRatesError, match="cannot read"):
        PassRates.load(tmp_path)
    with pytest.raises(PassRatesError, match=r"no folder .*create it first"):
        counts().save(tmp_path / "none" / "t.parquet")
    with pytest.raises(PassRatesError, match="it is a folder"):
        counts().save(tmp_path)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_failed_write_leaves_the_old_file(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.parquet"
    counts().save(path)

    def fail(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(PassRatesError, match="choose another folder"):
        rewards().save(path)
    assert content(PassRates.load(path)) == content(counts())
    assert os.listdir(tmp_path) == ["t.parquet"]


def test_a_read_only_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Tests may run as root, whom no permission bits stop.
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PassRatesError, match="read-only; choose another folder"):
        counts().save(tmp_path / "t.parquet")


def test_saving_through_a_link_replaces_its_target(tmp_path: Path) -> None:
    target = tmp_path / "target.parquet"
    counts().save(target)
    link = tmp_path / "link.parquet"
    link.symlink_to(target)
    rewards().save(link)
    assert link.is_symlink()
    assert content(PassRates.load(target)) == content(rewards())


def test_what_cannot_be_stored(tmp_path: Path) -> None:
    with pytest.raises(PassRatesError, match="not valid Unicode"):
        PassRates.from_counts(["a", "\ud800"], [1, 1], 2).save(tmp_path / "t.parquet")
    table = PassRates.from_counts(["a"], [1], 2, provenance=Provenance(extra={"x": object()}))
    with pytest.raises(PassRatesError, match="keep JSON types"):
        table.save(tmp_path / "t.parquet")
    assert os.listdir(tmp_path) == []


def test_a_pipe_is_neither_read_nor_replaced(tmp_path, capsys):
    pipe = tmp_path / "pipe.parquet"
    os.mkfifo(pipe)
    with pytest.raises(BasisError, match="device or a pipe"):
        PassRates.load(pipe)
    with pytest.raises(BasisError, match="device or a pipe"):
        PassRates.from_counts(["a"], [1], 2).save(pipe)
    assert pipe.is_fifo()
    for command in (["cache", "info", str(pipe)], ["train", str(pipe)]):
        with pytest.raises(SystemExit) as stopped:
            cli.main(command)
        assert stopped.value.code == 2
        assert "device or a pipe" in capsys.readouterr().err


def test_a_misspelt_command_names_the_nearest(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["trian", "x.yaml"])
    assert stopped.value.code == 2
    assert "no command 'trian': did you mean 'train'?" in capsys.readouterr().err
