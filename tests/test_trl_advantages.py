from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl")

import pandas as pd
from tiny_model import keys_of, parity, sums, table_for, tiny_config, tiny_model, tiny_trainer

from basis_rl import Basis, BatchMean, RewardBatch
from basis_rl.estimators import registry


def by_length(completions: list[str], **_: Any) -> list[float]:
    return [float(len(text) % 2) for text in completions]


@pytest.mark.parametrize("rollouts", [1, 4])
@pytest.mark.parametrize(
    ("name", "options"),
    [("basis", {}), ("basis", {"preset": "paper"}), ("batch-mean", {}), ("zero", {})],
)
def test_advantages_are_the_estimators(
    tmp_path: Path, rollouts: int, name: str, options: dict[str, Any]
) -> None:
    data = sums(40)
    seen: list[list[float]] = []

    def reward(completions: list[str], **_: Any) -> list[float]:
        seen.append(by_length(completions))
        return seen[-1]

    config = tiny_config(
        tmp_path,
        per_device_train_batch_size=8,
        num_generations=rollouts,
        estimator=name,
        estimator_options=options,
        max_steps=3,
    )
    trainer = tiny_trainer(config, data, reward)
    trainer.train()
    reference = registry.create(name, table_for(data), **options)
    assert len(trainer.generated) == 3
    for rewards, (rows, output) in zip(seen, trainer.generated, strict=True):
        keys = keys_of(rows)
        assert len(set(keys)) == 8 // rollouts
        expected = reference.estimate(RewardBatch(keys, rewards)).advantages
        np.testing.assert_allclose(output["advantages"].numpy(), expected, rtol=1e-6)
    assert any(len(set(rewards)) == 2 for rewards in seen)


@pytest.mark.parametrize("batch", [1, 3, 5])
def test_any_batch_size_works_with_one_rollout(tmp_path: Path, batch: int) -> None:
    config = tiny_config(tmp_path, per_device_train_batch_size=batch, steps_per_generation=1)
    assert (config.num_generations, config.num_generations_eval) == (1, 1)
    assert config.generation_batch_size == config.per_device_train_batch_size == batch
    trainer = tiny_trainer(config, sums(10))
    trainer.train()
    rows, output = trainer.generated[0]
    assert len(set(keys_of(rows))) == len(rows) == len(output["advantages"]) == batch


def test_the_estimate_is_over_the_whole_generation_batch(tmp_path: Path) -> None:
    data = sums(24)
    config = tiny_config(
        tmp_path, steps_per_generation=3, gradient_accumulation_steps=3, estimator="batch-mean"
    )
    trainer = tiny_trainer(config, data)
    trainer.train()
    rows, output = trainer.generated[0]
    rewards = np.array(parity([row["prompt"] for row in rows]))
    assert len(rows) == 12
    expected = BatchMean().estimate(RewardBatch(keys_of(rows), rewards)).advantages
    np.testing.assert_allclose(output["advantages"].numpy(), expected, rtol=1e-6)


def test_the_estimator_sees_lengths_and_steps(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, max_steps=3, max_completion_length=8)
    trainer = tiny_trainer(config, sums(12), model=tiny_model(end_tokens=60))
    estimate, seen = trainer.estimator.estimate, []

    def recorded(batch: RewardBatch) -> Any:
        seen.append(batch)
        return estimate(batch)

    trainer.estimator.estimate = recorded  # type: ignore[method-assign]
    trainer.train()
    assert [batch.step for batch in seen] == [0, 1, 2]
    assert [batch.policy_version for batch in seen] == [0, 1, 2]
    lengths = set()
    for batch, (_, output) in zip(seen, trainer.generated, strict=True):
        assert batch.lengths is not None
        assert batch.lengths.tolist() == output["completion_mask"].sum(1).tolist()
        lengths |= set(batch.lengths.tolist())
    assert len(lengths) > 1


def test_sources_reach_the_estimator(tmp_path: Path) -> None:
    data = sums(16, task=["a" if i % 3 else "b" for i in range(16)])
    config = tiny_config(
        tmp_path, per_device_train_batch_size=16, prompt_source_column="task", max_steps=2
    )
    trainer = tiny_trainer(config, data)
    trainer.train()
    with_sources, without = Basis(table_for(data)), Basis(table_for(data))
    for rows, output in trainer.generated:
        rewards, keys = parity([row["prompt"] for row in rows]), keys_of(rows)
        sources = [row["task"] for row in rows]
        expected = with_sources.estimate(RewardBatch(keys, rewards, sources=sources)).advantages
        other = without.estimate(RewardBatch(keys, rewards)).advantages
        np.testing.assert_allclose(output["advantages"].numpy(), expected, rtol=1e-6)
        assert np.abs(expected - other).max() > 1e-3


def test_keys_come_from_the_named_column(tmp_path: Path) -> None:
    data = sums(8)
    table = table_for(data)
    renamed = type(table).from_counts(data["id"], table.successes, table.n)
    config = tiny_config(tmp_path, prompt_key_column="id")
    trainer = tiny_trainer(config, data, pass_rates=renamed)
    trainer.train()
    rows, output = trainer.generated[0]
    rewards = parity([row["prompt"] for row in rows])
    expected = Basis(table).estimate(RewardBatch(keys_of(rows), rewards)).advantages
    np.testing.assert_allclose(output["advantages"].numpy(), expected, rtol=1e-6)


