"""What `basis-rl verl check` prints, without verl; `tests/with_verl` runs the command."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from verl_config import KEYS, MADE, user, verl_config, write

from basis_rl import PassRates
from basis_rl.cli import main
from basis_rl.errors import ConfigError
from basis_rl.verl.report import check_run, words

SCORED = "openai/gsm8k"


def files(folder: Path) -> dict[str, Any]:
    """Training data and a table of their keys, as overrides."""
    rows = [
        {"prompt": user(text), "data_source": SCORED, "reward_model": {"ground_truth": "1"}}
        for text in ("1+1=", "2+2=", "é ≤ 3", "4+4=", "1+1=")
    ]
    PassRates.from_counts(KEYS, [1, 2, 3, 4], 8, provenance=MADE).save(folder / "table.parquet")
    return {
        "data.train_files": write(folder / "train.parquet", rows * 2),
        "data.train_batch_size": 8,
    }


def test_what_is_printed(tmp_path: Path) -> None:
    config = verl_config(
        files(tmp_path), pass_rates=str(tmp_path / "table.parquet"), preset="paper"
    )
    found = dict(check_run(config).lines)
    assert found["estimator"] == "basis (preset=paper)"
    assert found["rollouts"] == "1 a prompt, 8 prompts a step"
    assert found["an estimate sees"] == "8 rollouts (sync)"
    assert found["model"] == "org/model, temperature 1.0"
    assert found["reward"] == MADE.verifier
    assert found["prompts"].startswith("4 in 10 rows of ")
    assert found["prompts"].endswith("key: hash of the content")
    assert found["pass rates"].startswith("4 prompts, n = 8, counts: ")
    assert found["made with"] == f"model org/model, temperature 1.0, verifier {MADE.verifier}"
    assert found["coverage"] == "100.0% of the prompts"
    assert " of a pass rate against the true one, which adds " in found["expected error"]


def test_prompts_that_the_job_leaves_out_are_named(tmp_path: Path) -> None:
    longest = {"data.filter_overlong_prompts": True, "data.max_prompt_length": 99}
    config = verl_config(files(tmp_path) | longest | {"algorithm.adv_estimator": "basis-online"})
    assert "those over 99 tokens, which the job leaves out" in str(check_run(config))


def test_verl_s_own_estimator_needs_no_files() -> None:
    config = verl_config({"algorithm.adv_estimator": "grpo", "actor_rollout_ref.rollout.n": 8})
    found = dict(check_run(config).lines)
    assert found["estimator"] == "grpo (not basis-rl's)"
    assert found["rollouts"] == "8 a prompt, 512 prompts a step"


def test_data_elsewhere_warn(tmp_path: Path) -> None:
    remote = files(tmp_path) | {"data.train_files": "hdfs://there/train.parquet"}
    config = verl_config(remote, pass_rates=str(tmp_path / "table.parquet"))
    with pytest.warns(UserWarning, match="hdfs://there/train.parquet is not on this machine"):
        assert "coverage" not in dict(check_run(config).lines)


def test_what_verl_asks_for_and_the_table_does_not_tell_warn(tmp_path: Path) -> None:
    config = verl_config(
        files(tmp_path) | {"actor_rollout_ref.rollout.name": "???"},
        pass_rates=str(tmp_path / "bare.parquet"),
        smoothing="none",
    )
    PassRates.from_rates(KEYS, [0.1, 0.2, 0.3, 0.4]).save(tmp_path / "bare.parquet")
    with (
        pytest.warns(UserWarning, match="actor_rollout_ref.rollout.name is not given"),
        pytest.warns(UserWarning, match="do not tell their model, temperature, verifier"),
    ):
        found = dict(check_run(config).lines)
    assert found["made with"] == "nothing of it is known"
    assert "n unknown, rates" in found["pass rates"]


def test_scores_that_are_not_0_and_1_are_refused(tmp_path: Path) -> None:
    changes = files(tmp_path)
    rows = [{"prompt": "x", "data_source": "math_dapo", "reward_model": {"ground_truth": "1"}}]
    changes["data.train_files"] = write(tmp_path / "dapo.jsonl", rows)
    config = verl_config(changes, estimator="basis-online", rewards="binary")
    with pytest.raises(ConfigError, match="gives data_source 'math_dapo' -1 or 1"):
        check_run(config)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "data.train_batch_size is 11, and the job has 10 training prompts (data.train_files)"),
        ({"data.train_max_samples": 9, "data.train_batch_size": 10}, "9 training prompts (data.tr"),
        ({"trainer.use_v1": False, "data.gen_batch_size": 12}, "data.gen_batch_size is 12, and"),
        ({"trainer.v1.trainer_mode": "colocate_async", "data.gen_batch_size": 1}, "size is 11, "),
    ],
)
def test_less_than_one_batch_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    few = files(tmp_path) | {"data.train_batch_size": 11} | changes
    table = str(tmp_path / "table.parquet")
    with pytest.raises(ConfigError, match=re.escape(said)):
        check_run(verl_config(few, pass_rates=table))
    remedy = few | {"data.train_batch_size": 9, "data.gen_batch_size": 9}
    check_run(verl_config(remedy, pass_rates=table))


def test_values_where_keys_are_expected_and_texts_for_numbers(tmp_path: Path) -> None:
    for path, value in {
        "algorithm.filter_groups": 5,
        "reward.custom_reward_function": "rewards.py",
        "reward.reward_manager": "naive",
        "actor_rollout_ref.rollout.top_k": "x",
        "data.train_max_samples": 1.5,
        "data.seed": -1,
    }.items():
        changes = files(tmp_path) | {"data.train_max_samples": 8, "data.shuffle": True}
        changes = {key: each for key, each in changes.items() if not key.startswith(path)}
        config = verl_config(changes, pass_rates=str(tmp_path / "table.parquet"))
        *parents, name = path.split(".")
        inner = config
        for parent in parents:
            inner = inner[parent]
        inner[name] = value
        with pytest.raises(ConfigError, match=f"^{re.escape(path)} is {value!r}: "):
            check_run(config)


def test_an_empty_file_name_is_no_file(tmp_path: Path) -> None:
    changes = files(tmp_path) | {"data.train_files": ""}
    config = verl_config(changes, pass_rates=str(tmp_path / "table.parquet"))
    with pytest.raises(ConfigError, match=r"data\.train_files is empty"):
        check_run(config)


def test_words_of_a_command_line() -> None:
    assert words(["a=b", "+c.d=verl.e"]) == ["a=b", "+c.d=verl.e"]
    command = ["X=1", "python3", "-u", "-m", "verl.trainer.main_ppo", "a=b", "~c"]
    assert words(command) == ["a=b", "~c"]


@pytest.mark.skipif(importlib.util.find_spec("verl") is not None, reason="verl is installed")
def test_without_verl_it_says_what_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["verl", "check", "a=b"])
    assert stopped.value.code == 2
    assert "pip install 'basis-rl[verl]'" in capsys.readouterr().err
