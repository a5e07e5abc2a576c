from __future__ import annotations

import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cache_parts import Digits, journal_lines, rows
from random_qwen3 import make_model, make_tokenizer, save_model

from basis_rl import cli
from basis_rl.cli import build_progress, build_run
from basis_rl.cli.build_progress import note_within, shown_progress
from basis_rl.cli.build_run import second_stop_ends_at_once
from basis_rl.cli.data_options import unescaped
from basis_rl.passrates import PassRates, Provenance
from basis_rl.passrates.build import BuildProgress, build_cache, journal_path, session
from basis_rl.passrates.build.cost import cost_lines
from basis_rl.prompts import load_prompts
from basis_rl.rollouts import Completion, Request, Rollouts, SamplingSettings, TransformersEngine
from basis_rl.rollouts.create import ENGINES
from basis_rl.verifiers import NamedVerifier

PROMPTS = 12


class Counting(Digits):
    """Stands for an engine that is opened by name: answers tell model and number."""

    opened = 0

    @classmethod
    def open(  # type: ignore[override]
        cls, model: str, *, revision: str | None = None, dtype: str = "auto", base: int = 0
    ) -> Counting:
        Counting.opened += 1
        kind = "float32" if dtype == "auto" else dtype
        return cls(model=model, revision=revision, dtype=kind, base=base)

    def answer(self, request: Request, seed: int) -> Rollouts:
        numbers = range(request.first, request.first + request.count)
        texts = [request.key + "x" * (len(self.model) + number) for number in numbers]
        self.asked += [(request.key, number) for number in numbers]
        return Rollouts(request.key, request.first, tuple(Completion(t, len(t)) for t in texts))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    save_model(folder / "model")
    write_prompts(folder / "prompts.jsonl", range(PROMPTS))
    (folder / "length_rewards.py").write_text(
        "def odd(completion, answer): return float(len(completion) % 2)\n"
        "def even(completion, answer): return float(len(completion) % 2 == 0)\n"
        "def failing(completion, answer):\n"
        "    if len(completion) % 3 == 0:\n"
        "        raise ValueError\n"
        "    return 1.0\n"
    )
    return folder


def write_prompts(path: Path, numbers: Sequence[int]) -> Path:
    lines = [{"prompt": f"{i}+1=", "answer": "x", "task": "sum"} for i in numbers]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(autouse=True)
def _counting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setitem(ENGINES, "counting", (__name__, "Counting"))
    monkeypatch.setattr(Counting, "opened", 0)


def command(output: Path, *more: str, **options: Any) -> list[str]:
    values = {
        "model": "model",
        "data": "prompts.jsonl",
        "out": output,
        "verifier": "length_rewards:odd",
        "verifier-processes": 0,
        "source-column": "task",
        "n": 6,
        "max-tokens": 12,
        "stop": "\\n",
        **{name.replace("_", "-"): value for name, value in options.items()},
    }
    arguments = [str(part) for name, value in values.items() for part in (f"--{name}", value)]
    return ["cache", "build", *arguments, *more]


def counted(output: Path, *more: str, **options: Any) -> list[str]:
    return command(output, *more, **{"engine": "counting", **options})


