from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cache_parts import (
    SETTINGS,
    Digits,
    build,
    prompts,
    rows,
)

from basis_rl import verifiers
from basis_rl.errors import BasisError, ConfigError, PassRatesError
from basis_rl.passrates import PassRates
from basis_rl.prompts import Prompt
from basis_rl.rollouts import SamplingSettings
from basis_rl.verifiers import NamedVerifier


def test_the_table(tmp_path: Path) -> None:
    seen: list[tuple[int, int, float]] = []
    table = build(tmp_path / "t.parquet", progress=lambda *now: seen.append(now), extra={"x": 1})
    expected = [
        sum(random.Random(f"0 k{i} {j}").randint(0, 9) % 2 for j in range(4)) for i in range(10)
    ]
    assert table.successes is not None
    assert table.successes.tolist() == expected
    assert table.keys == [f"k{i}" for i in range(10)]
    assert table.sources == ["a", "b"] * 5
    assert table.n.tolist() == [4] * 10
    assert [(done, total) for done, total, _ in seen] == [(3, 10), (6, 10), (9, 10), (10, 10)]
    assert seen[-1][2] == pytest.approx(sum(expected) / 40)
    provenance = PassRates.load(tmp_path / "t.parquet").provenance
    assert (provenance.model, provenance.revision) == ("digits", "r1")
    assert (provenance.verifier, provenance.verifier_version) == ("odd", "1")
    assert (provenance.temperature, provenance.top_p, provenance.top_k) == (1.0, 1.0, 0)
    assert provenance.max_tokens == 3
    assert provenance.stop == []
    assert provenance.created is not None
    assert provenance.extra["x"] == 1
    assert os.listdir(tmp_path) == ["t.parquet"]


def test_other_rewards_make_a_table_of_rewards(tmp_path: Path) -> None:
    halves = NamedVerifier("half", "1", lambda completion, _: int(completion) / 2)
    table = build(tmp_path / "t.parquet", verifier=halves)
    assert table.is_continuous
    assert table.n.tolist() == [4] * 10


