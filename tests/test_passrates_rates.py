"""Rates of an unknown number of rollouts, and hashes of prompts with named keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from basis_rl import Basis, RewardBatch
from basis_rl.errors import ConfigError, PassRatesError
from basis_rl.estimators import create
from basis_rl.passrates import PassRates, Provenance, prompt_hash, prompt_key
from basis_rl.train.fingerprints import of_pass_rates

KEYS = ["a", "b", "c", "d"]
HASHES = [prompt_hash(key) for key in KEYS]


def rates(**options: Any) -> PassRates:
    return PassRates.from_rates(KEYS, [0.0, 0.3, 0.7, 1.0], **options)


def named(hashes: Any = HASHES, **options: Any) -> PassRates:
    return PassRates.from_counts(KEYS, [0, 3, 7, 10], 10, prompt_hashes=hashes, **options)


def test_a_table_of_rates() -> None:
    table = rates(sources=["s", "s", "t", "t"])
    assert (table.kind, table.is_continuous) == ("rates", False)
    assert table.n.tolist() == [0, 0, 0, 0]
    assert table.successes is None
    assert table.reward_values is None
    assert table.rates is not None
    assert table.means.tolist() == [0.0, 0.3, 0.7, 1.0]
    assert repr(table) == "PassRates(4 prompts, n unknown, rates)"
    with pytest.raises(ValueError, match="read-only"):
        table.rates[0] = 1
    assert named().kind == "counts"
    assert PassRates.from_rewards(["a"], [[0.5]]).kind == "rewards"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0.1, 1.5], "rates[1] is 1.5 (prompt 'b'): rates lie between 0 and 1; divide percent"),
        ([-0.1, 0.5], "rates[0] is -0.1"),
        ([0.1, float("nan")], "rates[1] is nan (prompt 'b'): rates lie between 0 and 1; leave"),
        ([0.1, None], "leave prompts without a rate out"),
        ([0.1], "rates has 1 entries for 2 prompts"),
        (0.1, "rates has shape ()"),
        (["n/a", 1], "rates cannot be read as numbers"),
    ],
)
def test_malformed_rates(values: Any, words: str) -> None:
    with pytest.raises(PassRatesError) as caught:
        PassRates.from_rates(["a", "b"], values)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_is_added_to_rates() -> None:
    for add in (
        lambda: rates().with_counts(["a"], [1], 2),
        lambda: rates().with_rewards(["a"], [[1.0]]),
    ):
        with pytest.raises(PassRatesError, match=r"unknown.*basis-rl cache import --n N"):
            add()
    with pytest.raises(PassRatesError, match="rates have no n"):
        PassRates(["a"], 3, rates=[0.5])


def test_rates_in_a_file(tmp_path: Path) -> None:
    table = rates(sources=["s", "s", "t", "t"], prompt_hashes=HASHES)
    table.save(tmp_path / "t.parquet")
    assert pq.read_schema(tmp_path / "t.parquet").names == ["key", "source", "prompt_hash", "rate"]
    loaded = PassRates.load(tmp_path / "t.parquet")
    assert loaded.kind == "rates"
    assert loaded.means.tolist() == table.means.tolist()
    assert loaded.n.tolist() == [0] * 4
    assert loaded.prompt_hashes == HASHES
    assert loaded.provenance.schema_version == 2
    assert of_pass_rates(loaded) == of_pass_rates(table)
    assert of_pass_rates(table) != of_pass_rates(PassRates.from_rates(KEYS, [0.0, 0.3, 0.7, 0.9]))


@pytest.mark.parametrize(
    "options",
    [
        {"smoothing": "none"},
        {"smoothing": "none", "missing": "prior"},
        {"smoothing": "none", "variant": "unb", "calibration": "leave-one-out"},
        {"preset": "paper"},
        {"preset": "paper-literal"},
        {"preset": "paper", "variant": "rvg"},
        {"preset": "paper", "variant": "vop", "calibration": "previous-batch"},
    ],
)
def test_basis_on_rates_is_basis_on_counts_without_smoothing(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    keys = [f"k{i}" for i in range(50)]
    successes = rng.integers(0, 11, 50)
    sources = ["s", "t"] * 25
    bare = Basis(PassRates.from_rates(keys, successes / 10, sources=sources), **options)
    counted = Basis(PassRates.from_counts(keys, successes, 10, sources=sources), **options)
    for _ in range(3):
        names = [*rng.choice(keys, 30, replace=False).tolist()]
        if options.get("missing") == "prior":
            names += ["unknown"]
        batch = RewardBatch(names, rng.integers(0, 2, len(names)), sources=["s"] * len(names))
        expected = counted.estimate(batch).baselines
        np.testing.assert_allclose(bare.estimate(batch).baselines, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"smoothing": "empirical-bayes"}, {"preset": "robust"}])
def test_smoothing_of_rates_is_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        create("basis", rates(), **options)
    message = str(caught.value)
    assert "cache import --n N" in message
    assert "smoothing='none' (estimator.smoothing: none" in message
    assert "\n" not in message


def test_other_estimators_take_no_notice_of_rates() -> None:
    assert create("zero", rates()).estimate(RewardBatch(["a"], [1.0])).baselines.tolist() == [0.0]


@pytest.mark.parametrize("path", [None, 3, True, b"t.parquet", "", ["t.parquet"]])
def test_paths_that_are_none(path: Any) -> None:
    for use in (PassRates.load, named().save):
        with pytest.raises(PassRatesError, match="name a file") as caught:
            use(path)
        assert "\n" not in str(caught.value)


def test_hashes_are_kept_and_shortened(tmp_path: Path) -> None:
    table = named([prompt_key("a"), HASHES[1], "", HASHES[3]])
    assert table.prompt_hashes == [HASHES[0], HASHES[1], "", HASHES[3]]
    table.save(tmp_path / "t.parquet")
    assert PassRates.load(tmp_path / "t.parquet").prompt_hashes == table.prompt_hashes
    with pytest.raises(PassRatesError, match=r"prompt_hashes\[1\] is 'XY' \(prompt 'b'\)"):
        named([HASHES[0], "XY", "", ""])
    with pytest.raises(PassRatesError, match="prompt_hashes has 1 entries for 4 prompts"):
        named(["" for _ in "a"])


def test_hashes_of_added_prompts() -> None:
    table = named([HASHES[0], "", HASHES[2], ""])
    more = table.with_counts(["b", "c", "e"], [1, 1, 1], 2, prompt_hashes=[HASHES[1], "", "0" * 16])
    assert more.prompt_hashes == [HASHES[0], HASHES[1], HASHES[2], "", "0" * 16]
    assert table.with_counts(["e"], [1], 2).prompt_hashes == [HASHES[0], "", HASHES[2], "", ""]
    bare = PassRates.from_counts(["a"], [1], 2)
    assert bare.with_counts(["a"], [1], 2).prompt_hashes is None
    assert bare.with_counts(["b"], [1], 2, prompt_hashes=HASHES[1:2]).prompt_hashes == [
        "",
        HASHES[1],
    ]
    rewarded = PassRates.from_rewards(["a"], [[1.0]], prompt_hashes=HASHES[:1])
    joint = rewarded.with_rewards(["b"], [[0.5]], prompt_hashes=HASHES[1:2])
    assert joint.prompt_hashes == HASHES[:2]
    for add in (
        lambda: table.with_counts(["a"], [1], 2, prompt_hashes=HASHES[1:2]),
        lambda: rewarded.with_rewards(["a"], [[1.0]], prompt_hashes=HASHES[1:2]),
    ):
        with pytest.raises(PassRatesError, match="prompt 'a' has hash"):
            add()


def test_the_digest_covers_hashes_and_rates(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    for table, column in ((named(), "prompt_hash"), (rates(), "rate")):
        table.save(path)
        read = pq.read_table(path)
        place = read.column_names.index(column)
        changed = read.column(column).to_pylist()[::-1]
        field = read.schema.field(column)
        import pyarrow as pa

        pq.write_table(read.set_column(place, field, pa.array(changed, field.type)), path)
        with pytest.raises(PassRatesError, match="does not match its checksum"):
            PassRates.load(path)


def test_the_digest_of_version_1_is_what_it_was(tmp_path: Path) -> None:
    """Files of earlier releases can be read, and theirs can read ours."""
    made = Provenance(model="m", created="c", package_version="0", extra={"x": [1]})
    tables = {
        "219acfd0aab9fadc757d8a269fa4f833c2ccded0d7229539b0d4e916c8147f2a": PassRates.from_counts(
            ["a", "b", "ü"], [0, 3, 4], 4, sources=["s", "s", "t"], provenance=made
        ),
        "e638e90da9b7cff587d432070d18fd9afe433dc42f461bd8469c8b5c2db0593e": PassRates.from_rewards(
            ["a", "b"], [[0.5], [1.0, -2.0, 0.25]], provenance=made
        ),
    }
    for digest, table in tables.items():
        table.save(tmp_path / "t.parquet")
        metadata = json.loads(pq.read_metadata(tmp_path / "t.parquet").metadata[b"basis_rl"])
        assert metadata["content_sha256"] == digest
        assert metadata["provenance"]["schema_version"] == 1


def test_raw_rates_of_an_adaptive_table_are_warned_of(recwarn: pytest.WarningsRecorder) -> None:
    made = Provenance(extra={"adaptive": {"rollouts": 24}})
    table = PassRates.from_counts(KEYS, [0, 3, 4, 8], 8, provenance=made)
    Basis(table, "robust")
    assert not recwarn
    with pytest.warns(UserWarning, match="sampled adaptively.*smoothing='jeffreys'"):
        Basis(table, "paper")