def run_command(arguments: Sequence[Any]) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main([str(argument) for argument in arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_the_command_and_the_function_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    sizes = ["--engine-option", "batch_size=8", "--training-rollouts", "36"]
    assert run_command(command(tmp_path / "whole.parquet", *sizes)) == 0
    told = capsys.readouterr()
    whole = PassRates.load(tmp_path / "whole.parquet")
    assert f"{PROMPTS} prompts; loading model" in told.err
    assert f"whole.parquet: {whole}, mean reward {whole.means.mean():.4f}" in told.out
    tokens = whole.provenance.extra["tokens"]
    assert f"cost: 72 rollouts, {tokens:,} tokens" in told.out
    assert f"36 rollouts of the same length and speed: {tokens / 2:,.0f} tokens" in told.out
    assert "the cache has 2 times as many rollouts" in told.out
    assert "cut at max_tokens: " in told.err
    engine = TransformersEngine(make_model(), make_tokenizer(), name="model", batch_size=8)
    table = build_cache(
        load_prompts("prompts.jsonl", source_column="task"),
        engine,
        NamedVerifier("odd", "1", lambda completion, _: float(len(completion) % 2)),
        tmp_path / "t.parquet",
        n=6,
        settings=SamplingSettings(max_tokens=12, stop=("\n",)),
    )
    assert rows(table) == rows(whole)
    assert 0 < table.means.mean() < 1
    build = whole.provenance.extra["build"]
    assert build["options"]["engine_options"] == {"batch_size": 8}
    assert build["options"]["data"][0]["source_column"] == "task"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"verifier": "exakt"}, "did you mean 'exact'"),
        ({"temperature": -1}, "temperature is -1.0"),
        ({"data": "none.jsonl"}, "none.jsonl"),
        ({"out": "none/t.parquet"}, "create it first"),
        ({"out": "/proc/t.parquet"}, "cannot write /proc/t.parquet"),
        ({"out": "t.csv"}, "--out t.csv: a table is a Parquet file; name it like t.parquet"),
        ({"prompt-column": "text"}, "(--prompt-column)"),
        ({"n": "many"}, "'many' is not a valid integer"),
        ({"n": 0}, "n is 0"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"answer-column": "anser", "verifier": "exact"}, "needs column 'anser'"),
        ({"template": "{the prompt}"}, "did you mean 'prompt'"),
        ({"engine": "transformer"}, "did you mean 'transformers'"),
        ({"engine-option": "bace=1"}, "did you mean 'base'"),
        ({"engine-option": "base"}, "write it as key=value"),
        ({"engine-option": "base={"}, "--engine-option base={"),
        ({"base-url": "http://x"}, "has no option 'base_url'"),
        ({"shard": "5/4"}, "shard is 5/4"),
        ({"seed": 1, "out": "whole.parquet"}, "seed was 0 and is now 1"),
        ({"model": "none", "out": "whole.parquet"}, "model was "),
        ({"max-tokens": 41, "out": "whole.parquet"}, "max_tokens was 12 and is now 41"),
        ({"n": 7, "out": "whole.parquet"}, "`basis-rl cache extend whole.parquet`"),
        ({"verifier": "length_rewards:even", "out": "whole.parquet"}, "--reverify"),
        ({"seed": 1, "out": "begun.parquet"}, "begun.parquet.journal.jsonl.gz was made with other"),
    ],
)
def test_mistakes_are_found_before_the_model_is_loaded(
    options: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not Path("whole.parquet").exists():
        assert run_command(counted(Path("whole.parquet"))) == 0
        assert run_command(counted(Path("begun.parquet"))) == 0
        Path("begun.parquet").unlink()
        capsys.readouterr()
    opened = Counting.opened
    assert run_command(counted(tmp_path / "t.parquet", **options)) == 2
    assert Counting.opened == opened
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert words in last
    if "engine" not in options and options.get("n") != "many":
        assert last.startswith("basis-rl: ")
    assert os.listdir(tmp_path) == []


def test_a_model_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(command(tmp_path / "t.parquet", model="none")) == 2
    assert "cannot load model 'none'" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_a_finished_table_needs_no_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "t.parquet"
    for _ in range(2):
        assert run_command(counted(out)) == 0
    assert Counting.opened == 1
    assert "t.parquet is there already; nothing to do" in capsys.readouterr().out
    out.unlink()  # all of it is in the journal
    assert run_command(counted(out)) == 0
    assert Counting.opened == 1
    assert "wrote" in capsys.readouterr().out


def test_judging_again_loads_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "t.parquet"
    assert run_command(counted(out)) == 0
    before = PassRates.load(out)
    again = counted(out, "--reverify", verifier="length_rewards:even")
    assert run_command(again) == 0
    after = PassRates.load(out)
    assert Counting.opened == 1
    assert (before.means + after.means == 1).all()
    assert after.provenance.verifier == "length_rewards:even"


def test_completions_can_be_discarded(tmp_path: Path) -> None:
    out = tmp_path / "t.parquet"
    assert run_command(counted(out, "--discard-completions")) == 0
    assert os.listdir(tmp_path) == ["t.parquet"]
    assert run_command(counted(out, "--reverify")) == 2
    assert run_command(["cache", "extend", out, "--n", 8]) == 2


def test_shards_and_adaptive_builds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys: list[str] = []
    for part in ("1/2", "2/2"):
        out = tmp_path / f"{part[0]}.parquet"
        assert run_command(counted(out, "--adaptive", shard=part, n=20)) == 0
        keys += PassRates.load(out).keys
    assert sorted(keys) == sorted(p.key for p in load_prompts("prompts.jsonl"))
    told = capsys.readouterr().out
    assert "adaptive: " in told
    assert "expected error of a pass rate 0." in told


def test_extending_in_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "t.parquet"
    options = ["--engine-option", "base=3"]
    assert run_command(counted(out, *options)) == 0
    before = PassRates.load(out)
    assert run_command(["cache", "extend", out]) == 2
    assert "give --n, --data, or both" in capsys.readouterr().err
    assert run_command(["cache", "extend", out, "--n", 4]) == 2
    assert "n is 4, and " in capsys.readouterr().err
    more = write_prompts(tmp_path / "more.jsonl", range(8, 20))
    asked = ["cache", "extend", out, "--n", 10, "--data", more]
    assert run_command([*asked, "--verifier-processes", 0]) == 0
    table = PassRates.load(out)
    assert list(table.keys)[:PROMPTS] == list(before.keys)
    assert table.n.tolist() == [10] * 20
    assert table.sources == ["sum"] * 20
    build = table.provenance.extra["build"]
    assert build["options"]["engine_options"] == {"base": 3}
    assert [data["data"] for data in build["options"]["data"]] == ["prompts.jsonl", str(more)]
    lines = [line for line in journal_lines(out) if line["kind"] == "completions"]
    assert sum(len(line["texts"]) for line in lines) == 200
    opened = Counting.opened
    assert run_command(asked) == 0
    assert "t.parquet is there already; nothing to do" in capsys.readouterr().out
    assert run_command(counted(out, *options)) == 0
    assert f"already, extended since (data prompts.jsonl, {more}, n 10)" in capsys.readouterr().out
    assert run_command(counted(out, *options, "--reverify")) == 2
    assert f"`basis-rl cache extend {out} --reverify`" in capsys.readouterr().err
    assert run_command(["cache", "extend", out, "--n", 11, "--verifier-processes", 0]) == 0
    assert PassRates.load(out).n.tolist() == [11] * 20
    assert Counting.opened == opened + 1
    more.unlink()
    write_prompts(more, range(9, 20))
    assert run_command(["cache", "extend", out, "--n", 12]) == 0  # 8 is in the first data set
    write_prompts(more, range(9, 19))
    assert run_command(["cache", "extend", out, "--n", 13]) == 2
    assert "1 prompts of " in capsys.readouterr().err


def test_extending_keeps_all_settings(tmp_path: Path) -> None:
    out = tmp_path / "t.parquet"
    settings = {"seed": 3, "revision": "r", "dtype": "bfloat16", "temperature": 0.5, "n": 9}
    assert run_command(counted(out, "--adaptive", shard="1/2", **settings)) == 0
    before = PassRates.load(out).provenance.extra["build"]
    assert run_command(["cache", "extend", out, "--n", 10, "--verifier-processes", 0]) == 0
    assert PassRates.load(out).provenance.extra["build"] == {**before, "n": 10}


def test_refreshing_keeps_shard_and_options_of_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENGINES, "other", (__name__, "Counting"))
    out = tmp_path / "t.parquet"
    assert run_command(counted(out, "--engine-option", "base=3", shard="1/2")) == 0
    asked = ["cache", "refresh", out, "--model", "model2", "--verifier-processes", 0]
    for engine, options in (("counting", {"base": 3}), ("other", {})):
        new = tmp_path / f"{engine}.parquet"
        assert run_command([*asked, "--out", new, "--engine", engine]) == 0
        build = PassRates.load(new).provenance.extra["build"]
        assert (build["shard"], build["options"]["engine_options"]) == ("1/2", options)


