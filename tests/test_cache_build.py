from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from random_qwen3 import make_model, make_tokenizer, save_model

from basis_rl import cli
from basis_rl.errors import PassRatesError
from basis_rl.passrates import PassRates
from basis_rl.passrates.builder import build_cache
from basis_rl.passrates.journal import Batch, Journal
from basis_rl.prompts import Prompt, load_prompts
from basis_rl.rollouts import SamplingSettings, TransformersSampler
from basis_rl.verifiers import NamedVerifier

SETTINGS = SamplingSettings(max_tokens=3)


class Digits:
    """A sampler that writes a digit drawn from seed and key, and can be stopped after a batch."""

    model = "digits"
    revision = "r1"

    def __init__(self, stop_after: int | None = None) -> None:
        self.calls = 0
        self.stop_after = stop_after

    def sample(
        self,
        prompts: Sequence[Any],
        n: int = 1,
        settings: SamplingSettings | None = None,
        *,
        seed: int = 0,
        keys: Sequence[str] | None = None,
    ) -> list[list[str]]:
        if self.calls == self.stop_after:
            raise KeyboardInterrupt
        self.calls += 1
        assert keys is not None
        return [
            [str(random.Random(f"{seed} {key} {i}").randint(0, 9)) for i in range(n)]
            for key in keys
        ]


def prompts(count: int = 10) -> list[Prompt]:
    return [Prompt(f"k{i}", f"p{i}", "ab"[i % 2], {"answer": str(i)}) for i in range(count)]


def is_odd() -> NamedVerifier:
    return NamedVerifier("odd", "1", lambda completion, _: float(int(completion) % 2))


def build(path: Path, sampler: Any = None, verifier: Any = None, **options: Any) -> PassRates:
    settings = {"n": 4, "settings": SETTINGS, "batch_size": 3, **options}
    items = settings.pop("prompts", prompts())
    return build_cache(items, sampler or Digits(), verifier or is_odd(), path, **settings)


def rows(table: PassRates) -> Any:
    values = table.successes if table.reward_values is None else table.reward_values
    assert values is not None
    return table.keys, table.sources, table.n.tolist(), values.tolist()


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


