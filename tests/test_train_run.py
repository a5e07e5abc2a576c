from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
import yaml
from safetensors.torch import load_file
from tiny_run import example_module, write_config, write_data

from basis_rl import PassRates
from basis_rl.cli import main
from basis_rl.passrates import Provenance
from basis_rl.train import lock
from basis_rl.train import run as run_module


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    example_module("make_tiny_model").write(folder, steps=60)
    return folder


@pytest.fixture
def values(tmp_path: Path, model: Path) -> dict[str, Any]:
    shutil.copytree(model, tmp_path / "model")
    return write_data(tmp_path)


def train(
    folder: Path, values: dict[str, Any], *more: str, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(["train", write_config(folder, values), *more])
    out, err = capsys.readouterr()
    return int(caught.value.code or 0), out, err


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def steps(out: Path) -> list[int]:
    lines = (out / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [row["step"] for row in rows if "reward" in row]


def test_a_run_from_start_to_end(
    tmp_path: Path, values: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    values["data"] |= {"eval": str(tmp_path / "eval.jsonl"), "source_column": "task"}
    values["trl"] |= {"eval_steps": 2, "per_device_eval_batch_size": 4}
    code, printed, _ = train(tmp_path, values, capsys=capsys)
    assert code == 0
    for line in (
        "32 to train on (text, 1 sources), 4 to evaluate on",
        f"configuration: {out}/config.resolved.yaml",
        "step 1/4: reward ",
        ", cut off ",
        ", loss ",
        f"checkpoint: {out}/checkpoint-4",
        f"metrics: {out}/metrics.jsonl",
        f"model: {out}/final",
    ):
        assert line in printed
    assert steps(out) == [1, 2, 3, 4]
    logged = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert sum("eval_reward" in row for row in logged) == 2
    assert {"basis/baseline_mean", "rewards/exact/mean"} <= logged[0].keys()
    assert not same(weights(out / "final"), weights(tmp_path / "model"))
    assert same(weights(out / "final"), weights(out / "checkpoint-4"))
    assert (out / "final" / "tokenizer.json").exists()
    resolved = yaml.safe_load((out / "config.resolved.yaml").read_text())
    assert resolved["trl"]["max_steps"] == 4
    assert resolved["model"]["dtype"] == "float32"
    assert resolved["data"]["prompt_column"] == "prompt"


def test_the_same_command_resumes_and_more_steps_are_allowed(
    tmp_path: Path, values: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert train(tmp_path, values, "--set", "trl.max_steps=2", capsys=capsys)[0] == 0
    code, printed, _ = train(tmp_path, values, capsys=capsys)
    assert code == 0
    assert f"resuming from {out}/checkpoint-2" in printed
    assert steps(out) == [1, 2, 3, 4]
    code, printed, _ = train(tmp_path, values, capsys=capsys)
    assert code == 0
    assert f"resuming from {out}/checkpoint-4" in printed
    assert steps(out) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("settings", "stop"),
    [
        # Two steps an epoch: the stop is in the second epoch.
        ({}, 3),
        # Two updates a generation batch: the stop waits for the second.
        ({"per_device_train_batch_size": 8, "steps_per_generation": 2, "max_steps": 6}, 4),
    ],
)
def test_an_interrupted_run_ends_like_an_unbroken_one(
    tmp_path: Path,
    values: dict[str, Any],
    settings: dict[str, Any],
    stop: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from transformers import TrainerCallback

    values["trl"] |= settings
    unbroken = values | {"output_dir": str(tmp_path / "unbroken")}
    assert train(tmp_path, unbroken, capsys=capsys)[0] == 0

    class SignalInStep(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 2:  # the third step is under way
                os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)  # ignored, where tests run in the background
    original = run_module.make_trainer
    with monkeypatch.context() as patch:
        patch.setattr(
            run_module,
            "make_trainer",
            lambda plan, callbacks: original(plan, callbacks=[SignalInStep(), *callbacks]),
        )
        code, printed, err = train(tmp_path, values, capsys=capsys)
    assert code == 130
    assert "run the same command again" in err
    out = tmp_path / "out"
    assert f"checkpoint: {out}/checkpoint-{stop}" in printed
    assert not (out / "final").exists()
    assert signal.getsignal(signal.SIGINT) is before

    code, printed, _ = train(tmp_path, values, capsys=capsys)
    assert code == 0
    assert f"resuming from {out}/checkpoint-{stop}" in printed
    assert steps(out) == steps(tmp_path / "unbroken")
    assert same(weights(out / "final"), weights(tmp_path / "unbroken" / "final"))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("optimizer.pt", "optimizer.pt is cut short"),
        ("model.safetensors", "model.safetensors is cut short"),
        ("trainer_state.json", "trainer_state.json is missing or cut short"),
        ("basis_state.json", "basis_state.json is cut short"),
    ],
)
def test_an_incomplete_checkpoint_is_passed_over(
    tmp_path: Path,
    values: dict[str, Any],
    name: str,
    reason: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert train(tmp_path, values, capsys=capsys)[0] == 0
    out = tmp_path / "out"
    final = weights(out / "final")
    damaged = out / "checkpoint-4" / name
    damaged.write_bytes(damaged.read_bytes()[:-20])
    code, printed, _ = train(tmp_path, values, capsys=capsys)
    assert code == 0
    assert f"passing over {out}/checkpoint-4: {reason}" in printed
    assert f"resuming from {out}/checkpoint-2" in printed
    assert steps(out) == [1, 2, 3, 4]
    assert same(weights(out / "final"), final)


def test_another_configuration_in_the_same_folder_is_refused(
    tmp_path: Path, values: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path, values, "--set", "trl.max_steps=2", capsys=capsys)[0] == 0
    for check in ([], ["--check"]):
        more = ["--set", "trl.learning_rate=1e-4", "--set", "objective=gpg", *check]
        code, _, err = train(tmp_path, values, *more, capsys=capsys)
        assert code == 2
        assert err.count("\n") == 1
        assert "trl.learning_rate: 0.001 there, 0.0001 here" in err
        assert "objective: 'grpo' there, 'gpg' here" in err
    # The same names with other content are another configuration too.
    table = PassRates.load(values["pass_rates"])
    assert table.successes is not None
    other = PassRates.from_counts(
        table.keys, 8 - table.successes, table.n, provenance=table.provenance
    )
    other.save(values["pass_rates"])
    code, _, err = train(tmp_path, values, capsys=capsys)
    assert code == 2
    assert "fingerprints.pass_rates" in err
    table.save(values["pass_rates"])
    data = tmp_path / "train.jsonl"
    data.write_text("".join(data.read_text().splitlines(keepends=True)[::-1]))
    code, _, err = train(tmp_path, values, capsys=capsys)
    assert code == 2
    assert "fingerprints.train" in err
    (tmp_path / "out" / "config.resolved.yaml").unlink()
    code, _, err = train(tmp_path, values, capsys=capsys)
    assert code == 2
    assert "a run that basis-rl did not start" in err


def test_lora_chat_and_two_rewards(
    tmp_path: Path,
    values: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own_rewards.py").write_text(
        "def digit(completion, task): return float(task == 'sum' and completion[:1].isdigit())\n"
    )
    values["model"]["lora"] = {"r": 4, "alpha": 10, "target_modules": ["q_proj", "v_proj"]}
    values["data"]["chat"] = True
    values["reward"]["functions"] = ["exact", {"name": "own_rewards:digit", "weight": 0.5}]
    values |= {"pass_rates": None, "estimator": "batch-mean"}
    values["trl"] |= {"max_steps": 1, "save_steps": 1}
    code, printed, _ = train(tmp_path, values, capsys=capsys)
    assert code == 0
    assert "reward: 1 x exact + 0.5 x own_rewards:digit" in printed
    final = tmp_path / "out" / "final"
    assert (final / "adapter_model.safetensors").exists()
    adapter = json.loads((final / "adapter_config.json").read_text())
    assert (adapter["r"], adapter["lora_alpha"]) == (4, 10)
    row = json.loads((tmp_path / "out" / "metrics.jsonl").read_text().splitlines()[0])
    expected = row["rewards/exact/mean"] + 0.5 * row["rewards/own_rewards:digit/mean"]
    assert row["reward"] == pytest.approx(expected)
    code, printed, _ = train(tmp_path, values, "--set", "trl.max_steps=2", capsys=capsys)
    assert code == 0
    assert f"resuming from {tmp_path}/out/checkpoint-1" in printed
    assert steps(tmp_path / "out") == [1, 2]


def test_a_signal_in_the_last_step_comes_too_late_to_stop(
    tmp_path: Path,
    values: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from transformers import TrainerCallback

    class SignalInStep(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    original = run_module.make_trainer
    monkeypatch.setattr(
        run_module,
        "make_trainer",
        lambda plan, callbacks: original(plan, callbacks=[SignalInStep(), *callbacks]),
    )
    code, printed, _ = train(tmp_path, values, "--set", "trl.max_steps=1", capsys=capsys)
    assert code == 0
    assert f"model: {tmp_path}/out/final" in printed


def test_a_second_run_in_the_same_folder_is_refused(
    tmp_path: Path, values: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("fcntl")
    with lock.hold(tmp_path / "out"):
        code, _, err = train(tmp_path, values, capsys=capsys)
    assert code == 2
    assert err == (
        f"basis-rl: output_dir {tmp_path}/out is in use by another run: wait for it, or use "
        "another output_dir\n"
    )
    assert not (tmp_path / "out" / "config.resolved.yaml").exists()


def test_a_final_model_is_not_replaced_by_another_configurations(
    tmp_path: Path, values: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    once = ["--set", "trl.save_strategy=no", "--set", "trl.max_steps=1"]
    assert train(tmp_path, values, *once, capsys=capsys)[0] == 0
    final = weights(tmp_path / "out" / "final")
    code, _, err = train(tmp_path, values, *once, "--set", "trl.learning_rate=1", capsys=capsys)
    assert code == 2
    assert "trl.learning_rate: 0.001 there, 1 here" in err
    assert same(weights(tmp_path / "out" / "final"), final)


def test_what_the_trainer_refuses_is_one_line(
    tmp_path: Path, values: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    values["model"]["lora"] = {"target_modules": ["nowhere"]}
    code, _, err = train(tmp_path, values, capsys=capsys)
    assert code == 2
    assert "nowhere" in err.splitlines()[-1]
    assert "under model or trl" in err.splitlines()[-1]
    assert "Traceback" not in err


def test_other_sampling_settings_are_a_warning(
    tmp_path: Path, values: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    table = PassRates.load(values["pass_rates"])
    PassRates.from_counts(
        table.keys, table.successes, table.n, provenance=Provenance(temperature=0.6)
    ).save(values["pass_rates"])
    code, _, err = train(tmp_path, values, "--set", "trl.max_steps=1", capsys=capsys)
    assert code == 0
    lines = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert len(lines) == 1
    assert "temperature is 0.6 in the pass rates and 1.0 in this run" in lines[0]


def test_data_sets_are_joined_without_repeats(
    tmp_path: Path, values: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    values["data"]["train"] = [values["data"]["train"]] * 2
    code, printed, err = train(tmp_path, values, "--check", capsys=capsys)
    assert code == 0
    assert "32 to train on" in printed
    assert "warning: data.train: 32 prompts of " in err


def test_reasoning_gym_metadata_reaches_the_verifier(
    tmp_path: Path, values: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    values["data"] = {"train": ["reasoning-gym:chain_sum?size=8", "reasoning-gym:countdown?size=8"]}
    values["reward"]["functions"] = ["reasoning-gym"]
    values |= {"pass_rates": None, "estimator": "batch-mean"}
    values["trl"] |= {"max_steps": 1, "save_steps": 1}
    code, printed, _ = train(tmp_path, values, capsys=capsys)
    assert code == 0
    assert "16 to train on (text, 2 sources)" in printed


def test_a_failing_verifier_is_reported(
    tmp_path: Path,
    values: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sometimes.py").write_text(
        "def fails(completion, answer):\n"
        "    if completion.startswith(answer[0]): return 1.0\n"
        "    return 1 / 0\n"
    )
    values["reward"]["functions"] = ["sometimes:fails"]
    values |= {"pass_rates": None, "estimator": "batch-mean"}
    values["trl"] |= {"max_steps": 1, "save_steps": 1}
    code, printed, _ = train(tmp_path, values, capsys=capsys)
    assert code == 0
    assert "verifier sometimes:fails: failed on some completions (reward 0)" in printed
    assert "ZeroDivisionError" in printed


@pytest.mark.slow
def test_kills_at_random_moments(tmp_path: Path, values: dict[str, Any]) -> None:
    values["trl"] |= {"max_steps": 60, "save_steps": 5, "save_total_limit": 2}
    path = write_config(tmp_path, values)
    command = [sys.executable, "-m", "basis_rl", "train", path]
    unbroken = [*command, "--set", f"output_dir={tmp_path}/unbroken"]
    subprocess.run(unbroken, check=True, capture_output=True)
    generator = random.Random(0)
    out = tmp_path / "out"
    kills = 0
    while not (out / "final").exists():
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before = len(list(out.glob("checkpoint-*")))
        deadline = time.monotonic() + 60
        # Imports take most of the time: kill only after training has begun to write.
        while process.poll() is None and time.monotonic() < deadline:
            if kills < 6 and len(list(out.glob("checkpoint-*"))) > before:
                break
            time.sleep(0.01)
        if process.poll() is None:
            time.sleep(generator.random() * 0.5)
            process.kill()
            kills += 1
        process.wait()
        assert kills < 20
    assert kills > 0
    assert same(weights(out / "final"), weights(tmp_path / "unbroken" / "final"))
    assert steps(out) == list(range(1, 61))