def test_a_log_has_lines_of_progress(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_SECONDS_BETWEEN_REPORTS", 0.0)
    for seconds, marks in ((30.0, [18, 72]), (0.0, [0, 18, 36, 54, 72])):
        monkeypatch.setattr(build_progress, "_SECONDS_BETWEEN_LINES", seconds)
        monkeypatch.setattr(build_progress, "_SECONDS_TO_FIRST_LINE", seconds)
        assert run_command(counted(tmp_path / f"{seconds}.parquet")) == 0
        lines = re.findall(r"^sampling (\d+)/72 completions(.*)$", capsys.readouterr().err, re.M)
        assert sorted({int(done) for done, _ in lines}) == marks
        pattern = r", 0:00 left, [\d,]+ tokens/s, mean \d\.\d{3}, 12/12 prompts"
        assert re.fullmatch(pattern, lines[-1][1])


def test_a_log_tells_of_a_long_first_batch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_progress, "_SECONDS_TO_FIRST_LINE", 0.05)
    monkeypatch.setattr(build_progress, "_SECONDS_BETWEEN_LOOKS", 0.01)
    told = ""
    start = BuildProgress(0, 12, 0, 72, 0, 0, 0.0, 0.0, math.nan, 0)
    with shown_progress("sampling") as report:
        report(start)
        report(start)
        deadline = time.monotonic() + 20
        while not told and time.monotonic() < deadline:
            time.sleep(0.01)
            told = capsys.readouterr().err
    assert told == "sampling 0/72 completions, 0/12 prompts\n"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("doing", ["sampling", "judging"])
