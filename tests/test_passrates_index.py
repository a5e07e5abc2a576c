"""Keys of large tables: packed texts and sorted hashes against lists and dicts."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_rl.errors import PassRatesError
from basis_rl.passrates import PassRates, Provenance
from basis_rl.passrates.storage import texts
from basis_rl.passrates.storage.key_index import DictIndex, HashIndex
from basis_rl.passrates.storage.texts import PackedTexts, joined

# Lone surrogates too: they can be keys in memory, though not in a file.
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=6)
KEYS = st.lists(ANY_TEXT.filter(bool), min_size=1, max_size=40, unique=True)
HASHES = {
    "Python's": hash,
    "all alike": lambda key: 7,
    "by length": len,
    "two kinds": lambda key: -(2**63) if len(key) % 2 else 2**63 - 1,
}


@pytest.fixture
def all_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables are kept as large ones are."""
    monkeypatch.setattr(texts, "MOST_IN_LIST", 0)


@given(st.lists(ANY_TEXT, max_size=40), st.integers(1, 5))
def test_packed_texts_are_the_list(values: list[str], size: int) -> None:
    packed = PackedTexts.of(values)
    assert len(packed) == len(values)
    assert list(packed) == values
    assert packed == values
    assert values == packed
    assert packed == PackedTexts.of(values)
    assert packed != [*values, "x"]
    assert [packed[i] for i in range(-len(values), len(values))] == values + values
    assert [text for chunk in packed.chunks(size) for text in chunk] == values
    for part in (slice(1, 3), slice(None, None, 2), slice(None, None, -1), slice(3, 1)):
        assert packed[part] == values[part]
    assert packed.at(np.arange(len(values))[::-1]) == values[::-1]
    assert "".join(joined(packed, "\0")) == "\0".join(values)


def test_packed_texts_are_no_other_texts() -> None:
    packed = PackedTexts.of(["a", "bc"])
    assert packed != ["a", "bd"]
    assert packed != ["ab", "c"]
    assert packed != PackedTexts.of(["ab", "c"])
    assert packed != "abc"
    with pytest.raises(IndexError):
        packed[2]
    assert repr(packed) == "PackedTexts(['a', 'bc', …], 2 texts)"


def test_texts_over_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "CHUNK", 3)
    values = ["a", "", "é", "\ud800", "bb", "c", "", "d"]
    packed = PackedTexts.of(values)
    assert packed == values
    for given_as in (packed, values):
        assert "".join(joined(given_as, "\n")) == "\n".join(values)


@given(KEYS, st.lists(ANY_TEXT, max_size=20), st.sampled_from(sorted(HASHES)))
def test_rows_are_those_of_a_dict(keys: list[str], others: list[str], name: str) -> None:
    naive = {key: row for row, key in enumerate(keys)}
    wanted = keys[::-2] + others + keys
    expected = [naive.get(key, -1) for key in wanted]
    index = HashIndex(PackedTexts.of(keys), hash_of=HASHES[name])
    assert index.rows(wanted).tolist() == expected
    assert DictIndex(keys).rows(wanted).tolist() == expected
    assert index.rows([]).shape == (0,)


@given(KEYS, st.data(), st.sampled_from(sorted(HASHES)))
def test_repeated_and_empty_keys_are_refused(keys: list[str], data: Any, name: str) -> None:
    again = data.draw(st.sampled_from(keys))
    place = data.draw(st.integers(keys.index(again) + 1, len(keys)))
    twice = [*keys[:place], again, *keys[place:]]
    message = f"key {again!r} is in rows {keys.index(again)} and {place}"
    with pytest.raises(PassRatesError) as caught:
        HashIndex(PackedTexts.of(twice), hash_of=HASHES[name])
    assert message in str(caught.value)
    with pytest.raises(PassRatesError) as caught:
        DictIndex(twice)
    assert message in str(caught.value)
    empty = [*keys[:place], "", *keys[place:]]
    with pytest.raises(PassRatesError, match=rf"keys\[{place}\] is empty"):
        HashIndex(PackedTexts.of(empty), hash_of=HASHES[name])


@pytest.mark.usefixtures("all_packed")
def test_a_packed_table_does_what_a_small_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make() -> PassRates:
        hashes = ["0123456789abcdef", "", "ffff456789abcdef"]
        return PassRates.from_counts(
            ["a", "é", "c"],
            [0, 3, 4],
            4,
            sources=["s", "s", "t"],
            prompt_hashes=hashes,
            provenance=Provenance(created="c"),
        )

    packed = make()
    assert isinstance(packed.keys, PackedTexts)
    assert isinstance(packed.prompt_hashes, PackedTexts)
    packed.save(tmp_path / "packed.parquet")
    more = packed.with_counts(["c", "new"], [1, 1], 2, sources=["t", "u"])
    loaded = PassRates.load(tmp_path / "packed.parquet")
    assert isinstance(loaded.keys, PackedTexts)
    copy = pickle.loads(pickle.dumps(loaded))
    assert copy.rows(["c", "x", "é"]).tolist() == [2, -1, 1]
    with pytest.raises(PassRatesError, match="rows 0 and 2"):
        PassRates.from_counts(["a", "b", "a"], [1, 1, 1], 4)
    monkeypatch.undo()
    small = make()
    assert isinstance(small.keys, list)
    small.save(tmp_path / "small.parquet")
    for table in (packed, loaded, copy, PassRates.load(tmp_path / "packed.parquet")):
        assert table.keys == small.keys
        assert table.prompt_hashes == small.prompt_hashes
        assert table.coverage(["a", "a", "x"]) == 0.5
        assert table.n.tolist() == small.n.tolist()
    assert more.keys == ["a", "é", "c", "new"]
    assert more.prompt_hashes == ["0123456789abcdef", "", "ffff456789abcdef", ""]
    assert (tmp_path / "small.parquet").read_bytes() == (tmp_path / "packed.parquet").read_bytes()


@pytest.mark.usefixtures("all_packed")
def test_a_packed_table_is_found_in_another_process(tmp_path: Path) -> None:
    """Hashes of texts differ from process to process; a pickled table must not keep them."""
    table = PassRates.from_counts([f"k{i}" for i in range(50)], np.zeros(50), 2)
    (tmp_path / "table.pickle").write_bytes(pickle.dumps(table))
    code = (
        "import pickle, sys; t = pickle.load(open(sys.argv[1], 'rb'));"
        "print(t.rows([f'k{i}' for i in range(50)]).tolist() == list(range(50)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "table.pickle")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "True"


@pytest.mark.usefixtures("all_packed")
def test_a_packed_key_that_is_no_unicode_is_named(tmp_path: Path) -> None:
    with pytest.raises(PassRatesError, match=r"key '\\ud800' is not valid Unicode"):
        PassRates.from_counts(["a", "\ud800"], [1, 1], 2).save(tmp_path / "t.parquet")
