from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cache_parts import (
    rows,
)
from random_qwen3 import make_model, make_tokenizer, save_model

from basis_rl import cli
from basis_rl.cli.data_options import unescaped
from basis_rl.passrates import PassRates
from basis_rl.passrates.builder import build_cache
from basis_rl.passrates.journal import Batch, Journal
from basis_rl.prompts import load_prompts
from basis_rl.rollouts import SamplingSettings, TransformersSampler
from basis_rl.verifiers import NamedVerifier


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
        ({"model": "none"}, "model was "),
        ({"model": "none", "out": "t.parquet"}, "cannot load model 'none'"),
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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 0}, "n is 0"),
        ({"batch-size": 0}, "batch_size 0"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"answer-column": "anser", "verifier": "exact"}, "needs column 'anser'"),
        ({"template": "{the prompt}"}, "did you mean 'prompt'"),
        ({"seed": 1, "out": "whole.parquet"}, "seed was 0 and is now 1"),
        ({"seed": 1, "out": "begun.parquet"}, "begun.parquet.journal.jsonl was made with other"),
    ],
)
def test_mistakes_are_found_before_the_model_is_loaded(
    options: dict[str, Any],
    words: str,
    folder: Path,
    whole: PassRates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    forbid_loading(monkeypatch)
    build = whole.provenance.extra["build"]
    sizes = [2] * 20
    with Journal(
        "begun.parquet.journal.jsonl", build, created="now", batch_sizes=sizes, n=6
    ) as journal:
        journal.append(0, Batch([[1.0] * 6] * 2))
    try:
        assert run_command(command(folder, tmp_path / "t.parquet", **options)) == 2
    finally:
        journal.remove()
    assert words in capsys.readouterr().err


def forbid_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: Any, **__: Any) -> None:
        pytest.fail("the model was loaded")

    monkeypatch.setattr(TransformersSampler, "from_pretrained", load)


def test_a_finished_table_needs_no_model(
    folder: Path,
    whole: PassRates,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    forbid_loading(monkeypatch)
    assert run_command(command(folder, folder / "whole.parquet")) == 0
    assert "whole.parquet is there already; nothing to do" in capsys.readouterr().out


def test_a_long_prompt_is_found_before_sampling(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    data = tmp_path / "long.jsonl"
    texts = ["1+1=", "2+2=", "3+3=", "x" * 300]
    data.write_text("".join(json.dumps({"prompt": t, "answer": "x"}) + "\n" for t in texts))
    options = {"data": data, "source-column": "prompt"}
    assert run_command(command(folder, tmp_path / "t.parquet", **options)) == 2
    assert "has 300 tokens" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["long.jsonl"]


def test_warnings_are_one_line_and_no_library_talks(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "twice.jsonl"
    lines = [{"prompt": "1+1=", "answer": "x", "task": "sum", "right": a} for a in "23"]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = {"data": data, "answer-column": "right"}
    done = subprocess.run(
        [sys.executable, "-m", "basis_rl", *command(folder, tmp_path / "t.parquet", **options)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    told = [line for line in done.stderr.splitlines() if line.strip()]
    assert told[0].startswith("warning: ")
    assert told[1].startswith("warning: ")
    assert "another answer" in told[1]
    assert told[2].startswith("1 prompts; loading")
    assert all(line.startswith("sampling") for line in told[3:])
    assert "wrote" in done.stdout


@pytest.mark.parametrize(
    ("typed", "text"),
    [(r"Q\nA", "Q\nA"), (r"\text{{x}}", r"\text{{x}}"), (r"\\neq \\", r"\neq \\"), ("é\t", "é\t")],
)
def test_escapes_on_the_command_line(typed: str, text: str) -> None:
    assert unescaped(typed) == text
