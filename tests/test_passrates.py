from __future__ import annotations

import copy
import pickle
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from basis_rl.errors import PassRatesError
from basis_rl.passrates import PassRates, Provenance


def counts() -> PassRates:
    return PassRates.from_counts(["a", "b", "c"], [0, 3, 4], 4, sources=["s", "s", "t"])


def rewards() -> PassRates:
    return PassRates.from_rewards(["a", "b"], [[0.5], [1.0, -2.0, 0.25]])


def test_counts() -> None:
    table = counts()
    assert (len(table), table.keys, table.sources) == (3, ["a", "b", "c"], ["s", "s", "t"])
    assert table.n.tolist() == [4, 4, 4]
    assert table.n.dtype == np.int64
    assert table.successes is not None
    assert table.successes.tolist() == [0, 3, 4]
    assert table.means.tolist() == [0.0, 0.75, 1.0]
    assert not table.is_continuous
    assert table.reward_values is None
    assert table.reward_offsets is None
    assert table.provenance == Provenance()
    assert repr(table) == "PassRates(3 prompts, 12 rollouts, counts)"


def test_rewards() -> None:
    table = rewards()
    assert table.is_continuous
    assert table.successes is None
    assert table.reward_values is not None
    assert table.reward_offsets is not None
    assert table.reward_values.tolist() == [0.5, 1.0, -2.0, 0.25]
    assert table.reward_offsets.tolist() == [0, 1, 4]
    assert table.n.tolist() == [1, 3]
    assert table.means.tolist() == [0.5, -0.25]


def test_n_per_prompt_and_whole_floats() -> None:
    table = PassRates.from_counts([7, 8], np.array([1.0, 2.0]), [1, 64])
    assert table.keys == ["7", "8"]
    assert table.n.tolist() == [1, 64]
    assert table.rows([8, 7]).tolist() == [1, 0]


def test_arrays_are_read_only() -> None:
    table = counts()
    with pytest.raises(ValueError, match="read-only"):
        table.n[0] = 9


def test_rows_and_coverage() -> None:
    table = counts()
    assert table.rows(["c", "x", "a", "c"]).tolist() == [2, -1, 0, 2]
    assert table.rows([]).shape == (0,)
    assert table.coverage(["a", "a", "a", "x"]) == 0.5
    assert np.isnan(table.coverage([]))


def test_looking_up_512_keys_is_fast() -> None:
    keys = [f"{i * 7919:032x}" for i in range(17_398)]
    table = PassRates.from_counts(keys, np.zeros(len(keys)), 64)
    batch = [keys[i] for i in np.random.default_rng(0).integers(0, len(keys), 512)]
    seconds = min(timeit.repeat(lambda: table.rows(batch), number=50, repeat=20)) / 50
    assert seconds < 60e-6


def test_with_counts_adds_to_known_prompts_and_appends_new_ones() -> None:
    table = counts()
    more = table.with_counts(["new", "b"], [1, 0], [2, 4], sources=["u", "s"])
    assert more.keys == ["a", "b", "c", "new"]
    assert more.sources == ["s", "s", "t", "u"]
    assert more.n.tolist() == [4, 8, 4, 2]
    assert more.successes is not None
    assert more.successes.tolist() == [0, 3, 4, 1]
    assert table.n.tolist() == [4, 4, 4]
    assert table.with_counts(["a"], [1], 1).n.tolist() == [5, 4, 4]


def test_with_rewards_keeps_order_within_a_prompt() -> None:
    more = rewards().with_rewards(["new", "a", "b"], [[9.0], [0.75, 0.1], [7.0]])
    assert more.keys == ["a", "b", "new"]
    assert more.reward_values is not None
    assert more.reward_offsets is not None
    assert more.reward_values.tolist() == [0.5, 0.75, 0.1, 1.0, -2.0, 0.25, 7.0, 9.0]
    assert more.reward_offsets.tolist() == [0, 3, 7, 8]


def test_adding_keeps_the_provenance() -> None:
    table = PassRates.from_counts(["a"], [1], 2, provenance=Provenance(model="m"))
    assert table.with_counts(["b"], [1], 2).provenance.model == "m"


