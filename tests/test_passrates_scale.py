"""Tables of the paper's size, of a million prompts and of ten million."""

from __future__ import annotations

from pathlib import Path

import bench_passrates
import numpy as np
import pytest

from basis_rl.passrates import PassRates
from basis_rl.passrates.storage import columns, texts
from basis_rl.passrates.storage.texts import PackedTexts


def test_the_papers_table_is_small_and_quick(tmp_path: Path) -> None:
    found = bench_passrates.figures_of(17_398, tmp_path)
    assert found["file_mb"] <= 0.5
    assert found["fastest_load_s"] <= 0.05  # other processes may have had the others' time
    assert found["lookup_ms"] < 0.5


def test_a_million_prompts(tmp_path: Path) -> None:
    found = bench_passrates.figures_of(1_000_000, tmp_path)
    assert found["lookup_ms"] <= 5
    assert found["peak_mb"] <= 600


@pytest.mark.slow
def test_ten_million_prompts(tmp_path: Path) -> None:
    found = bench_passrates.figures_of(10_000_000, tmp_path)
    assert found["lookup_ms"] <= 5
    assert found["peak_mb"] <= 2000


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["counts", "rewards", "rates"])
def test_several_row_groups(
    kind: str, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "MOST_IN_LIST", 0 if packed else 100)
    keys, rng = [f"k{'é' * (i % 3)}{i}" for i in range(23)], np.random.default_rng(0)
    sources = [f"s{i % 3}" for i in range(23)]
    table = {
        "counts": lambda: PassRates.from_counts(keys, rng.integers(0, 9, 23), 8, sources=sources),
        "rewards": lambda: PassRates.from_rewards(
            keys, [rng.normal(size=1 + i % 4) for i in range(23)], sources=sources
        ),
        "rates": lambda: PassRates.from_rates(keys, rng.random(23), sources=sources),
    }[kind]()
    table.save(tmp_path / "one.parquet")
    monkeypatch.setattr(columns, "ROWS", 5)
    table.save(tmp_path / "many.parquet")
    import pyarrow.parquet as pq

    assert pq.read_metadata(tmp_path / "many.parquet").num_row_groups == 5
    for name in ("one", "many"):  # both are read a row at a time
        loaded = PassRates.load(tmp_path / f"{name}.parquet")
        assert isinstance(loaded.keys, PackedTexts if packed else list)
        assert loaded.keys == keys
        assert loaded.rows(keys).tolist() == list(range(23))
        assert loaded.sources == sources
        assert loaded.n.tolist() == table.n.tolist()
        assert loaded.means.tolist() == table.means.tolist()
        if table.reward_values is not None:
            assert loaded.reward_values is not None
            assert loaded.reward_values.tolist() == table.reward_values.tolist()


def test_packed_texts_of_a_part_of_an_array() -> None:
    """A record batch may be a window on a longer array."""
    import pyarrow as pa

    read = columns.Texts(packed=True)
    whole = pa.array(["skipped", "é", "", "b", "skipped too"])
    read.add(whole[1:3])
    read.add(whole[3:4])
    read.add(whole[:0])
    assert read.whole() == ["é", "", "b"]
