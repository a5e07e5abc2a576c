from __future__ import annotations

import difflib
import json
import os
import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import yaml
from shared_data import shared_data
from tiny_run import EXAMPLES, example_module, write_data

from basis_rl import PassRates
from basis_rl.cli import main
from basis_rl.passrates import Provenance
from basis_rl.prompts import load_prompts
from basis_rl.train.config import TrainConfig, load_config
from basis_rl.train.plan import prepare

CONFIGS = sorted(path.name for path in EXAMPLES.glob("*.yaml"))
BOXED = r"Please reason step by step, and put your final answer within \boxed{}."


def run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert not caught.value.code


def commands(path: Path) -> list[list[str]]:
    """The shell commands in a configuration's comment."""
    comment = [line[1:] for line in path.read_text().splitlines() if line.startswith("#")]
    text = "\n".join(comment).replace("\\\n", " ")
    found = [shlex.split(line) for line in text.splitlines() if line.startswith("   ")]
    return [command for command in found if command]


@pytest.mark.parametrize("name", CONFIGS)
def test_configurations_are_valid_and_name_their_commands(name: str) -> None:
    from basis_rl.cli.cache_build import build

    config = load_config(EXAMPLES / name)
    assert config.table is not None
    named = commands(EXAMPLES / name)
    builds = [command for command in named if command[:3] == ["basis-rl", "cache", "build"]]
    assert len(builds) == 1
    options = build.make_context("build", builds[0][3:]).params
    assert options["out"] == config.table.path
    assert options["model"] == config.model.name
    assert options["data"] == config.data.train
    assert options["verifier"] == config.reward.items()[0].name
    assert options["answer_column"] == config.reward.items()[0].answer_column
    assert options["system"] == config.data.system
    assert options["template"] == config.data.template
    assert options["max_tokens"] == config.trl["max_completion_length"]
    assert named[-1][-1] == f"examples/{name}"