def test_an_extended_table_is_no_output_of_a_build() -> None:
    made = Provenance(extra={"build": {"n": 2}, "note": 1})
    counted = PassRates.from_counts(["a"], [1], 2, provenance=made)
    assert counted.with_counts(["b"], [1], 2).provenance.extra == {"note": 1}
    rewarded = PassRates.from_rewards(["a"], [[0.5]], provenance=made)
    assert rewarded.with_rewards(["b"], [[0.5]]).provenance.extra == {"note": 1}


def test_tables_can_be_pickled() -> None:
    copy = pickle.loads(pickle.dumps(counts()))
    assert copy.rows(["c"]).tolist() == [2]


BAD_TABLES: list[tuple[Any, str]] = [
    (lambda: PassRates.from_counts([], [], 4), "at least one prompt"),
    (lambda: PassRates.from_counts(["a", "b", "a"], [1, 1, 1], 4), "'a' is in rows 0 and 2"),
    (lambda: PassRates.from_counts(["1", 1], [1, 1], 4), "'1' is in rows 0 and 1"),
    (lambda: PassRates.from_counts(["a", ""], [1, 1], 4), "keys[1] is empty"),
    (lambda: PassRates.from_counts("ab", [1, 1], 4), "single string"),
    (lambda: PassRates.from_counts([None], [1], 4), "keys[0] is None"),
    (lambda: PassRates.from_counts(3, [1], 4), "keys is a int: pass a list"),
    (lambda: PassRates.from_counts(["a", "b"], [1, 5], 4), "successes[1] is 5 of n = 4"),
    (lambda: PassRates.from_counts(["a", "b"], [-1, 5], 4), "successes[0] is -1"),
    (lambda: PassRates.from_counts(["a", "b"], [1, 0.5], 4), "successes[1] is 0.5"),
    (lambda: PassRates.from_counts(["a"], [float("nan")], 4), "successes[0] is nan"),
    (lambda: PassRates.from_counts(["a"], ["1"], 4), "pass integers"),
    (lambda: PassRates.from_counts(["a"], [None], 4), "pass integers"),
    (lambda: PassRates.from_counts(["a"], 1, 4), "has shape ()"),
    (lambda: PassRates.from_counts(["a"], [[1]], 4), "has shape (1, 1)"),
    (lambda: PassRates.from_counts(["a", "b"], [[1], [1, 2]], 4), "successes is not an array"),
    (lambda: PassRates.from_counts(["a", "b"], [1], 4), "successes has 1 entries for 2 prompts"),
    (lambda: PassRates.from_counts(["a", "b"], [1, 1], [4, 4, 4]), "n has 3 entries"),
    (lambda: PassRates.from_counts(["a", "b"], [0, 0], [4, 0]), "n[1] is 0"),
    (lambda: PassRates.from_counts(["a"], [0], 2**31), "counts go up to"),
    (lambda: PassRates.from_counts(["a"], [0], 4, sources=["s", "t"]), "sources has 2 entries"),
    (lambda: PassRates.from_counts(["a"], [0], 4, sources=[None]), "sources[0] is None"),
    (lambda: PassRates.from_rewards(["a", "b"], [[1.0], []]), "rewards[1] (prompt 'b') is []"),
    (lambda: PassRates.from_rewards(["a"], [[float("nan")]]), "rewards[0][0] is nan"),
    (lambda: PassRates.from_rewards(["a", "b"], [[1], [0, np.inf]]), "rewards[1][1] is inf"),
    (lambda: PassRates.from_rewards(["a"], [1.0]), "at least one reward"),
    (lambda: PassRates.from_rewards(["a"], [["x"]]), "cannot be read as numbers"),
    (lambda: PassRates.from_rewards(["a"], [[1.0], [2.0]]), "rewards has 2 entries"),
    (lambda: PassRates(["a"], 1), "exactly one of successes"),
    (lambda: PassRates(["a"], 1, successes=[1], reward_values=[1.0]), "exactly one of successes"),
    (lambda: PassRates(["a"], 2, reward_values=[1.0]), "1 entries for 2 rollouts"),
    (lambda: counts().with_rewards(["a"], [[1.0]]), "with_counts"),
    (lambda: rewards().with_counts(["a"], [1], 1), "with_rewards"),
    (lambda: counts().with_counts(["x"], [1], 1), "'x' is new and this table has sources"),
    (lambda: counts().with_counts(["a"], [1], 1, sources=["t"]), "'a' has source 's' here and 't'"),
    (lambda: rewards().with_rewards(["a"], [[1]], sources=["t"]), "without sources"),
    (lambda: counts().with_counts(["a", "a"], [1, 1], 1), "rows 0 and 1"),
]


