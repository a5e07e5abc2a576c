from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
from tiny_run import QUESTIONS, write_config, write_data

from basis_rl import ConfigError, PassRates
from basis_rl.passrates import Provenance, prompt_key
from basis_rl.prompts import load_prompts
from basis_rl.train.config import TrainConfig, load_config
from basis_rl.train.interrupt import updates_per_generation
from basis_rl.train.plan import Plan, prepare
from basis_rl.train.rewards import ColumnReward
from basis_rl.verifiers import NamedVerifier


@pytest.fixture
def values(tmp_path: Path) -> dict[str, Any]:
    return write_data(tmp_path)


def loaded(folder: Path, values: dict[str, Any], *overrides: str) -> TrainConfig:
    return load_config(write_config(folder, values), overrides)


def planned(folder: Path, values: dict[str, Any], *overrides: str) -> Plan:
    return prepare(loaded(folder, values, *overrides))


def rewritten(path: Path, change: Any) -> None:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        change(row)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_table(path: str, successes: list[int], n: int = 8, **provenance: Any) -> None:
    keys = [prompt_key(question) for question in QUESTIONS]
    table = PassRates.from_counts(keys, successes, n, provenance=Provenance(**provenance))
    table.save(path)


def test_the_trainer_gets_model_and_source_settings(tmp_path: Path, values: dict[str, Any]) -> None:
    assert planned(tmp_path, values).arguments.prompt_source_column is None
    values["data"]["source_column"] = "task"
    values["model"] |= {"attention": "eager", "revision": "v2", "dtype": "bfloat16"}
    plan = planned(tmp_path, values)
    assert plan.arguments.prompt_source_column == "prompt_source"
    assert plan.arguments.model_init_kwargs == {
        "attn_implementation": "eager",
        "revision": "v2",
        "dtype": "bfloat16",
    }


def test_training_prompts_are_not_evaluated_on(tmp_path: Path, values: dict[str, Any]) -> None:
    own = (tmp_path / "eval.jsonl").read_text().splitlines(keepends=True)
    shared = (tmp_path / "train.jsonl").read_text().splitlines(keepends=True)[:3]
    (tmp_path / "both.jsonl").write_text("".join([*shared, *own]))
    values["data"]["eval"] = str(tmp_path / "both.jsonl")
    with pytest.warns(UserWarning, match="3 of 7 prompts of data.eval are in data.train"):
        plan = planned(tmp_path, values)
    assert [p.prompt for p in plan.evaluation] == [json.loads(line)["prompt"] for line in own]
    values["data"]["eval"] = values["data"]["train"]
    with pytest.raises(ConfigError, match=r"only prompts that data\.train has too"):
        planned(tmp_path, values)


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (lambda row: row.update(answer=row["answer"] + "0"), "train"),
        (lambda row: row.update(task="other"), "train"),
        (lambda row: row.update(id=row["id"] + 1000), None),  # nobody reads it
    ],
)
def test_fingerprints_are_of_what_is_trained_on(
    tmp_path: Path, values: dict[str, Any], change: Any, changed: str | None
) -> None:
    values["data"]["source_column"] = "task"
    before = planned(tmp_path, values).resolved()["fingerprints"]
    assert set(before) == {"train", "pass_rates"}
    assert planned(tmp_path, values).resolved()["fingerprints"] == before
    rewritten(tmp_path / "train.jsonl", change)
    after = planned(tmp_path, values).resolved()["fingerprints"]
    assert [name for name in before if after[name] != before[name]] == (
        [changed] if changed else []
    )


