"""Advantages in the batches of real jobs against the estimator itself, on the same rewards."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import batch_dump
import numpy as np
import pytest
from assets import SOURCE, Assets, addition_rows, table_of
from jobs import Job, run_job

from basis_rl import RewardBatch, estimators
from basis_rl.passrates import prompt_key

HERE = Path(__file__).parent
BASIS = "+algorithm.basis"
PLUGIN = "actor_rollout_ref.model.external_lib=basis_rl.verl"
PROMPTS = [row["prompt"] for row in addition_rows(64, "train")]
# The processor samples and trains with nearly the same log-probabilities: the sum of a row's
# differences is rejected where it is a little below 0, which about a third are.
REJECTION = [
    "actor_rollout_ref.rollout.calculate_log_probs=True",
    "algorithm.rollout_correction.rollout_rs=seq_sum_k1",
    "algorithm.rollout_correction.rollout_rs_threshold='0.9999999999_2.0'",
]


def is_padding(row: dict[str, Any]) -> bool:
    return bool(row["key"].startswith("pad"))


def reward(row: dict[str, Any]) -> float:
    return float(sum(row["rm_scores"]))


def advantage(row: dict[str, Any]) -> float:
    """The one value at every token of the mask; 0 elsewhere, and in a row without any."""
    inside = [a for a, m in zip(row["advantages"], row["response_mask"], strict=True) if m]
    outside = [a for a, m in zip(row["advantages"], row["response_mask"], strict=True) if not m]
    assert not any(outside)
    assert len(set(inside)) <= 1
    assert row["returns"] == row["advantages"]
    return inside[0] if inside else 0.0


def compare(job: Job, estimator: Any, keys: list[str], source: str | None) -> list[dict[str, Any]]:
    """Check every batch of a job; gives all rows."""
    key_of = {prompt_key(prompt): key for prompt, key in zip(PROMPTS, keys, strict=True)}
    batches = batch_dump.read(job.folder)
    assert [batch["step"] for batch in batches] == [row["step"] for row in job.metrics] == [1, 2, 3]
    for batch, metrics in zip(batches, job.metrics, strict=True):
        real = [row for row in batch["rows"] if not is_padding(row)]
        rewards = [reward(row) for row in real]
        made = RewardBatch(
            [key_of[prompt_key(row["raw_prompt"])] for row in real],
            rewards,
            sources=None if source is None else [source] * len(real),
            step=batch["step"] - 1,
            policy_version=batch["step"] - 1,
            row_versions=np.full(len(real), batch["step"] - 1),
        )
        estimate = estimator.estimate(made)
        in_loss = np.array([any(row["response_mask"]) for row in real])
        np.testing.assert_allclose(
            [advantage(row) for row in real], np.where(in_loss, estimate.advantages, 0.0), atol=1e-6
        )
        assert not any(advantage(row) for row in batch["rows"] if is_padding(row))
        assert metrics["basis/rows"] == len(real)
        for name in ("baseline_mean", "advantage_std", "unverified_fraction"):
            assert metrics[f"basis/{name}"] == pytest.approx(estimate.metrics[name])
        assert math.isfinite(metrics["critic/score/mean"])
        assert math.isfinite(metrics["actor/grad_norm"])
    return [row for batch in batches for row in batch["rows"]]


def test_one_worker_with_padding_rejected_rows_and_rewards_without_a_verdict(
    assets: Assets, tmp_path: Path
) -> None:
    overrides = [
        "algorithm.adv_estimator=basis",
        PLUGIN,
        f"{BASIS}.pass_rates={assets.pass_rates}",
        f"{BASIS}.prompt_key_column=prompt_id",
        f"{BASIS}.prompt_source_column=data_source",
        f"{BASIS}.max_unverified=0.6",
        f"{BASIS}.allow_mismatch=[verifier]",
        "data.train_batch_size=10",
        f"reward.custom_reward_function.path={HERE / 'no_verdict.py'}",
        *REJECTION,
    ]
    job = run_job(tmp_path / "job", overrides, assets=assets, modules=["batch_dump"]).check()
    keys = [row["prompt_id"] for row in addition_rows(64, "train")]
    estimator = estimators.create("basis", table_of(keys), max_unverified=0.6)
    rows = compare(job, estimator, keys, SOURCE)
    assert len(rows) == 3 * 12
    assert sum(map(is_padding, rows)) == 3 * 2
    real = [row for row in rows if not is_padding(row)]
    unverified = [row for row in real if math.isnan(reward(row))]
    assert 0 < len(unverified) < len(real)
    # Out of the loss and of its denominator.
    assert not any(any(row["response_mask"]) or any(row["loss_mask"]) for row in unverified)
    rejected = [row for row in real if not any(row["response_mask"]) and row not in unverified]
    assert 0 < len(rejected) < len(real)
    assert all(any(row["loss_mask"]) for row in rejected)  # as verl has them
    record = (job.checkpoints / "basis_rewards.jsonl").read_text().splitlines()
    assert len(record) == 1 + 3


def test_two_workers_with_content_hashes_and_two_rollouts_of_a_prompt(
    assets: Assets, tmp_path: Path
) -> None:
    keys = [prompt_key(prompt) for prompt in PROMPTS]
    table = table_of(keys, model=str(assets.model))
    table.save(tmp_path / "hashes.parquet")
    overrides = [
        "algorithm.adv_estimator=basis",
        PLUGIN,
        f"{BASIS}.pass_rates={tmp_path / 'hashes.parquet'}",
        f"{BASIS}.preset=paper",
        f"{BASIS}.variant=vop",
        "data.train_batch_size=6",
        "actor_rollout_ref.rollout.n=2",
    ]
    job = run_job(
        tmp_path / "job", overrides, assets=assets, workers=2, modules=["batch_dump"]
    ).check()
    estimator = estimators.create("basis", table, preset="paper", variant="vop")
    rows = compare(job, estimator, keys, None)
    assert len(rows) == 3 * 16
    assert sum(map(is_padding, rows)) == 3 * 4