@pytest.mark.parametrize("stop_after", [0, 1, 3])
def test_a_stopped_build_goes_on(stop_after: int, tmp_path: Path) -> None:
    whole = build(tmp_path / "whole.parquet")
    path = tmp_path / "t.parquet"
    with pytest.raises(KeyboardInterrupt):
        build(path, Digits(stop_after))
    assert not path.exists()
    rest = Digits()
    assert rows(build(path, rest)) == rows(whole)
    assert rest.calls == 4 - stop_after
    again = Digits()
    assert rows(build(path, again)) == rows(whole)
    assert again.calls == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 5}, "n was 4 and is now 5"),
        ({"seed": 1}, "seed was 0 and is now 1"),
        ({"settings": SamplingSettings(max_tokens=3, temperature=0.5)}, "temperature was 1.0"),
        ({"prompts": prompts(9)}, "prompts was 10 and is now 9"),
        (
            {"verifier": NamedVerifier("odd", "1", lambda *_: 1.0, answer_column="right")},
            "answer_column was None and is now 'right'",
        ),
        ({"verifier": NamedVerifier("odd", "2", lambda *_: 1.0)}, "verifier_version was '1'"),
        ({"prompts": [*prompts(9), Prompt("k9", "p9", "b", {"answer": "0"})]}, "prompts_sha256"),
    ],
)
@pytest.mark.parametrize("finished", [False, True])
def test_other_settings_are_refused(
    finished: bool, options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.parquet"
    if finished:
        build(path)
    else:
        with pytest.raises(KeyboardInterrupt):
            build(path, Digits(2))
    with pytest.raises(PassRatesError) as caught:
        build(path, **options)
    assert words in str(caught.value)
    assert "choose another output" in str(caught.value)


def test_an_output_that_something_else_wrote(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    PassRates.from_counts(["a"], [1], 2).save(path)
    with pytest.raises(PassRatesError, match="was not built here"):
        build(path)
    path.unlink()
    build(path).with_counts(["k0"], [1], 2, sources=["a"]).save(path)
    with pytest.raises(PassRatesError, match="or was extended since"):
        build(path)


def test_rollouts_without_a_verdict(tmp_path: Path) -> None:
    def score(_: str, columns: Any) -> float | None:
        return None if columns["answer"] == "3" else 1.0

    table = build(tmp_path / "t.parquet", verifier=NamedVerifier("v", "1", score))
    assert "k3" not in table.keys
    assert len(table) == 9
    assert table.provenance.extra["unverified_rollouts"] == 4


def test_too_many_rollouts_without_a_verdict(tmp_path: Path) -> None:
    sampler = Digits()
    with pytest.raises(PassRatesError, match=r"no verdict on 72 of 72 rollouts"):
        build(
            tmp_path / "t.parquet",
            sampler,
            NamedVerifier("v", "1", lambda *_: None),
            prompts=prompts(60),
            batch_size=18,
        )
    assert sampler.calls == 1


@pytest.mark.parametrize(("count", "rollouts"), [(60, 64), (10, 40)])
def test_a_verifier_that_fails_everywhere(count: int, rollouts: int, tmp_path: Path) -> None:
    def score(completion: str, columns: Any) -> float:
        return float(columns["number"] in completion)

    verifier = NamedVerifier("v", "1", score)
    rewarded = [Prompt(f"k{i}", f"p{i}", "a", {"number": i}) for i in range(count)]
    with pytest.raises(BasisError) as caught:
        build(tmp_path / "t.parquet", verifier=verifier, prompts=rewarded)
    message = str(caught.value)
    assert f"failed on {rollouts} of {rollouts} completions (first: TypeError: 'in" in message
    assert "in test_cache_build.py, line " in message
    assert not (tmp_path / "t.parquet").exists()


def test_failures_over_many_short_starts(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"

    def fails() -> NamedVerifier:
        return NamedVerifier("v", "1", lambda *_: 1 / 0)

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            build(path, Digits(2), fails(), prompts=prompts(60))
    with pytest.raises(PassRatesError, match=r"failed on 72 of 72 completions"):
        build(path, Digits(), fails(), prompts=prompts(60))


def test_all_rows_and_prompts_are_looked_at_before_sampling(tmp_path: Path) -> None:
    sampler = Digits()
    verifier = verifiers.create("exact", answer_column="right")
    with pytest.raises(ConfigError, match=r"prompt 'p0': verifier 'exact' needs column 'right'"):
        build(tmp_path / "t.parquet", sampler, verifier)

    class Checked(Digits):
        def check(self, prompts: Sequence[Any], settings: SamplingSettings) -> None:
            assert settings == SETTINGS
            raise ConfigError(f"{prompts[-1]} is too long")

    with pytest.raises(ConfigError, match="p9 is too long"):
        build(tmp_path / "t.parquet", Checked())
    assert sampler.calls == 0
    assert os.listdir(tmp_path) == []


def test_failures_are_counted_over_restarts(tmp_path: Path) -> None:
    def score(completion: str, columns: Any) -> float:
        if columns["answer"] in "17":
            raise ZeroDivisionError
        return 1.0

    path = tmp_path / "t.parquet"
    with pytest.raises(KeyboardInterrupt):
        build(path, Digits(1), NamedVerifier("v", "1", score))
    table = build(path, verifier=NamedVerifier("v", "1", score))
    assert table.provenance.extra["verifier_failures"] == {"ZeroDivisionError": 8}
    assert table.means.tolist() == [1, 0, 1, 1, 1, 1, 1, 0, 1, 1]


def test_what_cannot_be_built(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    with pytest.raises(PassRatesError, match="no prompts"):
        build(path, prompts=[])
    with pytest.raises(PassRatesError, match="2 prompts have the key 'k0'"):
        build(path, prompts=[*prompts(), prompts(1)[0]])
    with pytest.raises(PassRatesError, match="n is 0"):
        build(path, n=0)
    with pytest.raises(PassRatesError, match="pass model= itself"):
        build(path, extra={"model": "m"})
    with pytest.raises(ValueError, match="no folder"):
        build(tmp_path / "none" / "t.parquet")
    assert os.listdir(tmp_path) == []


def test_disk_full_and_then_some_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    whole = build(tmp_path / "whole.parquet")
    sync, calls = os.fsync, 0

    def fail_later(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail_later)
        with pytest.raises(PassRatesError, match=r"journal.jsonl: No space left .*free some space"):
            build(path)
    assert rows(build(path)) == rows(whole)
