"""Training with the stock trainer: real rewards, real pass rates, a task that can be learned."""

from __future__ import annotations

import statistics

import pytest
from assets import Assets
from digit_jobs import (
    EXTERNAL_LIB,
    OBJECTIVES,
    RATIO,
    build_pass_rates,
    evaluations,
    rewards,
    three_overrides,
    train,
)
from digit_task import make_task

from basis_rl import PassRates


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Assets:
    assets = make_task(tmp_path_factory.mktemp("digits"))
    build_pass_rates(assets)
    return assets


def test_one_rollout_per_prompt_raises_the_reward(task, tmp_path):
    table = PassRates.load(task.pass_rates)
    rates = table.successes / table.n
    assert rates.min() < 0.2  # a prompt's own baseline matters
    assert rates.max() > 0.7
    job = train(tmp_path, task, [*three_overrides(task), *OBJECTIVES["grpo"]], steps=15).check()
    before, *_, after = evaluations(job)
    assert after - before > 0.15  # of 256 answers each, to prompts with new words: 3.5 deviations
    steps = [row for row in job.metrics if "basis/rows" in row]
    assert [row["basis/rows"] for row in steps] == [64.0] * 15
    assert all(row["basis/coverage"] == 1 for row in steps)
    # Rewards spread by the prompts' difficulty, which the baseline knows.
    assert statistics.mean(row[RATIO] for row in steps[:5]) < 0.95


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_raises_the_reward(task, tmp_path, objective):
    job = train(tmp_path, task, [*three_overrides(task), *OBJECTIVES[objective]]).check()
    assert all("basis/tau" in row for row in job.metrics if "critic/score/mean" in row)
    learned(job)


@pytest.mark.slow
def test_groups_of_eight_with_the_same_number_of_rollouts(task, tmp_path):
    """The stock estimator learns the task too, and basis-rl leaves it alone."""
    overrides = ["algorithm.adv_estimator=grpo", EXTERNAL_LIB, *OBJECTIVES["grpo"]]
    job = train(tmp_path, task, overrides, rollouts=8).check()
    assert not any(name.startswith("basis/") for row in job.metrics for name in row)
    learned(job)


def learned(job) -> None:
    """The last five steps against the first five (320 rollouts each), and the evaluations."""
    each = rewards(job)
    assert len(each) == 30
    assert statistics.mean(each[-5:]) - statistics.mean(each[:5]) > 0.15  # a deviation is 0.04
    before, *_, after = evaluations(job)
    assert after - before > 0.2
