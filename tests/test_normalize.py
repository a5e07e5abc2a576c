"""Advantage normalisation: each way by hand, rows without a verdict, turns, errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basis_rl import (
    BatchError,
    ConfigError,
    GroupMean,
    LeaveOneOut,
    RewardBatch,
    Zero,
    normalize_advantages,
)
from basis_rl.estimators import ReinforcePlusPlus

KEYS = ["a", "a", "b", "b", "c"]
REWARDS = np.array([1.0, 0.0, 3.0, 1.0, 0.5])
LENGTHS = np.array([1.0, 3.0, 2.0, 2.0, 4.0])
WAYS = ["none", "batch", "tokens", "group", "reward-std"]


def whole(rewards=REWARDS, **columns):
    batch = RewardBatch(KEYS, rewards, lengths=LENGTHS, **columns)
    return Zero(max_unverified=0.5).estimate(batch), batch


def test_none_changes_nothing():
    estimate, batch = whole()
    assert normalize_advantages(estimate, batch, "none") is estimate


def test_batch_is_the_default_and_counts_every_rollout_once():
    estimate, batch = whole()
    made = normalize_advantages(estimate, batch)
    expected = (REWARDS - REWARDS.mean()) / (REWARDS.std(ddof=1) + 1e-4)
    np.testing.assert_allclose(made.advantages, expected)
    np.testing.assert_array_equal(made.baselines, estimate.baselines)


def test_tokens_weigh_by_length():
    estimate, batch = whole()
    tokens = np.repeat(REWARDS, LENGTHS.astype(int))
    expected = (REWARDS - tokens.mean()) / np.sqrt(tokens.var(ddof=1) + 1e-8)
    made = normalize_advantages(estimate, batch, "tokens").advantages
    np.testing.assert_allclose(made, expected)
    np.testing.assert_allclose(made, ReinforcePlusPlus().estimate(batch).advantages)


def test_group_divides_by_the_prompts_own_spread_and_leaves_a_lone_rollout():
    estimate, batch = whole()
    std = np.array([0.5**0.5] * 2 + [2**0.5] * 2)
    expected = np.append(REWARDS[:4] / (std + 1e-6), REWARDS[4])
    np.testing.assert_allclose(normalize_advantages(estimate, batch, "group").advantages, expected)
    centred = GroupMean(std=False).estimate(batch)
    np.testing.assert_allclose(
        normalize_advantages(centred, batch, "group").advantages,
        GroupMean(std=True).estimate(batch).advantages,
    )


def test_reward_std_does_not_centre():
    _, batch = whole()
    made = LeaveOneOut().estimate(batch)
    np.testing.assert_allclose(
        normalize_advantages(made, batch, "reward-std").advantages,
        made.advantages / (REWARDS.std(ddof=1) + 1e-4),
    )


@pytest.mark.parametrize("how", WAYS)
def test_rows_without_a_verdict_are_as_if_they_were_not_there(how):
    keys, rewards = [*KEYS[:2], "b", *KEYS[2:]], np.insert(REWARDS, 2, np.nan)
    batch = RewardBatch(keys, rewards, lengths=np.insert(LENGTHS, 2, 9.0))
    made = normalize_advantages(Zero(max_unverified=0.5).estimate(batch), batch, how)
    expected = normalize_advantages(*whole(), how)
    assert made.advantages[2] == 0.0
    assert np.isnan(made.baselines[2])
    np.testing.assert_allclose(np.delete(made.advantages, 2), expected.advantages)
    assert made.metrics["advantage_std"] == pytest.approx(expected.metrics["advantage_std"])


@pytest.mark.parametrize("how", WAYS)
def test_turns_of_a_rollout_count_once(how):
    ids = ["0", "1", "0", "1", "0"]
    rows = [0, 1, 1, 2, 3, 4, 4, 4]
    lengths = np.array([1, 1, 2, 2, 2, 1, 2, 1.0])
    batch = RewardBatch(
        [KEYS[i] for i in rows],
        REWARDS[rows],
        lengths=lengths,
        rollout_ids=[ids[i] for i in rows],
    )
    made = normalize_advantages(Zero().estimate(batch), batch, how)
    expected = normalize_advantages(*whole(), how)
    np.testing.assert_allclose(made.advantages, expected.advantages[rows])


@settings(max_examples=60, deadline=None)
@given(
    rewards=st.lists(st.floats(-9, 9).map(lambda x: round(x, 2)), min_size=5, max_size=5),
    factor=st.sampled_from([-2.0, 0.5, 100.0]),
    how=st.sampled_from(["batch", "tokens", "reward-std", "group"]),
)
def test_the_scale_of_rewards_is_gone(rewards, factor, how):
    if np.ptp(rewards) < 1 or min(abs(np.diff(rewards)[[0, 2]])) < 1:
        return
    made = normalize_advantages(*whole(np.array(rewards)), how).advantages[:4]
    other = normalize_advantages(*whole(factor * np.array(rewards)), how).advantages[:4]
    np.testing.assert_allclose(other, np.sign(factor) * made, rtol=1e-3, atol=1e-6)


def test_equal_advantages():
    estimate, batch = whole(np.full(5, 0.7))
    for how in ("batch", "tokens"):
        made = normalize_advantages(estimate, batch, how).advantages
        np.testing.assert_allclose(made, 0, atol=1e-10)
    for how in ("group", "reward-std"):
        assert np.isfinite(normalize_advantages(estimate, batch, how).advantages).all()


def test_metrics_are_those_of_the_new_advantages():
    estimate, batch = whole()
    made = normalize_advantages(estimate, batch, "batch")
    assert made.metrics["advantage_mean"] == pytest.approx(0, abs=1e-12)
    assert made.metrics["advantage_std"] == pytest.approx(made.advantages.std())
    assert made.metrics["reward_mean"] == estimate.metrics["reward_mean"]
    ratio = made.advantages.std() / REWARDS.std()
    assert made.metrics["advantage_to_reward_std"] == pytest.approx(ratio)


def test_errors_name_the_remedy():
    estimate, batch = whole()
    with pytest.raises(ConfigError, match="did you mean 'tokens'"):
        normalize_advantages(estimate, batch, "token")
    with pytest.raises(BatchError, match="5 rows and the batch 2"):
        normalize_advantages(estimate, RewardBatch(["a", "b"], [0, 1]))
    bare = RewardBatch(KEYS, REWARDS)
    with pytest.raises(BatchError, match="needs lengths"):
        normalize_advantages(Zero().estimate(bare), bare, "tokens")
    single = RewardBatch(["a", "b"], [0, 1])
    with pytest.raises(BatchError, match=r"one rollout.*'batch' or 'tokens'"):
        normalize_advantages(Zero().estimate(single), single, "group")
