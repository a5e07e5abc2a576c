"""Small records of rewards for the tests of the laboratory's figures."""

from __future__ import annotations

import numpy as np

from basis_rl.lab.record import RewardRecord, Stage
from basis_rl.passrates import PassRates


def trace(prompts: int = 24, visits: int = 20, *, rollouts: int = 8, seed: int = 0) -> RewardRecord:
    """A run in which every prompt comes once a step and gets easier."""
    rng = np.random.default_rng(seed)
    start = rng.normal(size=prompts) * 2 - 0.5
    prompt = np.tile(np.arange(prompts), visits)
    step = np.repeat(np.arange(1, visits + 1), prompts)
    values = 1 / (1 + np.exp(-(start[prompt] + 1.5 * step / visits)))
    rewards = (rng.random((len(prompt), rollouts)) < values[:, None]).astype(float)
    starts = np.arange(len(prompt) + 1) * rollouts
    keys = [f"p{i}" for i in range(prompts)]
    return RewardRecord(keys, prompt, step, starts, rewards.ravel(), name="small trace")


def checkpoints(
    prompts: int = 70, rollouts: int = 72, *, seed: int = 0
) -> tuple[list[RewardRecord], PassRates]:
    """Three checkpoints with one visit of every prompt, and a table of 64 rollouts."""
    rng = np.random.default_rng(seed)
    start = rng.normal(size=prompts) * 1.5 - 0.5
    keys = [f"p{i}" for i in range(prompts)]
    records = []
    for number, shift in enumerate((0.2, 0.7, 1.2)):
        values = 1 / (1 + np.exp(-(start + shift)))
        rewards = (rng.random((prompts, rollouts)) < values[:, None]).astype(float)
        visit = np.arange(prompts)
        starts = np.arange(prompts + 1) * rollouts
        records.append(
            RewardRecord(
                keys, visit, np.full(prompts, number), starts, rewards.ravel(), name=f"c{number}"
            )
        )
    successes = rng.binomial(64, 1 / (1 + np.exp(-start)))
    return records, PassRates.from_counts(keys, successes, 64)


def stage_of(
    values: np.ndarray, *, oracle: int = 200, n: int = 64, shown: int = 8, seed: int = 0
) -> Stage:
    """A stage of prompts with known values, whose reference policy is the stage's."""
    rng = np.random.default_rng(seed)
    rewards = (rng.random((len(values), oracle)) < values[:, None]).astype(float)
    halves = np.stack([rewards[:, ::2].mean(axis=1), rewards[:, 1::2].mean(axis=1)])
    keys = [f"p{i}" for i in range(len(values))]
    return Stage(
        "middle",
        keys,
        (rng.random((len(values), shown)) < values[:, None]).astype(float),
        rewards.mean(axis=1),
        rewards.var(axis=1, ddof=1) / oracle,
        PassRates.from_counts(keys, rng.binomial(n, values), n),
        halves=halves,
        halves_variance=np.stack(
            [rewards[:, i::2].var(axis=1, ddof=1) / (oracle // 2) for i in (0, 1)]
        ),
    )
