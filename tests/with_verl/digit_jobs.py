"""Training on `digit_task` with verl's stock trainer: pass rates, objectives, evaluation."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import digit_task
from assets import Assets
from jobs import Job, run_job

HERE = Path(__file__).parent
STEPS = 30
ROLLOUTS = 64  # a step
N = 32  # offline
EXTERNAL_LIB = "actor_rollout_ref.model.external_lib=basis_rl.verl"
RATIO = "basis/advantage_to_reward_std"

_LOSS = "actor_rollout_ref.actor.policy_loss.loss_mode"
OBJECTIVES = {
    "grpo": [f"{_LOSS}=vanilla"],
    "gpg": [f"{_LOSS}=gpg"],
    "gspo": [
        f"{_LOSS}=gspo",
        "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean",
        "actor_rollout_ref.actor.clip_ratio_low=3e-4",
        "actor_rollout_ref.actor.clip_ratio_high=4e-4",
    ],
}


def build_pass_rates(assets: Assets) -> None:
    """Sample the starting model with the project's own command."""
    command = [sys.executable, "-m", "basis_rl", "cache", "build", "--model", str(assets.model)]
    command += ["--data", str(assets.train), "--verifier", "digit_reward:score", "--n", str(N)]
    command += ["--max-tokens", str(digit_task.MAX_TOKENS), "--out", str(assets.pass_rates)]
    environment = dict(os.environ) | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=HERE, env=environment, check=True, timeout=300)


def three_overrides(assets: Assets, estimator: str = "basis") -> list[str]:
    """What switches basis-rl on."""
    return [
        f"algorithm.adv_estimator={estimator}",
        f"+algorithm.basis.pass_rates={assets.pass_rates}",
        EXTERNAL_LIB,
    ]


def train(
    folder: Path, assets: Assets, overrides: Sequence[str], *, rollouts: int = 1, steps: int = STEPS
) -> Job:
    """Train with 64 rollouts a step; evaluated before and after on prompts with new words.

    Parameters
    ----------
    overrides : sequence of str
        The estimator and the objective.
    rollouts : int
        Per prompt.
    """
    prompts = ROLLOUTS // rollouts
    validation = "actor_rollout_ref.rollout.val_kwargs"
    settings = [
        f"data.train_batch_size={prompts}",
        f"data.max_prompt_length={digit_task.MAX_PROMPT}",
        f"data.max_response_length={digit_task.MAX_TOKENS}",
        f"reward.custom_reward_function.path={HERE / 'digit_reward.py'}",
        "reward.custom_reward_function.name=score",
        f"actor_rollout_ref.rollout.n={rollouts}",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=64",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={prompts // 2}",  # two updates a step
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=32",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        f"{validation}.do_sample=True",
        f"{validation}.temperature=1.0",
        f"{validation}.n=4",
        "trainer.val_before_train=True",
        f"trainer.test_freq={steps}",
        f"trainer.total_training_steps={steps}",
    ]
    return run_job(folder, [*settings, *overrides], assets=assets, timeout=400)


def rewards(job: Job) -> list[float]:
    """Mean reward of each step."""
    steps = [row for row in job.metrics if "critic/score/mean" in row]
    return [float(row["critic/score/mean"]) for row in steps]


def evaluations(job: Job) -> list[float]:
    """Mean reward on the held-out prompts, before and after."""
    found = [
        value
        for row in job.metrics
        for name, value in row.items()
        if name.startswith(f"val-core/{digit_task.SOURCE}/") and "/mean@" in name
    ]
    return [float(value) for value in found]