def test_a_journal_cut_anywhere_gives_the_same_table(tmp_path: Path) -> None:
    whole = build(tmp_path / "whole.parquet")
    path = tmp_path / "t.parquet"
    with pytest.raises(KeyboardInterrupt):
        build(path, Digits(3))
    journal = tmp_path / "t.parquet.journal.jsonl"
    data = journal.read_bytes()
    for length in range(0, len(data), 13):
        journal.write_bytes(data[:length])
        sampler = Digits()
        assert rows(build(path, sampler)) == rows(whole)
        assert sampler.calls == 4 - max(data[:length].count(b"\n") - 1, 0)
        path.unlink()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 5}, "n was 4 and is now 5"),
        ({"seed": 1}, "seed was 0 and is now 1"),
        ({"settings": SamplingSettings(max_tokens=3, temperature=0.5)}, "temperature was 1.0"),
        ({"prompts": prompts(9)}, "prompts was 10 and is now 9"),
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


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"journal": 1}\nnonsense\n{"batch": 0}\n', "is damaged"),
        (b'{"journal": 99, "settings": {}}\n', "not a journal of this version"),
        (b'{"other": 1}\n', "not a journal of this version"),
        (b'{"journal": 1, "created": "c", "settings": {}}\n{"batch": 0}\n', "is damaged"),
    ],
)
def test_damaged_journals(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(content)
    with pytest.raises(PassRatesError, match=words):
        Journal(path, {}, created="now")


def test_a_journal_in_use(tmp_path: Path) -> None:
    with (
        Journal(tmp_path / "j", {}, created="now"),
        pytest.raises(PassRatesError, match="in use by another process"),
    ):
        Journal(tmp_path / "j", {}, created="now")


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


# --- the command ---


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    save_model(folder / "model")
    with (folder / "prompts.jsonl").open("w") as stream:
        for i in range(40):
            stream.write(json.dumps({"prompt": f"{i}+1=", "answer": "x", "task": "sum"}) + "\n")
    (folder / "length_rewards.py").write_text(
        "def odd(completion, answer): return float(len(completion) % 2)\n"
    )
    return folder


def command(folder: Path, output: Path, **options: Any) -> list[str]:
    values = {
        "model": folder / "model",
        "data": folder / "prompts.jsonl",
        "out": output,
        "verifier": "length_rewards:odd",
        "source-column": "task",
        "n": 6,
        "max-tokens": 40,
        "batch-size": 2,
        "stop": "\\n",
        **options,
    }
    arguments = [str(part) for name, value in values.items() for part in (f"--{name}", value)]
    return ["cache", "build", *arguments]


def run_command(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.fixture(scope="module")
def whole(folder: Path) -> PassRates:
    """The table of a build that nothing stopped."""
    here = os.getcwd()
    os.chdir(folder)
    try:
        assert run_command(command(folder, folder / "whole.parquet")) == 0
    finally:
        os.chdir(here)
    return PassRates.load(folder / "whole.parquet")


def kill_at(moments: list[int], folder: Path, out: Path) -> int:
    """Start the command and kill it when so many lines are in the journal; kills that struck."""
    journal = Path(f"{out}.journal.jsonl")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    struck = 0
    for lines in moments:
        process = subprocess.Popen(
            [sys.executable, "-m", "basis_rl", *command(folder, out)],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None:
            if journal.exists() and journal.read_bytes().count(b"\n") >= lines:
                time.sleep(random.uniform(0, 0.1))
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.002)
        struck += process.wait() == -signal.SIGKILL
    return struck


def test_killed_builds_give_the_table_of_a_whole_one(
    folder: Path, whole: PassRates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    out = tmp_path / "t.parquet"
    assert kill_at([1, 5, 11], folder, out) == 3
    assert not out.exists()
    assert run_command(command(folder, out)) == 0
    assert rows(PassRates.load(out)) == rows(whole)
    assert os.listdir(tmp_path) == ["t.parquet"]


@pytest.mark.slow
@pytest.mark.parametrize("repeat", range(5))
def test_many_kills(
    repeat: int, folder: Path, whole: PassRates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    out = tmp_path / "t.parquet"
    moments = sorted(random.Random(repeat).sample(range(1, 19), 4))
    assert kill_at(moments, folder, out) >= 1
    assert run_command(command(folder, out)) == 0
    assert rows(PassRates.load(out)) == rows(whole)


def test_the_command_and_the_function_agree(folder: Path, whole: PassRates, tmp_path: Path) -> None:
    sampler = TransformersSampler(make_model(), make_tokenizer(), name=str(folder / "model"))
    sampler.network.config.dtype = None
    table = build_cache(
        load_prompts(str(folder / "prompts.jsonl"), source_column="task"),
        sampler,
        NamedVerifier("odd", "1", lambda completion, _: float(len(completion) % 2)),
        tmp_path / "t.parquet",
        n=6,
        settings=SamplingSettings(max_tokens=40, stop=("\n",)),
        batch_size=2,
    )
    assert rows(table) == rows(whole)
    assert 0 < table.means.mean() < 1


def test_info(whole: PassRates, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["cache", "info", str(folder / "whole.parquet")]) == 0
    output = capsys.readouterr().out
    assert "40 prompts, 240 rollouts (6 each), counts of successes" in output
    assert f"pass rate: {whole.means.mean():.4f}" in output
    assert f"at exactly 0: {(whole.means == 0).mean():.1%}" in output
    assert "verifier: length_rewards:odd" in output
    assert "sum: 40 prompts" in output
    bars = [line for line in output.splitlines() if " to " in line and line.startswith("    ")]
    assert len(bars) == 10
    assert sum(int(line.split()[3]) for line in bars) == 40


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max-tokens": 41}, "max_tokens was 40 and is now 41"),
        ({"verifier": "exakt"}, "did you mean 'exact'"),
        ({"temperature": -1}, "temperature is -1.0"),
        ({"data": "none.jsonl"}, "none.jsonl"),
        ({"model": "none"}, "cannot load model 'none'"),
        ({"out": "none/t.parquet"}, "create it first"),
        ({"answer-column": "anser", "verifier": "exact", "out": "t.parquet"}, "'anser'"),
        ({"n": "many"}, "'many' is not a valid integer"),
    ],
)
def test_mistakes_on_the_command_line(
    options: dict[str, Any],
    words: str,
    folder: Path,
    whole: PassRates,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    assert run_command(command(folder, folder / "whole.parquet", **options)) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("basis-rl: ")
    assert words in last


def test_journal_batches_are_on_the_disk_at_once(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", {"a": 1}, created="now") as journal:
        journal.append(0, Batch([[1.0, None]], {"E": 1}))
        lines = (tmp_path / "j").read_text().splitlines()
        assert json.loads(lines[1]) == {
            "batch": 0,
            "rewards": [[1.0, None]],
            "failures": {"E": 1},
        }