def test_chat_prompts_are_keyed_by_their_content(tmp_path: Path) -> None:
    data = sums(8).map(lambda row: {"prompt": [{"role": "user", "content": row["prompt"]}]})
    trainer = tiny_trainer(tiny_config(tmp_path), data)
    trainer.train()
    assert trainer.state.log_history[0]["basis/coverage"] == 1.0


def test_batch_scaling_divides_by_the_reward_deviation(tmp_path: Path) -> None:
    config = tiny_config(
        tmp_path, per_device_train_batch_size=8, estimator="batch-mean", scale_rewards="batch"
    )
    trainer = tiny_trainer(config, sums(8))
    trainer.train()
    rows, output = trainer.generated[0]
    rewards = np.array(parity([row["prompt"] for row in rows]))
    expected = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
    np.testing.assert_allclose(output["advantages"].numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("scale", ["paper", "none", "verl-nonzero"])
def test_gpg_scales_the_advantages_of_groups(tmp_path: Path, scale: str) -> None:
    def last_wrong(id: list[str], **_: Any) -> list[float]:
        # sum-0 and sum-1 are always right; of the others every second rollout is.
        return [float(n in ("sum-0", "sum-1") or i % 2) for i, n in enumerate(id)]

    config = tiny_config(
        tmp_path,
        per_device_train_batch_size=8,
        num_generations=2,
        objective="gpg",
        gpg_scale=scale,
        estimator="group-mean",
        estimator_options={"std": False},
        num_iterations=2,
    )
    trainer = tiny_trainer(config, sums(4), last_wrong)
    trainer.train()
    rows, output = trainer.generated[0]
    assert "old_per_token_logps" not in output
    factor = {"paper": 8 / 4, "none": 1.0, "verl-nonzero": 8 / 6}[scale]
    plain = [0.0 if row["id"] in ("sum-0", "sum-1") else i % 2 - 0.5 for i, row in enumerate(rows)]
    np.testing.assert_allclose(output["advantages"].numpy(), np.array(plain) * factor, rtol=1e-6)
    assert trainer.state.log_history[0]["basis/gpg_scale"] == pytest.approx(factor)


def test_table_and_logs_show_our_advantages(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, log_completions=True, num_completions_to_print=1, max_steps=2)
    trainer = tiny_trainer(config, sums(8))
    trainer.train()
    for step, (rows, output) in enumerate(trainer.generated, start=1):
        table = pd.read_parquet(tmp_path / "completions" / f"completions_{step:05d}.parquet")
        assert table["prompt"].tolist() == [row["prompt"] for row in rows]
        np.testing.assert_allclose(table["advantage"], output["advantages"].numpy(), rtol=1e-6)
        np.testing.assert_allclose(table["advantage"] + table["baseline"], table["parity"])
        assert np.abs(table["advantage"]).max() > 0.1
        logs = trainer.state.log_history[step - 1]
        assert "frac_reward_zero_std" not in logs
        for name in ("tau", "coverage", "baseline_mean", "advantage_std"):
            assert np.isfinite(logs[f"basis/{name}"]), name


def test_evaluation_leaves_the_estimator_alone(tmp_path: Path) -> None:
    data = sums(30)
    train, unknown = data.select(range(8)), data.select(range(8, 30))
    config = tiny_config(
        tmp_path,
        max_steps=2,
        eval_strategy="steps",
        eval_steps=1,
        per_device_eval_batch_size=3,
        log_completions=True,
        num_completions_to_print=1,
    )
    trainer = tiny_trainer(config, train, pass_rates=table_for(train), eval_dataset=unknown)
    states: list[Any] = []
    trainer.estimator.estimate = _recording(trainer.estimator.estimate, states, trainer)
    trainer.train()
    assert len(states) == 2
    before = trainer.estimator.state_dict()
    metrics = trainer.evaluate()
    assert trainer.estimator.state_dict() == before
    assert len(states) == 2
    assert metrics["eval_reward"] == pytest.approx(np.mean(parity(unknown["prompt"])), abs=0.05)
    assert "eval_frac_reward_zero_std" not in metrics
    table = pd.read_parquet(tmp_path / "completions" / "completions_00002.parquet")
    assert np.abs(table["advantage"]).max() > 0  # reward minus the batch's mean
    np.testing.assert_allclose(table["advantage"] + table["baseline"], table["parity"])


def _recording(estimate: Any, states: list[Any], trainer: Any) -> Any:
    def call(batch: RewardBatch) -> Any:
        assert trainer.model.training
        states.append(batch.keys)
        return estimate(batch)

    return call


def test_lora_trains_its_adapter(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    config = tiny_config(tmp_path, max_steps=1, learning_rate=1e-2, beta=0.01)
    lora = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    trainer = tiny_trainer(config, sums(8), peft_config=lora)
    adapter = {n: p.clone() for n, p in trainer.model.named_parameters() if p.requires_grad}
    assert adapter
    assert all("lora" in name for name in adapter)
    trainer.train()
    moved = [
        n for n, p in trainer.model.named_parameters() if n in adapter and (p != adapter[n]).any()
    ]
    assert moved
    assert np.abs(trainer.generated[0][1]["advantages"].numpy()).max() > 0.1