def stub(config: TrainConfig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pass rates for the prompts of a configuration, as its cache command would write them."""
    assert config.table is not None
    monkeypatch.chdir(folder)
    assert isinstance(config.data.train, str)
    prompts = load_prompts(
        config.data.train,
        split=config.data.split,
        template=config.data.template,
        system=config.data.system,
        where=config.data.where,
        source_column=config.data.source_column,
        limit=config.data.limit,
    )
    Path("runs").mkdir()
    PassRates.from_counts(
        [prompt.key for prompt in prompts],
        [i % 9 for i in range(len(prompts))],
        8,
        provenance=Provenance(model=config.model.name, verifier=config.reward.items()[0].name),
    ).save(config.table.path)


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_math_example(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = shared_data("train/math_train.parquet")
    (tmp_path / "data").mkdir()
    shutil.copy(source, tmp_path / "data" / "math_train.parquet")
    shutil.copy(source.with_name("math_test.parquet"), tmp_path / "data" / "math_test.parquet")
    config = load_config(EXAMPLES / f"gpu-qwen2.5-1.5b-math-{kind}.yaml")
    stub(config, tmp_path, monkeypatch)
    # Three rows of MATH Level 3-5 have no answer.
    with pytest.warns(UserWarning, match="is empty for 3 of 5586 prompts"):
        plan = prepare(config)
    assert len(plan.train) == 5583
    assert len(plan.evaluation) == 256
    assert plan.train[0].prompt[0] == {"role": "system", "content": BOXED}
    assert {p.columns["level"] for p in plan.train} == {"Level 3", "Level 4", "Level 5"}
    assert (config.model.lora is None) == (kind == "full")
    assert plan.arguments.generation_batch_size == 256
    assert plan.arguments.num_generations == 1
    (verifier,) = plan.verifiers
    assert verifier(r"so it is \boxed{0}", plan.train[0].columns) == 1.0
    assert verifier(r"so it is \boxed{1}", plan.train[0].columns) == 0.0


def test_gsm8k_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def load_dataset(name: str, config: str | None, split: str) -> Any:
        assert (name, config) == ("openai/gsm8k", "main")
        path = shared_data(f"train/gsm8k_{split}.jsonl.gz")
        return original("json", data_files=str(path), split="train")

    original = datasets.load_dataset
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    config = load_config(EXAMPLES / "gpu-qwen3-0.6b-gsm8k.yaml")
    stub(config, tmp_path, monkeypatch)
    plan = prepare(config)
    assert (len(plan.train), len(plan.evaluation)) == (7473, 256)
    assert plan.arguments.generation_batch_size == 256
    (verifier,) = plan.verifiers
    assert verifier(r"\boxed{72}", plan.train[0].columns) == 1.0
    assert verifier(r"\boxed{71}", plan.train[0].columns) == 0.0


def test_paper_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    rows = [
        {
            "data_source": "math_dapo",
            "prompt": [{"role": "user", "content": f"What is {i} + {i}?"}],
            "reward_model": {"ground_truth": str(2 * i), "style": "rule"},
        }
        for i in range(160)
    ]
    monkeypatch.setattr(
        datasets, "load_dataset", lambda *_, **__: datasets.Dataset.from_list(rows * 3)
    )
    config = load_config(EXAMPLES / "paper-qwen3-4b-dapo.yaml")
    with pytest.warns(UserWarning, match="320 of 480 rows repeat"):
        stub(config, tmp_path, monkeypatch)
    with pytest.warns(UserWarning, match="320 of 480 rows repeat"):
        plan = prepare(config)
    assert len(plan.train) == 160
    arguments = plan.arguments
    # On four GPUs: 512 rollouts a step, two updates of 256.
    assert arguments.generation_batch_size * 4 == 512
    assert arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps * 4 == 256
    assert (arguments.learning_rate, arguments.temperature) == (1e-6, 1.0)
    assert arguments.max_completion_length == 4096
    assert config.estimator_options == {"preset": "paper", "variant": "unb"}


def test_cpu_example_runs_as_its_comment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "examples").symlink_to(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    make, build, train = commands(EXAMPLES / "cpu-arithmetic.yaml")
    assert make[:2] == ["python", "examples/make_tiny_model.py"]
    monkeypatch.setattr(sys, "argv", make[1:])
    runpy.run_path(make[1], run_name="__main__")
    assert "wrote runs/tiny-model" in capsys.readouterr().out
    run(*build[1:])
    run(*train[1:])
    lines = Path("runs/cpu-arithmetic/metrics.jsonl").read_text().splitlines()
    rewards = [row["reward"] for row in map(json.loads, lines) if "reward" in row]
    assert rewards[-1] > 1.4 * rewards[0]
    assert Path("runs/cpu-arithmetic/final/model.safetensors").exists()


def changed_lines(before: str, after: str) -> list[str]:
    return [
        line
        for line in difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
        if re.match(r"\+(?!\+\+)", line)
    ]


def test_three_lines_change_a_trl_script() -> None:
    before = (EXAMPLES / "trl_before.py").read_text()
    after = (EXAMPLES / "trl_after.py").read_text()
    assert len(before.splitlines()) == len(after.splitlines())
    assert len(changed_lines(before, after)) == 3


@pytest.mark.parametrize("name", ["trl_before", "trl_after"])
def test_trl_scripts_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_data(tmp_path)
    example_module("make_tiny_model").write(tmp_path / "model", steps=60)
    # Made with the verifier "exact", as the script's reward function is called.
    PassRates.load(tmp_path / "rates.parquet").save(tmp_path / "pass-rates.parquet")
    monkeypatch.chdir(tmp_path)
    rows = [json.loads(line) for line in Path("train.jsonl").read_text().splitlines()]
    Path("prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows * 2))
    monkeypatch.setattr(sys, "argv", [name, "model", "prompts.jsonl", "out"])
    runpy.run_path(str(EXAMPLES / f"{name}.py"))
    assert Path("out/model.safetensors").exists()


def test_every_key_of_the_examples_is_documented() -> None:
    text = (EXAMPLES.parent / "docs" / "training.md").read_text()
    for name in CONFIGS:
        values = yaml.safe_load((EXAMPLES / name).read_text())
        for section, entries in values.items():
            assert f"`{section}`" in text or f"## {section}" in text
            if isinstance(entries, dict) and section not in ("trl", "estimator"):
                for key in entries:
                    assert f"`{key}`" in text, f"{section}.{key} of {name}"
