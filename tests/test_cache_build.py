from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cache_parts import (
    SETTINGS,
    Digits,
    build,
    digit,
    is_odd,
    journal_lines,
    prompts,
    rows,
)

from basis_rl import verifiers
from basis_rl.errors import BasisError, ConfigError, PassRatesError
from basis_rl.passrates import PassRates
from basis_rl.passrates.build import BuildProgress, build_cache, journal_path
from basis_rl.passrates.build.shards import as_shard, of_shard
from basis_rl.prompts import Prompt
from basis_rl.rollouts import Request, Rollouts, SamplingSettings
from basis_rl.verifiers import NamedVerifier
from basis_rl.verifiers.base import Verdict


def test_the_table(tmp_path: Path) -> None:
    seen: list[BuildProgress] = []
    table = build(tmp_path / "t.parquet", progress=seen.append, extra={"x": 1})
    digits = [[int(digit(0, f"k{i}", j)) for j in range(4)] for i in range(10)]
    expected = [sum(d % 2 for d in row) for row in digits]
    assert table.successes is not None
    assert table.successes.tolist() == expected
    assert list(table.keys) == [f"k{i}" for i in range(10)]
    assert table.sources == ["a", "b"] * 5
    assert table.n.tolist() == [4] * 10
    last = seen[-1]
    assert (last.prompts_done, last.prompts) == (10, 10)
    assert (last.completions, last.completions_wanted) == (40, 40)
    assert (last.sampled_here, last.tokens_here, last.queue) == (40, 80, 0)
    assert last.mean == pytest.approx(sum(expected) / 40)
    provenance = PassRates.load(tmp_path / "t.parquet").provenance
    assert (provenance.model, provenance.revision) == ("digits", "r1")
    assert (provenance.verifier, provenance.verifier_version) == ("odd", "1")
    assert (provenance.temperature, provenance.top_p, provenance.top_k) == (1.0, 1.0, 0)
    assert provenance.max_tokens == 3
    assert provenance.stop == []
    assert provenance.created is not None
    extra = provenance.extra
    assert extra["x"] == 1
    assert (extra["completions"], extra["tokens"]) == (40, 80)
    assert extra["cut_completions"] == sum(row.count(9) for row in digits)
    assert (extra["build"]["engine"], extra["build"]["dtype"]) == ("digits", "float32")
    assert sorted(os.listdir(tmp_path)) == ["t.parquet", "t.parquet.journal.jsonl.gz"]


def test_other_rewards_make_a_table_of_rewards(tmp_path: Path) -> None:
    halves = NamedVerifier("half", "1", lambda completion, _: int(completion) / 2)
    table = build(tmp_path / "t.parquet", verifier=halves)
    assert table.is_continuous
    assert table.n.tolist() == [4] * 10
    assert table.reward_values is not None
    assert table.reward_values[:4].tolist() == [int(digit(0, "k0", j)) / 2 for j in range(4)]