@pytest.mark.parametrize(("make", "words"), BAD_TABLES)
def test_malformed_tables(make: Any, words: str) -> None:
    with pytest.raises(PassRatesError) as caught:
        make()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_provenance_round_trip_keeps_unknown_entries() -> None:
    entries = {"model": "m", "temperature": 0.7, "top_k": 0, "engine": {"name": "e"}}
    provenance = Provenance.from_dict(entries)
    assert provenance.extra == {"engine": {"name": "e"}}
    assert provenance.to_dict() == entries


def test_differences_of_what_both_sides_know() -> None:
    cached = Provenance(model="a", verifier="math", temperature=1.0, top_p=0.9, revision="1")
    run = Provenance(model="b", verifier="math", temperature=0.7, top_p=0.9, max_tokens=5)
    found = cached.differences(run)
    assert [(d.name, d.cached, d.run, d.is_error) for d in found] == [
        ("model", "a", "b", True),
        ("temperature", 1.0, 0.7, False),
    ]
    assert str(found[0]) == "model is 'a' in the pass rates and 'b' in this run"
    assert cached.differences(cached) == []
    assert Provenance().differences(run) == []
    assert Provenance(temperature=1).differences(Provenance(temperature=1.0)) == []
    (near,) = Provenance(temperature=0.7).differences(Provenance(temperature=0.71))
    assert (near.name, near.is_error) == ("temperature", False)
    (stop,) = Provenance(stop=["\n"]).differences(Provenance(stop=[]))
    assert (stop.name, stop.is_error) == ("stop", False)
    assert Provenance(stop=["\n"]).differences(Provenance(stop=["\n"])) == []


def test_two_names_of_one_model_folder(tmp_path: Path) -> None:
    here = Provenance(model=str(tmp_path))
    assert here.differences(Provenance(model=f"{tmp_path}/../{tmp_path.name}/")) == []
    assert here.differences(Provenance(model=str(tmp_path.parent)))[0].is_error


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", 3),
        ("temperature", "1"),
        ("top_k", 1.5),
        ("max_tokens", True),
        ("stop", "x"),
        ("extra", 3),
    ],
)
def test_provenance_of_wrong_types(name: str, value: Any) -> None:
    with pytest.raises(PassRatesError, match=f"provenance {name} is"):
        Provenance(**{name: value})


def test_extra_cannot_hide_a_field() -> None:
    with pytest.raises(PassRatesError, match="pass model= itself"):
        Provenance(extra={"model": "m"})


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))]
)
def test_copies_are_read_only_too(copied: Callable[[PassRates], PassRates]) -> None:
    for table in (
        PassRates.from_counts(["a", "b"], [1, 0], 2),
        PassRates.from_rewards(["a", "b"], [[0.5], [1.0, 2.0]]),
        PassRates.from_rates(["a", "b"], [0.5, 0.25]),
    ):
        again = copied(table)
        assert again.means.tolist() == table.means.tolist()
        assert again.rows(["b", "c"]).tolist() == [1, -1]
        for name in ("n", "successes", "reward_values", "reward_offsets", "rates"):
            array = getattr(again, name)
            assert (array is None) == (getattr(table, name) is None)
            if array is not None:
                with pytest.raises(ValueError, match="read-only"):
                    array[0] = 0
