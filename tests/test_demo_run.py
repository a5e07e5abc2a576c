from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pytest
from random_qwen3 import save_model

from basis_rl import PassRates
from basis_rl.demo import tasks
from basis_rl.demo.evaluate import compare
from basis_rl.demo.run import Demo
from basis_rl.demo.settings import DemoSettings

SMALL = {
    "tasks": ("addition", "larger"),
    "steps": 2,
    "batch_size": 8,
    "train": 12,
    "test": 10,
    "reference_rollouts": 2,
    "threads": 1,
    "learning_rate": 1e-3,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def finished(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("demo") / "report"
    return out, Demo(DemoSettings(out=out, model=str(model), **SMALL)).run()


def results(out: Path) -> dict[str, Any]:
    return {
        path.parent.name: json.loads(path.read_text()) for path in out.glob("work/*/result.json")
    }


class _Page(HTMLParser):
    """Texts of the table cells, and the addresses of everything that is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


def test_report_agrees_with_the_stages(finished: tuple[Path, dict[str, Any]]) -> None:
    out, report = finished
    assert json.loads((out / "report.json").read_text()) == report
    stages = results(out)
    before = np.array(stages["test-before"]["result"]["rewards"])
    after = np.array(stages["test-after-basis"]["result"]["rewards"])
    assert before.shape == after.shape == (20, 2)
    evaluation = report["runs"]["basis"]["evaluation"]
    for number, task in enumerate(SMALL["tasks"]):
        rows = slice(10 * number, 10 * number + 10)
        assert evaluation[task] == compare(before[rows], after[rows]).to_dict()
    history = report["runs"]["basis"]["history"]
    assert [row["step"] for row in history] == [1, 2]
    assert {"reward", "tau", "advantage_std", "reward_std"} <= history[0].keys()
    assert history == stages["train-basis"]["result"]["history"]


def test_page_shows_the_numbers_and_loads_nothing(finished: tuple[Path, dict[str, Any]]) -> None:
    out, report = finished
    page = _Page()
    page.feed((out / "report.html").read_text())
    images = [address for address in page.loaded if address.startswith("data:image/png;base64,")]
    assert images == page.loaded
    assert len(images) == len(list(out.glob("*.png"))) == 4
    for task, result in report["runs"]["basis"]["evaluation"].items():
        row = page.cells.index(task)
        assert page.cells[row + 1 : row + 4] == [
            f"{result['before']:.3f}",
            f"{result['after']:.3f}",
            f"{result['difference']:+.3f}",
        ]


def test_training_prompts_have_pass_rates_and_test_prompts_none(
    finished: tuple[Path, dict[str, Any]],
) -> None:
    out, report = finished
    table = PassRates.load(out / "pass-rates.parquet")
    parts = tasks.split(SMALL["tasks"], train=12, test=10, seed=0)
    assert table.coverage([prompt.key for prompt in parts["train"]]) == 1.0
    assert table.coverage([prompt.key for prompt in parts["test"]]) == 0.0
    assert report["pass_rates"]["rollouts"] == table.n.sum() == 48
    assert table.provenance.verifier == "exact"


def test_finished_stages_are_not_repeated(
    finished: tuple[Path, dict[str, Any]], model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, report = finished
    times = {path: path.stat().st_mtime_ns for path in out.glob("work/*/result.json")}
    again = Demo(DemoSettings(out=out, model=str(model), **SMALL)).run()
    assert again == report
    assert {path: path.stat().st_mtime_ns for path in out.glob("work/*/result.json")} == times
    assert capsys.readouterr().err.count("done before") == len(times) == 4


def test_other_steps_repeat_training_only(
    finished: tuple[Path, dict[str, Any]], model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "copy"
    shutil.copytree(finished[0], out)
    times = {path: path.stat().st_mtime_ns for path in out.glob("work/*/result.json")}
    Demo(DemoSettings(out=out, model=str(model), **(SMALL | {"steps": 1}))).run()
    changed = {
        path.parent.name for path, time_ in times.items() if path.stat().st_mtime_ns != time_
    }
    assert changed == {"train-basis", "test-after-basis"}


def test_compare_trains_all_methods_with_as_many_rollouts(model: Path, tmp_path: Path) -> None:
    settings = SMALL | {"steps": 1, "batch_size": 8, "compare": True, "tasks": ("larger",)}
    report = Demo(DemoSettings(out=tmp_path / "out", model=str(model), **settings)).run()
    assert list(report["runs"]) == ["basis", "grpo", "reinforce++", "zero"]
    assert {name: run["rollouts_per_prompt"] for name, run in report["runs"].items()} == {
        "basis": 1,
        "grpo": 8,
        "reinforce++": 1,
        "zero": 1,
    }
    assert all(len(run["history"]) == 1 for run in report["runs"].values())


def test_interrupted_training_goes_on(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "basis_rl", "demo", "--out", str(out), "--model", str(model)]
    command += ["--tasks", "larger", "--steps", "60", "--batch-size", "4", "--threads", "1"]
    folder = out / "work" / "train-basis"
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "steps, reward" in line:  # the first of 60 is done
                break
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in error
    assert error.endswith("run the same command again to go on where it stopped\n")
    (checkpoint,) = folder.glob("checkpoint-*")
    assert 0 < int(checkpoint.name.split("-")[1]) < 60
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr.count("done before") == 2  # pass rates, test before
    history = json.loads((out / "report.json").read_text())["runs"]["basis"]["history"]
    assert [row["step"] for row in history] == list(range(1, 61))
    assert not list(folder.glob("checkpoint-*"))
    assert str(out / "report.html") in done.stdout
