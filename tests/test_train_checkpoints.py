from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from basis_rl.errors import BasisError, ConfigError
from basis_rl.train import lock, resolved
from basis_rl.train.checkpoints import find, what_is_missing
from basis_rl.train.progress import keep_until

FILES = (
    "model.safetensors",
    "optimizer.pt",
    "scheduler.pt",
    "rng_state.pth",
    "basis_state.json",
    "trainer_state.json",
)


def write_checkpoint(folder: Path, step: int) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    save_file({"a": torch.ones(40), "b": torch.ones(3)}, path / "model.safetensors")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        torch.save({"state": torch.ones(20)}, path / name)
    (path / "basis_state.json").write_text(json.dumps({"estimator": "basis"}))
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))
    return path


def test_the_newest_complete_checkpoint_is_found(tmp_path: Path) -> None:
    assert find(tmp_path / "none").newest is None
    for step in (9, 10, 100):
        write_checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-x").mkdir()
    (tmp_path / "checkpoint-200").write_text("a file")
    found = find(tmp_path)
    assert (found.newest, found.step, found.skipped) == (tmp_path / "checkpoint-100", 100, {})


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_anywhere_makes_a_checkpoint_incomplete(tmp_path: Path, name: str) -> None:
    older = write_checkpoint(tmp_path, 1)
    newer = write_checkpoint(tmp_path, 2)
    whole = (newer / name).read_bytes()
    generator = random.Random(0)
    for length in [0, len(whole) - 1, *(generator.randrange(len(whole)) for _ in range(20))]:
        (newer / name).write_bytes(whole[:length])
        found = find(tmp_path)
        assert found.newest == older, length
        assert name in found.skipped[newer]
    (newer / name).write_bytes(whole)
    assert find(tmp_path).newest == newer


@pytest.mark.parametrize("name", [name for name in FILES if name != "basis_state.json"])
def test_a_missing_file_makes_a_checkpoint_incomplete(tmp_path: Path, name: str) -> None:
    checkpoint = write_checkpoint(tmp_path, 1)
    (checkpoint / name).unlink()
    assert what_is_missing(checkpoint, 1)
    assert find(tmp_path).newest is None


def test_a_state_of_another_step_and_missing_shards(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path, 3)
    assert what_is_missing(checkpoint, 3) is None
    assert what_is_missing(checkpoint, 4) == "trainer_state.json is of step 3"
    index = checkpoint / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model.safetensors", "b": "model-2.bin"}}))
    assert what_is_missing(checkpoint, 3) == "model-2.bin is missing"
    index.write_text("{")
    assert what_is_missing(checkpoint, 3) == "model.safetensors.index.json is cut short"


def test_an_output_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(ConfigError, match="is a file: name a folder"):
        find(tmp_path / "out")


def test_harmless_differences_are_left_out() -> None:
    old = {"trl": {"max_steps": 5, "seed": 1, "logging_steps": 1}, "data": {"where": {}}}
    new = {"trl": {"max_steps": 9, "seed": 2, "save_steps": 3}, "data": {"where": {"a": [1]}}}
    assert resolved.differences(old, old) == []
    assert resolved.differences(old, new) == [
        "trl.seed: 1 there, 2 here",
        "data.where: {} there, not set here",
        "data.where.a: not set there, [1] here",
    ]


def test_metrics_after_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    keep_until(path, 3)
    assert not path.exists()
    path.write_text('{"step": 1}\n{"step": 3}\n{"step": 4}\n{"st')
    keep_until(path, 3)
    assert path.read_text() == '{"step": 1}\n{"step": 3}\n'
    keep_until(path, 0)
    assert path.read_text() == ""


def test_a_folder_without_results_takes_any_configuration(tmp_path: Path) -> None:
    resolved.check(tmp_path / "none", {"seed": 1})
    resolved.write(tmp_path, {"seed": 1})
    resolved.check(tmp_path, {"seed": 2})


@pytest.mark.parametrize("name", ["final", "checkpoint-3"])
def test_results_of_another_configuration_are_kept(tmp_path: Path, name: str) -> None:
    """Also where no checkpoint can be gone on from."""
    resolved.write(tmp_path, {"seed": 1})
    (tmp_path / name).mkdir()
    assert find(tmp_path).newest is None
    resolved.check(tmp_path, {"seed": 1})
    with pytest.raises(ConfigError, match=r"seed: 1 there, 2 here.* another output_dir"):
        resolved.check(tmp_path, {"seed": 2})
    (tmp_path / resolved.FILE).unlink()
    with pytest.raises(ConfigError, match="did not start"):
        resolved.check(tmp_path, {"seed": 1})


def test_an_output_folder_is_held_by_one_run(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    out = tmp_path / "out"
    with lock.hold(out):
        with lock.hold(tmp_path / "other"):
            pass
        with pytest.raises(ConfigError) as caught, lock.hold(out):
            pass
    assert f"output_dir {out} is in use by another run" in str(caught.value)
    assert "\n" not in str(caught.value)
    with lock.hold(out):
        pass


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BasisError) as caught, lock.hold(tmp_path / "file" / "out"):
        pass
    assert "\n" not in str(caught.value)
