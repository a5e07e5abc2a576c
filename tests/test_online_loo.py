"""A row's own reward never moves its own baseline, whatever the batch and the past."""

from __future__ import annotations

import copy
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basis_rl import PassRates, RewardBatch
from basis_rl.estimators import BasisOnline

KEYS = [f"p{i}" for i in range(6)]


@st.composite
def runs(draw):
    """A table or none, some past batches, and a batch of several sources, ages and groups.

    A prompt may change its source, steps may be missing, jump or go back, rewards be huge, tiny or
    all alike, and a batch observed in the step that is estimated.
    """
    continuous = draw(st.booleans())
    seed = draw(st.integers(0, 10_000))
    rng = np.random.default_rng(seed)
    cached = draw(st.integers(0, 5))
    table = None
    if cached and continuous:
        table = PassRates.from_rewards(KEYS[:cached], list(rng.normal(size=(cached, 4))))
    elif cached:
        table = PassRates.from_counts(KEYS[:cached], rng.integers(0, 9, cached), 8)
    online = BasisOnline(table, rewards="continuous" if continuous else "binary")
    named, scale = draw(st.booleans()), draw(st.sampled_from([1.0, 1e6, 1e-9, 0.0]))
    steps = draw(st.lists(st.sampled_from([None, 0, 1, 2, 3, 10**6]), min_size=6, max_size=6))

    def batch(number):
        step = steps[number]
        size = int(rng.integers(2, 12))
        keys = [KEYS[i] for i in rng.integers(0, len(KEYS), size)]
        rewards = rng.integers(0, 2, size).astype(float)
        if continuous:
            rewards = scale * rng.standard_t(2, size=size)
        return RewardBatch(
            keys,
            rewards,
            sources=[f"s{i}" for i in rng.integers(0, 3, size)] if named else None,
            step=step,
            policy_version=9,
            row_versions=9 - rng.integers(0, 3, size),
        )

    for number in range(draw(st.integers(0, 4))):
        online.estimate(batch(number))
    if draw(st.booleans()):
        steps[4] = steps[5]
        online.observe(batch(4))
    return online, batch(5), continuous, draw(st.floats(-50, 50))


@settings(max_examples=150, deadline=None)
@given(runs(), st.integers(0, 11))
def test_own_reward_has_no_say(run, row):
    online, batch, continuous, other = run
    row %= len(batch)
    rewards = batch.rewards.copy()
    rewards[row] = other if continuous else 1.0 - rewards[row]
    changed = RewardBatch(
        batch.keys, rewards, sources=batch.sources, step=batch.step,
        policy_version=batch.policy_version, row_versions=batch.row_versions,
    )  # fmt: skip
    found = copy.deepcopy(online).estimate(batch).baselines
    again = copy.deepcopy(online).estimate(changed).baselines
    assert np.isfinite(found).all()
    # Others' rewards may be huge: sums lose digits of the largest.
    digits = 1e-12 * max(1.0, np.abs(np.delete(batch.rewards, row)).max(), abs(other))
    assert again[row] == pytest.approx(found[row], rel=1e-10, abs=digits)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([0.0, 1.0, 0.5]), min_size=2, max_size=6), st.integers(0, 5))
def test_the_kind_of_rewards_is_told_by_the_other_rows(rewards, row):
    row %= len(rewards)
    keys = ["a", "a", "b", "c", "a", "d"][: len(rewards)]
    found = set()
    for own in (0.0, 1.0, 0.5, -3.0):
        rewards[row] = own
        baseline = BasisOnline().estimate(RewardBatch(keys, rewards)).baselines[row]
        found.add(round(float(baseline), 12))
    assert len(found) == 1


def test_sources_without_number():
    keys = [f"p{i}" for i in range(10_000)]
    rewards = np.random.default_rng(0).integers(0, 2, 10_000).astype(float)
    online = BasisOnline(rewards="binary")
    start = time.process_time()
    for _ in range(2):
        batch = RewardBatch(keys, rewards, sources=[f"source {key}" for key in keys])
        found = copy.deepcopy(online).estimate(batch).baselines
        rewards[-1] = 1.0 - rewards[-1]
        again = online.estimate(RewardBatch(keys, rewards, sources=batch.sources)).baselines
        assert again[-1] == pytest.approx(found[-1], abs=1e-12)
    assert time.process_time() - start < 2.0
    resumed = BasisOnline(rewards="binary")
    resumed.load_state_dict(online.state_dict())
    at = keys, [f"source {key}" for key in keys]
    np.testing.assert_array_equal(resumed.posterior(*at), online.posterior(*at))


def test_the_other_rows_do_have_a_say():
    online = BasisOnline(rewards="binary")
    low = copy.deepcopy(online).estimate(RewardBatch(["a", "b", "c"], [0, 0, 0]))
    high = copy.deepcopy(online).estimate(RewardBatch(["a", "b", "c"], [0, 0, 1]))
    assert high.baselines[0] > low.baselines[0] + 0.01
    assert high.baselines[2] == pytest.approx(low.baselines[2], abs=1e-12)


def test_a_first_batch_of_real_rewards_leaves_each_row_out():
    online = BasisOnline(rewards="continuous")
    a = copy.deepcopy(online).estimate(RewardBatch(["a", "a", "b"], [0.5, 2, 3])).baselines
    b = copy.deepcopy(online).estimate(RewardBatch(["a", "a", "b"], [0.5, 2, -90])).baselines
    assert a[2] == b[2] == 1.25


def test_other_rollouts_of_the_prompt_count_for_more_than_other_prompts():
    table = PassRates.from_counts(["a", "b"], [4, 4], 8)
    online = BasisOnline(table)
    base = copy.deepcopy(online).estimate(RewardBatch(["a", "a", "b", "b"], [0, 0, 0, 0]))
    own = copy.deepcopy(online).estimate(RewardBatch(["a", "a", "b", "b"], [0, 1, 0, 0]))
    other = copy.deepcopy(online).estimate(RewardBatch(["a", "a", "b", "b"], [0, 0, 0, 1]))
    assert own.baselines[0] - base.baselines[0] > 2 * (other.baselines[0] - base.baselines[0]) > 0


def test_more_rollouts_make_better_baselines():
    rng = np.random.default_rng(0)
    values = rng.beta(0.7, 0.7, 200)
    keys = np.arange(200)
    errors = []
    for rollouts in (1, 2, 4, 8):
        online = BasisOnline(rewards="binary")
        picked = np.repeat(keys, rollouts)
        rewards = (rng.random(len(picked)) < values[picked]).astype(float)
        baselines = online.estimate(RewardBatch(picked, rewards)).baselines
        errors.append(((baselines - values[picked]) ** 2).mean())
    assert (np.diff(errors) < 0).all()
    # The mean of the other seven has this variance.
    assert errors[-1] < (values * (1 - values)).mean() / 7