@pytest.mark.parametrize("stop_after", [0, 1, 3])
def test_a_stopped_build_goes_on(
    stop_after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    build(tmp_path / "whole.parquet")
    path = tmp_path / "t.parquet"
    first = Digits(stop_after)
    with pytest.raises(KeyboardInterrupt):
        build(path, first)
    assert not path.exists()
    assert journal_path(path).exists() == (stop_after > 0)
    rest = Digits()
    build(path, rest)
    assert path.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert not set(first.asked) & set(rest.asked)
    assert len(first.asked) + len(rest.asked) == 40
    again = Digits()
    build(path, again)
    assert again.asked == []


@pytest.mark.parametrize(
    ("options", "words", "remedy"),
    [
        ({"n": 5}, "n was 4 and is now 5", "basis-rl cache extend"),
        ({"prompts": prompts(11)}, "prompts was 10 and is now 11", "basis-rl cache extend"),
        ({"n": 3}, "n was 4 and is now 3): use the same ones", "choose another output"),
        ({"prompts": prompts(9)}, "prompts was 10 and is now 9", "): use the same ones"),
        ({"adaptive": True}, "adaptive was False and is now True", "): use the same ones"),
        ({"shard": (1, 1)}, "shard was None and is now '1/1'", "): use the same ones"),
        ({"seed": 1}, "seed was 0 and is now 1", "choose another output"),
        (
            {"settings": SamplingSettings(max_tokens=3, temperature=0.5)},
            "temperature was 1.0 and is now 0.5",
            "choose another output",
        ),
        ({"engine": Digits(model="m")}, "model was 'digits' and is now 'm'", "another output"),
        ({"engine": Digits(revision=None)}, "revision was 'r1' and is now None", "another output"),
        ({"engine": Digits(dtype="float16")}, "dtype was 'float32' and is now", "another output"),
        ({"engine": Digits(name="abacus")}, "engine was 'digits' and is now", "another output"),
        (
            {"verifier": NamedVerifier("odd", "1", lambda *_: 1.0, answer_column="right")},
            "answer_column was None and is now 'right'",
            "--reverify",
        ),
        ({"verifier": is_odd("2")}, "verifier_version was '1' and is now '2'", "--reverify"),
        (
            {"verifier": NamedVerifier("even", "2", lambda *_: 1.0)},
            "verifier was 'odd' and is now 'even'; verifier_version was '1' and is now '2'",
            "--reverify",
        ),
    ],
)
@pytest.mark.parametrize("finished", [False, True])
def test_other_settings_are_refused(
    finished: bool, options: dict[str, Any], words: str, remedy: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.parquet"
    if finished:
        build(path)
    else:
        with pytest.raises(KeyboardInterrupt):
            build(path, Digits(2))
    before = journal_path(path).read_bytes()
    with pytest.raises(PassRatesError) as caught:
        build(path, **options)
    assert words in str(caught.value)
    assert remedy in str(caught.value)
    assert journal_path(path).read_bytes()[: len(before)] == before
    assert len(build(path)) == 10


@pytest.mark.parametrize("finished", [False, True])
def test_a_prompt_or_an_answer_that_changed(finished: bool, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    if finished:
        build(path)
        path.unlink()
    else:
        with pytest.raises(KeyboardInterrupt):
            build(path, Digits(2))
    other = [*prompts(9), Prompt("k9", "p9?", "b", {"answer": "9"})]
    with pytest.raises(PassRatesError, match=r"prompt 'k9' has another text than when .*t\.parq"):
        build(path, prompts=other)
    other = [*prompts(9), Prompt("k9", "p9", "b", {"answer": "0"})]
    with pytest.raises(PassRatesError, match=r"the row of prompt 'k9' .* --reverify"):
        build(path, prompts=other)


def test_changed_prompts_of_a_table_without_journal(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    build(path)
    journal_path(path).unlink()
    for prompt, words in [
        (Prompt("k9", "p9?", "b", {"answer": "9"}), "prompts_sha256 was"),
        (Prompt("k9", "p9", "b", {"answer": "0"}), "rows_sha256 was"),
    ]:
        with pytest.raises(PassRatesError, match=words):
            build(path, prompts=[*prompts(9), prompt])
    engine = Digits()
    assert len(build(path, engine, prompts=prompts()[::-1])) == 10  # another order is no change
    assert engine.asked == []
    with pytest.raises(PassRatesError, match=r"no journal .*not there any more"):
        build(path, n=8, extend=True)


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
    assert "k3" not in list(table.keys)
    assert len(table) == 9
    assert table.provenance.extra["unverified_rollouts"] == 4


def test_too_many_rollouts_without_a_verdict(tmp_path: Path) -> None:
    engine = Digits(batch=18)
    nothing = NamedVerifier("v", "1", lambda *_: None)
    with pytest.raises(PassRatesError, match=r"no verdict on 72 of 72 rollouts.*--reverify"):
        build(tmp_path / "t.parquet", engine, nothing, prompts=prompts(60))
    assert engine.batches == 1


@pytest.mark.parametrize("count", [60, 10])
def test_a_verifier_that_fails_everywhere(count: int, tmp_path: Path) -> None:
    def score(completion: str, columns: Any) -> float:
        return float(columns["number"] in completion)

    verifier = NamedVerifier("v", "1", score)
    rewarded = [Prompt(f"k{i}", f"p{i}", "a", {"number": i}) for i in range(count)]
    with pytest.raises(BasisError) as caught:
        build(tmp_path / "t.parquet", verifier=verifier, prompts=rewarded)
    rollouts = min(64, 4 * count)
    message = str(caught.value)
    assert f"failed on {rollouts} of {rollouts} completions (first: TypeError: 'in" in message
    assert "in test_cache_build.py, line " in message
    assert not (tmp_path / "t.parquet").exists()
    # Mended, it judges what is there.
    engine = Digits()
    mended = NamedVerifier("v", "2", lambda *_: 1.0)
    with pytest.raises(PassRatesError, match="verifier_version"):
        build(tmp_path / "t.parquet", engine, mended, prompts=rewarded)


def test_failures_over_many_short_starts(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"

    def fails() -> NamedVerifier:
        return NamedVerifier("v", "1", lambda *_: 1 / 0)

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            build(path, Digits(2), fails(), prompts=prompts(60))
    with pytest.raises(PassRatesError, match=r"failed on 72 of 72 completions.*--reverify"):
        build(path, Digits(2), fails(), prompts=prompts(60))


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


def test_all_rows_and_prompts_are_looked_at_before_sampling(tmp_path: Path) -> None:
    engine = Digits()
    verifier = verifiers.create("exact", answer_column="right")
    with pytest.raises(ConfigError, match=r"prompt 'p0': verifier 'exact' needs column 'right'"):
        build(tmp_path / "t.parquet", engine, verifier)

    class Checked(Digits):
        def check(self, prompts: Sequence[Any], settings: SamplingSettings) -> None:
            assert settings == SETTINGS
            raise ConfigError(f"{prompts[-1]} is too long")

    with pytest.raises(ConfigError, match="p9 is too long"):
        build(tmp_path / "t.parquet", Checked())
    assert engine.asked == []
    assert os.listdir(tmp_path) == []


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
    with pytest.raises(PassRatesError, match="there is no engine"):
        build_cache(prompts(), None, is_odd(), path)
    with pytest.raises(PassRatesError, match="no journal"):
        build_cache(prompts(), None, is_odd(), path, reverify=True)
    assert os.listdir(tmp_path) == []


def test_an_engine_that_breaks_its_word(tmp_path: Path) -> None:
    class Lazy(Digits):
        def stream(self, requests: Sequence[Request], *_: Any, **__: Any) -> Any:
            yield from super().stream(requests[:-1], *_, **__)

    class Eager(Digits):
        def answer(self, request: Request, seed: int) -> Rollouts:
            return super().answer(Request("k1", "p1", 0, 4), seed)

    class Mistaken(Digits):
        def answer(self, request: Request, seed: int) -> Rollouts:
            return super().answer(Request("q", "p1", 0, 4), seed)

    with pytest.raises(PassRatesError, match=r"left out 4 completions \(first: prompt 'k9'\)"):
        build(tmp_path / "a.parquet", Lazy())
    with pytest.raises(PassRatesError, match="completion 0 of prompt 'k1', which it was not asked"):
        build(tmp_path / "b.parquet", Eager(batch=1))
    with pytest.raises(PassRatesError, match="completion 0 of prompt 'q', which it was not asked"):
        build(tmp_path / "c.parquet", Mistaken())
    assert len(build(tmp_path / "b.parquet")) == 10  # what came before is sound


def test_a_request_may_be_answered_in_parts_and_any_order(tmp_path: Path) -> None:
    class Shuffled(Digits):
        def stream(self, requests: Sequence[Request], *_: Any, **__: Any) -> Iterator[Any]:
            singles = [
                Request(r.key, r.prompt, r.first + i, 1) for r in requests for i in range(r.count)
            ]
            order = np.random.default_rng(0).permutation(len(singles))
            yield from super().stream([singles[i] for i in order], *_, **__)

    table = build(tmp_path / "t.parquet", Shuffled(batch=7))
    assert rows(table) == rows(build(tmp_path / "whole.parquet"))
    path = tmp_path / "s.parquet"
    first, rest = Shuffled(3, batch=7), Digits()
    with pytest.raises(KeyboardInterrupt):
        build(path, first)
    assert rows(build(path, rest)) == rows(table)
    assert len(set(first.asked) | set(rest.asked)) == len(first.asked + rest.asked) == 40


class Threads(NamedVerifier):
    """Judges in threads, as one with processes does; counts the most that waited."""

    def __init__(self, wait_s: float = 0.0) -> None:
        super().__init__("odd", "1", lambda completion, _: float(int(completion) % 2))
        self.pool = ThreadPoolExecutor(3)
        self.lock = threading.Lock()
        self.now = self.most = 0
        self.wait_s = wait_s

    def submit(self, completions: Sequence[str], columns: Any) -> Future[list[Verdict]]:
        with self.lock:
            self.now += len(completions)
            self.most = max(self.most, self.now)
        return self.pool.submit(self.judge, list(completions), columns)

    def judge(self, completions: list[str], columns: Any) -> list[Verdict]:
        time.sleep(self.wait_s)
        with self.lock:
            self.now -= len(completions)
        return super().submit(completions, columns).result()


def test_verifying_overlaps_sampling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from basis_rl.passrates.build import session

    monkeypatch.setattr(session, "MAX_WAITING", 12)
    whole = rows(build(tmp_path / "whole.parquet", prompts=prompts(40)))
    verifier = Threads(0.002)
    assert rows(build(tmp_path / "t.parquet", None, verifier, prompts=prompts(40))) == whole
    assert 4 < verifier.most <= 16  # the limit, and the prompt that is over it


def test_completions_without_a_verdict_are_judged_and_not_sampled_again(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"

    class Stops(NamedVerifier):
        def submit(self, completions: Sequence[str], columns: Any) -> Future[list[Verdict]]:
            if columns["answer"] == "4":
                raise KeyboardInterrupt
            return super().submit(completions, columns)

    with pytest.raises(KeyboardInterrupt):
        build(path, Digits(), Stops("odd", "1", lambda text, _: float(int(text) % 2)))
    kinds = [line["kind"] for line in journal_lines(path)]
    assert (kinds.count("completions"), kinds.count("verdicts")) == (6, 4)
    engine, verifier = Digits(), is_odd()
    table = build(path, engine, verifier)
    assert rows(table) == rows(build(tmp_path / "whole.parquet"))
    assert len(engine.asked) == 16
    assert verifier.calls == 24


def test_shards_are_parts_of_the_whole(tmp_path: Path) -> None:
    items = prompts(100)
    parts = [of_shard(items, (i, 4)) for i in range(1, 5)]
    assert sorted(p.key for part in parts for p in part) == sorted(p.key for p in items)
    assert all(15 < len(part) < 35 for part in parts)
    assert [p for p in of_shard(items + prompts(200)[100:], (2, 4)) if p in items] == parts[1]
    table = build(tmp_path / "t.parquet", prompts=items, shard=(2, 4))
    assert list(table.keys) == [p.key for p in parts[1]]
    assert table.provenance.extra["build"]["shard"] == "2/4"
    assert as_shard("3/16") == (3, 16)
    for bad in ("0/4", "5/4", "3", "a/b"):
        with pytest.raises(ConfigError, match="shard is"):
            as_shard(bad)
    with pytest.raises(PassRatesError, match="no prompts in shard"):
        build(tmp_path / "u.parquet", prompts=items[:1], shard=(1 if parts[1] else 2, 100))


@pytest.mark.parametrize("stop_after", [0, 1, 4, 6])
def test_extending(stop_after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    build(tmp_path / "whole.parquet", n=6, prompts=prompts(12))
    path = tmp_path / "t.parquet"
    build(path)
    more = {"n": 6, "prompts": prompts(12), "extend": True}
    first, rest = Digits(stop_after), Digits()
    if stop_after < 4:
        with pytest.raises(KeyboardInterrupt):
            build(path, first, **more)
    else:
        build(path, first, **more)
    build(path, rest, **more)
    assert len(first.asked) + len(rest.asked) == 32
    assert path.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    with pytest.raises(PassRatesError, match=r"n is 5, and .* has 6 already"):
        build(path, **{**more, "n": 5})
    with pytest.raises(PassRatesError, match=r"2 prompts of .* any more \(first: 'k10'\)"):
        build(path, **{**more, "prompts": prompts(10)})


def test_an_extension_that_was_stopped_is_not_judged_again_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    build(path)
    with pytest.raises(KeyboardInterrupt):
        build(path, Digits(1), n=6, extend=True)
    with pytest.raises(PassRatesError, match="14 completions are not sampled yet"):
        build(path, verifier=is_odd("2"), n=6, reverify=True)
    assert PassRates.load(path).n.tolist() == [4] * 10


def test_a_prompt_without_a_source_among_others(tmp_path: Path) -> None:
    items = [Prompt("a", "a", None, {}), Prompt("b", "b", "x", {})]
    assert build(tmp_path / "t.parquet", prompts=items).sources == ["", "x"]


def test_the_original_build_of_an_extended_table(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    build(path)
    build(path, n=6, prompts=prompts(12), extend=True)
    engine = Digits()
    assert build(path, engine).n.tolist() == [6] * 12
    assert engine.asked == []
    with pytest.raises(PassRatesError, match=r"extended since, to 12 prompts with n 6: judge all"):
        build(path, reverify=True)
    other = [Prompt("k0", "p0", "a", {"answer": "9"}), *prompts()[1:]]
    for options, words in [
        ({"n": 5}, "n was 6 and is now 5"),
        ({"prompts": prompts(9)}, "prompts was 12 and is now 9"),
        ({"prompts": other}, "prompts was 12 and is now 10"),
        ({"seed": 1}, r"\(seed was 0 and is now 1\)"),
    ]:
        with pytest.raises(PassRatesError, match=words):
            build(path, **options)
    journal_path(path).unlink()
    with pytest.raises(PassRatesError, match="prompts was 12 and is now 10"):
        build(path)


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        (0.0, "no completion was right: check the template, the answer column and the verifier"),
        (1.0, "every completion was right: check the answer column and the verifier"),
    ],
)
def test_all_rewards_the_same(reward: float, words: str, tmp_path: Path) -> None:
    constant = NamedVerifier("constant", "1", lambda *_: reward)
    end = rf" \(first completion: '{digit(0, 'k0', 0)}'\)$"
    with pytest.warns(UserWarning, match=words + end) as caught:
        build(tmp_path / "t.parquet", verifier=constant)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(tmp_path / "few.parquet", verifier=constant, n=1)
        halves = NamedVerifier("half", "1", lambda *_: 0.5)
        build(tmp_path / "half.parquet", verifier=halves)


def test_no_reward_among_the_first_200(tmp_path: Path) -> None:
    last = NamedVerifier("last", "1", lambda _, columns: float(columns["answer"] == "199"))
    with pytest.warns(UserWarning, match=r"none of the first 2\d\d completions") as caught:
        build(tmp_path / "t.parquet", verifier=last, prompts=prompts(200))
    assert len(caught) == 1  # the last prompt is solved


def test_extending_needs_the_same_model_and_verifier(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    build(path)
    for options, words in [
        ({"engine": Digits(model="m")}, "model was 'digits'"),
        ({"verifier": is_odd("2")}, "verifier_version was '1'"),
        ({"prompts": [Prompt("k0", "p?", "a", {"answer": "0"}), *prompts()[1:]]}, "another text"),
        ({"prompts": [Prompt("k0", "p0", "a", {"answer": "9"}), *prompts()[1:]]}, "the row of"),
    ]:
        with pytest.raises(PassRatesError, match=words):
            build(path, n=6, extend=True, **options)


def test_adaptive_builds_stop_early_and_repeat_their_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")

    def clear(completion: str, columns: Any) -> float:
        sure = int(columns["answer"]) % 3  # always right, never right, or by chance
        return float(sure) if sure < 2 else float(int(completion) % 2)

    options = {"n": 32, "adaptive": True, "prompts": prompts(30)}
    verifier = NamedVerifier("v", "1", clear)
    whole = build(tmp_path / "whole.parquet", Digits(), verifier, **options)
    n = whole.n.reshape(10, 3)
    assert n.min() >= 8
    assert n.max() <= 32
    assert n[:, 2].mean() > 1.3 * n[:, :2].mean()
    saved = whole.provenance.extra["adaptive"]
    assert saved["rollouts"] == whole.n.sum() == whole.provenance.extra["completions"]
    assert 0 < saved["share_saved"] < 1
    path = tmp_path / "t.parquet"
    asked: list[tuple[str, int]] = []
    for _ in range(100):
        engine = Digits(2)
        try:
            build(path, engine, NamedVerifier("v", "1", clear), **options)
        except KeyboardInterrupt:
            continue
        finally:
            asked += engine.asked
        break
    assert path.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert len(asked) == len(set(asked)) == whole.n.sum()


def test_judging_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    path = tmp_path / "t.parquet"
    build(path)

    def even(version: str = "1", calls: int = 10**9) -> NamedVerifier:
        left = iter(range(calls))

        def score(completion: str, _: Any) -> float:
            if next(left, None) is None:
                raise KeyboardInterrupt
            return float(int(completion) % 2 == 0)

        return NamedVerifier("even", version, score)

    build(tmp_path / "whole.parquet", None, even())
    stopped = even(calls=13)
    with pytest.raises(KeyboardInterrupt):
        build_again(path, stopped)
    assert PassRates.load(path).provenance.verifier == "odd"
    rest = even()
    build_again(path, rest)
    assert (stopped.calls, rest.calls) == (12, 28)
    assert path.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert PassRates.load(path).provenance.verifier == "even"
    engine = Digits()
    build(path, engine, even())
    assert engine.asked == []
    # The same verifier once more, for answers that changed.
    once_more = even()
    answers = [Prompt(p.key, p.prompt, p.source, {"answer": "x"}) for p in prompts()]
    build_again(path, once_more, prompts=answers)
    assert once_more.calls == 40
    once_more = even()
    build_again(path, once_more, prompts=answers)
    assert once_more.calls == 40


def build_again(path: Path, verifier: Any, **options: Any) -> PassRates:
    settings = {"n": 4, "settings": SETTINGS, "prompts": prompts(), **options}
    return build_cache(settings.pop("prompts"), None, verifier, path, reverify=True, **settings)


def test_after_other_answers_were_judged_the_build_goes_on_with_them(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    build(path)
    items = [Prompt("k0", "p0", "a", {"answer": "9"}), *prompts()[1:]]
    build(path, prompts=items, reverify=True)
    assert build(path, prompts=items, n=5, extend=True).n.tolist() == [5] * 10
    with pytest.raises(PassRatesError, match="the row of prompt 'k0'"):
        build(path, n=6, extend=True)


def test_judging_an_unfinished_build_again(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    with pytest.raises(KeyboardInterrupt):
        build(path, Digits(2))
    with pytest.raises(
        PassRatesError, match=r"all 24 stored .* 16 completions are not sampled yet"
    ):
        build_again(path, is_odd("2"))
    assert not path.exists()
    engine = Digits()
    table = build(path, engine, is_odd("2"))
    assert len(engine.asked) == 16
    assert rows(table) == rows(build(tmp_path / "whole.parquet"))


@pytest.mark.parametrize("value", ["soon", "1e99", str(10**30)])
def test_a_bad_source_date(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", value)
    with pytest.raises(ConfigError, match="SOURCE_DATE_EPOCH"):
        build(tmp_path / "t.parquet")