def test_fingerprints_are_of_the_prompts_content_under_the_same_keys(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    values["data"]["key_column"] = "id"
    values |= {"pass_rates": None, "estimator": "zero"}
    before = planned(tmp_path, values).resolved()["fingerprints"]
    rewritten(tmp_path / "train.jsonl", lambda row: row.update(prompt=row["prompt"] + " "))
    assert planned(tmp_path, values).resolved()["fingerprints"] != before


def test_fingerprints_are_of_all_columns_for_a_function_of_the_users(
    tmp_path: Path, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan_rewards.py").write_text("def near(completion, id): return float(id > 3)\n")
    values |= {"pass_rates": None, "estimator": "zero"}
    values["reward"]["functions"] = ["plan_rewards:near"]
    before = planned(tmp_path, values).resolved()["fingerprints"]
    rewritten(tmp_path / "train.jsonl", lambda row: row.update(id=row["id"] + 1))
    assert planned(tmp_path, values).resolved()["fingerprints"] != before


def test_fingerprints_are_of_the_pass_rates_numbers(tmp_path: Path, values: dict[str, Any]) -> None:
    seen = set()
    for successes, n in (([3] * 32, 8), ([3] * 31 + [4], 8), ([3] * 32, 16)):
        write_table(values["pass_rates"], successes, n)
        seen.add(planned(tmp_path, values).resolved()["fingerprints"]["pass_rates"])
    keys = [prompt_key(question) for question in QUESTIONS]
    for last in (0.5, 0.75):
        rewards = [[0.25, 0.5]] * 31 + [[0.25, last]]
        PassRates.from_rewards(keys, rewards).save(values["pass_rates"])
        seen.add(planned(tmp_path, values).resolved()["fingerprints"]["pass_rates"])
    assert len(seen) == 5


@pytest.mark.parametrize(
    "functions",
    [["exact", {"name": "math", "weight": 0.5}], [{"name": "exact", "weight": 2.0}]],
)
def test_a_sum_of_rewards_needs_its_own_table(
    tmp_path: Path, values: dict[str, Any], functions: list[Any]
) -> None:
    values["reward"]["functions"] = functions
    with pytest.raises(ConfigError) as caught:
        planned(tmp_path, values)
    assert "PassRates.from_rewards" in str(caught.value)
    values["pass_rates"] = str(tmp_path / "none.parquet")
    with pytest.raises(ConfigError) as caught:
        planned(tmp_path, values)
    message = str(caught.value)
    assert "there is no file" in message
    assert "PassRates.from_rewards" in message
    assert "--verifier" not in message


def test_a_table_of_the_sum_is_taken(tmp_path: Path, values: dict[str, Any]) -> None:
    values["reward"]["functions"] = ["exact", {"name": "math", "weight": 0.5}]
    table = PassRates.from_rewards(
        [prompt_key(question) for question in QUESTIONS],
        [[0.0, 1.5]] * len(QUESTIONS),
        provenance=Provenance(verifier="exact + 0.5 x math"),
    )
    table.save(values["pass_rates"])
    assert planned(tmp_path, values).pass_rates is not None


def test_a_tilde_is_the_home_folder_everywhere(
    tmp_path: Path, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    values["model"]["name"] = "~/model"
    values["data"] |= {"train": ["~/train.jsonl"], "eval": "~/eval.jsonl"}
    values |= {"output_dir": "~/out", "pass_rates": {"path": "~/rates.parquet"}}
    plan = planned(tmp_path, values)
    config = plan.config
    assert config.output_dir == plan.arguments.output_dir == str(tmp_path / "out")
    assert config.model.name == str(tmp_path / "model")
    assert config.data.train == [str(tmp_path / "train.jsonl")]
    assert config.data.eval == str(tmp_path / "eval.jsonl")
    assert config.table is not None
    assert config.table.path == str(tmp_path / "rates.parquet")
    assert config.to_dict()["output_dir"] == str(tmp_path / "out")


@pytest.mark.parametrize(
    ("generation", "iterations", "accumulation", "updates"),
    [(1, 1, 1, 1), (4, 1, 4, 1), (4, 1, 8, 1), (4, 2, 1, 8), (6, 1, 4, 3), (3, 1, 2, 3)],
)
def test_updates_until_a_generation_batch_begins(
    generation: int, iterations: int, accumulation: int, updates: int
) -> None:
    class Arguments:
        steps_per_generation = generation
        num_iterations = iterations
        gradient_accumulation_steps = accumulation

    assert updates_per_generation(Arguments()) == updates
    starts = [step * accumulation % (generation * iterations) == 0 for step in range(1, 25)]
    assert starts.index(True) + 1 == updates


def test_no_is_a_text_and_saving_can_be_turned_off(tmp_path: Path, values: dict[str, Any]) -> None:
    config = loaded(tmp_path, values, "trl.save_strategy=no", "trl.bf16=false", "data.chat=TRUE")
    assert config.trl["save_strategy"] == "no"
    assert config.trl["bf16"] is False
    assert config.data.chat is True
    assert planned(tmp_path, values, "trl.save_strategy=no").arguments.save_strategy == "no"
    # A share of all steps, which every step is a multiple of here.
    assert planned(tmp_path, values, "trl.save_steps=0.5").arguments.save_steps == 0.5


def test_no_verdict_stays_no_verdict() -> None:
    def score(completion: str, columns: Any) -> float | None:
        return None if completion == "?" else 1.0

    reward = ColumnReward(NamedVerifier("mine", "1", score), {"a": {}, "b": {}})
    assert reward(["?", "3"], prompt_key=["a", "b"]) == [None, 1.0]
    assert math.isnan(reward.verifier("?", {}))


def test_prompts_are_those_of_the_file(tmp_path: Path, values: dict[str, Any]) -> None:
    plan = planned(tmp_path, values)
    assert plan.train == load_prompts(values["data"]["train"])