def test_the_bar_fits_a_terminal_of_80_columns(
    doing: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # counts as a terminal
    monkeypatch.setenv("COLUMNS", "80")
    now = BuildProgress(16, 40, 128, 320, 128, 49360, 40.0, 40.0, 0.412, 90, 38)
    with shown_progress(doing) as report:
        report(now)
        report(now)
    told = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", capsys.readouterr().err).splitlines()[-1]
    assert "…" not in told
    assert len(told.rstrip()) <= 80
    numbers = {"sampling": "128/320", "judging": "38/128"}
    assert f"{numbers[doing]}, 1:00 left, 1,234 tokens/s, mean 0.412, 16/40 prompts" in told
    assert note_within(now, "sampling", 24) == "128/320, 1:00 left"


def test_going_on_and_judging_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "t.parquet"
    with monkeypatch.context() as patch:
        patch.setattr(Counting, "answer", stopped_after(5))
        assert run_command(counted(out)) == 130
    capsys.readouterr()
    assert run_command(counted(out)) == 0
    told = capsys.readouterr().err.splitlines()
    assert told[:2] == [
        "going on: 18 of 72 completions are in the journal",
        "12 prompts; loading model",
    ]
    assert run_command(counted(out, "--reverify")) == 0
    told = capsys.readouterr().err.splitlines()
    assert told[-1].startswith("judging 72/72 completions, mean ")
    assert not any("sampling" in line for line in told)


def stopped_after(answers: int) -> Any:
    """Stands for `Counting.answer`, and is interrupted then."""
    answer, given = Counting.answer, itertools.count()

    def stopping(self: Counting, request: Request, seed: int) -> Rollouts:
        if next(given) == answers:
            raise KeyboardInterrupt
        return answer(self, request, seed)

    return stopping


def test_a_shard_says_how_many_prompts_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "t.parquet"
    assert run_command(counted(out, shard="1/2")) == 0
    count = len(PassRates.load(out))
    assert count < PROMPTS
    assert f"{count} prompts; loading model" in capsys.readouterr().err


def test_failures_of_the_verifier_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "t.parquet"
    assert run_command(counted(out, verifier="length_rewards:failing")) == 0
    told = capsys.readouterr().err
    failed = PassRates.load(out).provenance.extra["verifier_failures"]["ValueError"]
    share = f"{failed / 72:.1%}"
    assert f"failed on {failed} of 72 completions ({share}, reward 0): {failed} ValueError;" in told
    assert "--verifier-limit" not in told
    line = next(line for line in told.splitlines() if "zcat" in line)
    looked = subprocess.run(
        line.partition("look at them: ")[2], shell=True, capture_output=True, text=True, check=True
    )
    lines = [json.loads(line) for line in looked.stdout.splitlines()]
    assert sum(len(line["failures"]["ValueError"]) for line in lines) == failed
    notes = {"verifier_failures": {"time-out": 33}, "completions": 320}
    told = build_run._failures(notes, {"out": "a b.parquet", "discard_completions": False})
    assert "33 of 320 completions (10.3%, reward 0): 33 time-out; give it longer with" in told
    assert "extend 'a b.parquet' --reverify --verifier-limit SECONDS`" in told
    told = build_run._failures(notes, {"out": "t.parquet", "discard_completions": True})
    assert told.endswith("33 time-out")


def test_adaptive_with_few_rollouts_says_that_it_saves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(counted(tmp_path / "t.parquet", "--adaptive", n=8)) == 0
    assert "with --n 8 every prompt gets all of them" in capsys.readouterr().err
    assert run_command(counted(tmp_path / "u.parquet", "--adaptive", n=9)) == 0
    assert "raise --n" not in capsys.readouterr().err


def test_a_data_set_that_has_grown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, data = tmp_path / "t.parquet", write_prompts(tmp_path / "d.jsonl", range(3))
    assert run_command(counted(out, data=data)) == 0
    write_prompts(data, range(5))
    assert run_command(["cache", "extend", out, "--n", 7]) == 2
    assert f"add them with `basis-rl cache extend {out} --data {data}`" in capsys.readouterr().err
    asked = ["cache", "extend", out, "--data", data, "--verifier-processes", 0]
    assert run_command(asked) == 0
    table = PassRates.load(out)
    assert table.n.tolist() == [6] * 5
    assert len(table.provenance.extra["build"]["options"]["data"]) == 1
    assert run_command([*asked, "--n", 7]) == 0
    assert PassRates.load(out).n.tolist() == [7] * 5


def test_another_answer_in_a_further_data_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, more = tmp_path / "t.parquet", write_prompts(tmp_path / "more.jsonl", range(10, 14))
    assert run_command(counted(out)) == 0
    more.write_text(more.read_text().replace('"x"', '"y"'))
    asked = ["cache", "extend", out, "--data", more, "--verifier-processes", 0]
    assert run_command(asked) == 0
    told = capsys.readouterr().err
    assert f"{more}: 2 prompts have another answer than in an earlier data set" in told
    assert "has 'y', kept was 'x')" in told
    write_prompts(more, range(10, 14))
    assert run_command([*asked, "--n", 6]) == 2  # two prompts have another row now
    assert "another answer" not in capsys.readouterr().err


def test_judging_all_data_sets_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, more = tmp_path / "t.parquet", write_prompts(tmp_path / "more.jsonl", range(20, 23))
    assert run_command(counted(out)) == 0
    extend = ["cache", "extend", out, "--verifier-processes", 0]
    assert run_command([*extend, "--data", more]) == 0
    before, opened = PassRates.load(out), Counting.opened
    for wrong in (["--verifier", "length_rewards:even"], ["--reverify", "--n", 7]):
        assert run_command([*extend, *wrong]) == 2
        assert "--reverify" in capsys.readouterr().err
    assert run_command([*extend, "--reverify", "--verifier", "length_rewards:even"]) == 0
    after = PassRates.load(out)
    assert Counting.opened == opened
    assert (before.means + after.means == 1).all()
    assert len(after) == PROMPTS + 3
    assert run_command([*extend, "--n", 7]) == 0
    assert PassRates.load(out).provenance.verifier == "length_rewards:even"


def test_merged_builds_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outs = [tmp_path / f"{number}.parquet" for number in range(3)]
    files = [write_prompts(tmp_path / f"{i}.jsonl", range(2 * i, 2 * i + 2)) for i in range(3)]
    for out, file in zip(outs, files, strict=True):
        assert run_command(counted(out, data=file)) == 0
    merged = tmp_path / "m.parquet"
    assert run_command(["cache", "merge", *outs, "--out", merged]) == 0
    asked = ["cache", "extend", merged, "--n", 7, "--verifier-processes", 0]
    assert run_command(asked) == 0
    assert PassRates.load(merged).n.tolist() == [7] * 6
    newer = tmp_path / "newer.parquet"
    asked = ["cache", "refresh", merged, "--model", "model2", "--verifier-processes", 0]
    assert run_command([*asked, "--out", newer]) == 0
    assert PassRates.load(newer).provenance.extra["data"] == ", ".join(map(str, files))


def test_some_shards_cannot_be_extended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outs = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
    for number, out in enumerate(outs, start=1):
        assert run_command(counted(out, shard=f"{number}/3")) == 0
    merged = tmp_path / "m.parquet"
    assert run_command(["cache", "merge", *outs, "--out", merged, "--partial"]) == 0
    assert run_command(["cache", "extend", merged, "--n", 7]) == 2
    assert f"{merged} has shards 1,2/3 only: merge it with the others" in capsys.readouterr().err


def test_refreshing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, new = tmp_path / "t.parquet", tmp_path / "new.parquet"
    assert run_command(counted(out, seed=3, temperature=0.5, limit=5)) == 0
    asked = ["cache", "refresh", out, "--model", "model2", "--verifier-processes", 0]
    assert run_command([*asked, "--out", new]) == 0
    before, after = PassRates.load(out), PassRates.load(new)
    assert list(after.keys) == list(before.keys)
    assert after.provenance.model == "model2"
    for name in ("temperature", "verifier", "verifier_version", "max_tokens", "stop"):
        assert getattr(after.provenance, name) == getattr(before.provenance, name)
    assert after.provenance.extra["build"]["seed"] == 3
    assert (after.means + before.means == 1).all()  # one letter more
    assert run_command([*asked, "--out", out]) == 2
    assert "is the old cache: name another file" in capsys.readouterr().err
    PassRates.from_counts(["a"], [1], 2).save(out)
    assert run_command([*asked, "--out", tmp_path / "x.parquet"]) == 2
    assert "does not say how it was built" in capsys.readouterr().err
    imported = Provenance(extra={"import": {"format": "columns"}})
    PassRates.from_counts(["a"], [1], 2, provenance=imported).save(out)
    assert run_command(["cache", "extend", out, "--n", 9]) == 2
    assert "was imported, not built: only tables that" in capsys.readouterr().err
    assert run_command([*asked, "--out", tmp_path / "x.csv"]) == 2
    assert "name it like x.parquet" in capsys.readouterr().err


def test_a_long_prompt_is_found_before_sampling(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "long.jsonl"
    texts = ["1+1=", "2+2=", "3+3=", "x" * 300]
    data.write_text("".join(json.dumps({"prompt": t, "answer": "x"}) + "\n" for t in texts))
    options = {"data": data, "source-column": "prompt"}
    assert run_command(command(tmp_path / "t.parquet", **options)) == 2
    assert "has 300 tokens" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["long.jsonl"]


def test_warnings_are_one_line_and_no_library_talks(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "twice.jsonl"
    lines = [{"prompt": "1+1=", "answer": "x", "task": "sum", "right": a} for a in "23"]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = {"data": data, "answer-column": "right"}
    done = subprocess.run(
        [sys.executable, "-m", "basis_rl", *command(tmp_path / "t.parquet", **options)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    told = [line for line in done.stderr.splitlines() if line.strip()]
    assert told[0].startswith("warning: ")
    assert told[1].startswith("warning: ")
    assert "another answer" in told[1]
    assert told[2].startswith("1 prompts; loading")
    assert all(line.startswith(("sampling", "cut at max_tokens")) for line in told[3:])
    assert "wrote" in done.stdout


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@pytest.fixture
def slow_build(folder: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A build that takes minutes, with verifier processes, and what it writes."""
    out = tmp_path / "t.parquet"
    data = write_prompts(tmp_path / "many.jsonl", range(2000))
    options = {"data": data, "n": 50, "engine-option": "batch_size=4", "verifier-processes": 1}
    process = subprocess.Popen(
        [sys.executable, "-m", "basis_rl", *command(out, **options)],
        cwd=folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process, out
    process.kill()
    process.wait()


def test_ctrl_c_is_clean(slow_build: tuple[subprocess.Popen[str], Path]) -> None:
    process, out = slow_build
    deadline = time.monotonic() + 60
    while not (
        journal_path(out).exists()
        and any(line["kind"] == "completions" for line in journal_lines(out))
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in told
    lines = told.strip().splitlines()
    assert lines[-1] == "basis-rl: stopped; run the same command again to go on where it stopped"
    assert journal_lines(out)[-1]["kind"] == "session"


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    code = (
        "import os, signal, time\n"
        "from basis_rl.cli.build_run import second_stop_ends_at_once\n"
        "with second_stop_ends_at_once():\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(20)\n"
        "    except KeyboardInterrupt:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(20)\n"
    )
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 130
    assert done.stderr.startswith("basis-rl: stopped; run the same command again")
    assert time.monotonic() - start < 20
    before = signal.getsignal(signal.SIGINT)
    with second_stop_ends_at_once():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_the_cost_against_training() -> None:
    end = BuildProgress(17398, 17398, 1113472, 1113472, 0, 0, 0.0, 4 * 3600.0, 0.5, 0)
    told = cost_lines(end, 800_000_000, 77_000)
    assert told[0] == "cost: 1,113,472 rollouts, 800,000,000 tokens, 4.00 hours in all sessions"
    assert "55,322,451 tokens, 0.28 hours of sampling" in told[1]
    assert "14.5 times as many" in told[1]
    assert len(cost_lines(end, 800_000_000)) == 1


@pytest.mark.parametrize(
    ("typed", "text"),
    [(r"Q\nA", "Q\nA"), (r"\text{{x}}", r"\text{{x}}"), (r"\\neq \\", r"\neq \\"), ("é\t", "é\t")],
)
def test_escapes_on_the_command_line(typed: str, text: str) -> None:
    assert unescaped(typed) == text
