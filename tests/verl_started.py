"""A trainer of verl that has started, of fakes, and a batch through its hooks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from verl_config import verl_config
from verl_fakes import (
    TOKENS,
    Batch,
    Data,
    Queue,
    core_algos,
    fresh_v1,
    prompt,
    rows,
    token_rewards,
)

from basis_rl import PassRates
from basis_rl.passrates import prompt_key
from basis_rl.verl import settings
from basis_rl.verl.plugin import CORE

COUNT = 6


def pretend_verl(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the adapter looks for in the installed verl."""
    monkeypatch.setattr(settings, "verl_version", lambda: "0.9.1")
    monkeypatch.setitem(sys.modules, CORE, core_algos())


def table(keys: list[str]) -> PassRates:
    return PassRates.from_counts(keys, [1 + i % 7 for i in range(len(keys))], 8)


def config(folder: Path, keys: list[str] | None = None, /, **basis: Any) -> dict[str, Any]:
    """Of a run in a folder, with pass rates for these keys (by default of the prompts)."""
    keys = [prompt_key(prompt(i)) for i in range(COUNT)] if keys is None else keys
    table(keys).save(folder / "table.parquet")
    changes = {
        "trainer.default_local_dir": str(folder / "run"),
        "data.train_batch_size": COUNT,
        "actor_rollout_ref.actor.ppo_mini_batch_size": COUNT,
        **basis.pop("changes", {}),
    }
    return verl_config(
        changes,
        **{
            "pass_rates": str(folder / "table.parquet"),
            "allow_mismatch": ["verifier", "model"],
            **basis,
        },
    )


def started(made: dict[str, Any], data: Data | None = None) -> Any:
    trainer = fresh_v1()(made, Data(rows(COUNT)) if data is None else data)
    trainer._init_dataloader()
    trainer.global_steps = 5
    return trainer


def fill(queue: Queue, keys: list[str], numbers: list[int]) -> None:
    """Put the rows of some prompts into the queue."""
    data = rows(COUNT)
    for key, number in zip(keys, numbers, strict=True):
        queue.rows[key] = {**data[number], "raw_prompt": prompt(number)}


def step(trainer: Any, queue: Queue, keys: list[str], tags: Any, rewards: Any, mask: Any) -> Any:
    """One batch through the hook: advantages (B,), metrics and the batch that verl goes on with."""
    trainer.rewards, trainer.mask = token_rewards(rewards), mask
    metrics: dict[str, Any] = {}
    batch = trainer._compute_advantage(Batch(keys, tags), metrics)
    largest = trainer.result.abs().argmax(dim=1, keepdim=True)
    return trainer.result.gather(1, largest).squeeze(1).numpy(), metrics, batch


def full_mask(count: int) -> torch.Tensor:
    return torch.ones(count, TOKENS, dtype=torch.long)
