from __future__ import annotations

import numpy as np
import pytest
import reference_trackers as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from basis_rl import BatchError, LeaveOneOut, RewardBatch, StateError
from basis_rl.estimators import Ebpo, JamesStein
from basis_rl.estimators.ebpo import RunningMoments

rewards = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(-5, 5))
rows = st.lists(st.tuples(st.sampled_from("abcde"), rewards), min_size=1, max_size=16)


def split(batch):
    return [key for key, _ in batch], [reward for _, reward in batch]


def has_a_group(batch):
    return len({key for key, _ in batch}) < len(batch)


@given(rows)
@settings(max_examples=100, deadline=None)
def test_james_stein_is_every_statistic_anew_for_every_row(batch):
    keys, rewards = split([*batch, *batch[:1]])
    result = JamesStein().estimate(RewardBatch(keys, rewards))
    np.testing.assert_allclose(
        result.baselines, reference.james_stein(keys, rewards), rtol=1e-7, atol=1e-7
    )


@given(st.lists(rows.filter(has_a_group), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_ebpo_is_the_shrinkage_by_all_rewards_so_far(run):
    estimator, naive = Ebpo(), reference.Ebpo()
    for batch in run:
        keys, rewards = split(batch)
        result = estimator.estimate(RewardBatch(keys, rewards))
        np.testing.assert_allclose(
            result.baselines, naive.estimate(keys, rewards), rtol=1e-6, atol=1e-7
        )


def test_james_stein_by_hand():
    keys = ["a", "a", "b", "b", "c", "c"]
    rewards = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    b = JamesStein().estimate(RewardBatch(keys, rewards)).baselines
    # For a: the others' means are 1 and 1/2; variances of these means 0 and 1/4.
    v, s = 1 / 8, 1 / 16
    shrink = 2 / 3 * v / (v + s)
    np.testing.assert_allclose(b[0], (1 - shrink) * 0.0 + shrink * 0.75)
    np.testing.assert_allclose(b[1], (1 - shrink) * 1.0 + shrink * 0.75)
    # For b: means 1/2 and 1/2, so all of 2/3.
    np.testing.assert_allclose(b[2], 1 / 3 * 1.0 + 2 / 3 * 0.5)


def test_james_stein_edges():
    # One prompt: leave-one-out. Others all alike and certain: no shrinkage.
    for keys, rewards in (
        (["a", "a", "a"], [1.0, 0.0, 0.0]),
        (["a", "a", "b", "b"], [1.0, 0.0, 1.0, 1.0]),
    ):
        batch = RewardBatch(keys, rewards)
        expected = LeaveOneOut().estimate(batch).baselines
        np.testing.assert_allclose(JamesStein().estimate(batch).baselines[:2], expected[:2])
    # A single rollout gets the mean of the other prompts.
    batch = RewardBatch(["a", "a", "b", "b", "c"], [1.0, 0.0, 1.0, 1.0, 0.0])
    assert JamesStein().estimate(batch).baselines[4] == pytest.approx(0.75)
    with pytest.raises(BatchError, match=r"one rollout.*'basis'"):
        JamesStein().estimate(RewardBatch(["a", "b"], [1.0, 0.0]))


@given(rows, st.integers(0, 15))
@settings(max_examples=60, deadline=None)
def test_james_stein_leaves_the_own_reward_out(batch, row):
    keys, rewards = split([*batch, *batch[:1]])
    row %= len(keys)
    if keys.count(keys[row]) == 1:
        return
    before = JamesStein().estimate(RewardBatch(keys, rewards)).baselines[row]
    rewards[row] += 3.0
    after = JamesStein().estimate(RewardBatch(keys, rewards)).baselines[row]
    np.testing.assert_allclose(before, after, atol=1e-7)


def test_james_stein_beats_leave_one_out_where_prompts_are_alike():
    rng = np.random.default_rng(0)
    values = rng.beta(8, 8, size=64)
    keys = [f"{i}" for i in range(64) for _ in range(2)]
    errors = {JamesStein: 0.0, LeaveOneOut: 0.0}
    for _ in range(50):
        drawn = (rng.random(128) < np.repeat(values, 2)).astype(float)
        for make in errors:
            b = make().estimate(RewardBatch(keys, drawn)).baselines
            errors[make] += float(((b - np.repeat(values, 2)) ** 2).mean())
    assert errors[JamesStein] < 0.5 * errors[LeaveOneOut]


def test_james_stein_keeps_its_digits_beside_a_giant():
    batch = RewardBatch(["a", "a", "b", "b", "c", "c"], [1e9, 1e9, 1.0, 0.0, 1.0, 1.0])
    b = JamesStein().estimate(batch).baselines
    np.testing.assert_allclose(b, reference.james_stein(batch.keys, batch.rewards.tolist()))


def test_ebpo_by_hand():
    keys, rewards = ["a", "a", "b", "b"], [1.0, 0.0, 1.0, 1.0]
    ebpo = Ebpo()
    b = ebpo.estimate(RewardBatch(keys, rewards)).baselines
    s2, t2, mu = 0.25, 0.125, 0.75  # of 1, 0, 1, 1; of 1/2, 1
    shrink = s2 / 2 / (s2 / 2 + t2)
    np.testing.assert_allclose(b[:2], (1 - shrink) * 0.5 + shrink * mu)
    np.testing.assert_allclose(b[2:], (1 - shrink) * 1.0 + shrink * mu)
    assert ebpo.rewards.count == 4
    assert ebpo.group_means.count == 2
    # A failed group gets a penalty from the running mean.
    failed = ebpo.estimate(RewardBatch(["c", "c"], [0.0, 0.0]))
    assert (failed.advantages < 0).all()


def test_ebpo_refuses_single_rollouts_and_learns_nothing_from_them():
    ebpo = Ebpo()
    with pytest.raises(BatchError, match=r"takes each reward as its prompt's mean.*'basis-online'"):
        ebpo.estimate(RewardBatch(list("abcde"), [1.0, 0.0, 0.0, 1.0, 0.0]))
    assert ebpo.rewards.count == 0
    # One prompt of several is enough.
    assert np.isfinite(ebpo.estimate(RewardBatch(list("aab"), [1.0, 0.0, 0.0])).baselines).all()


def test_ebpo_with_rewards_all_alike():
    assert Ebpo().estimate(RewardBatch(["a", "a"], [0.5, 0.5])).baselines.tolist() == [0.5, 0.5]


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_running_moments_are_those_of_all_numbers(parts):
    moments = RunningMoments()
    for part in parts:
        moments = moments.plus(np.array(part))
    numbers = np.concatenate(parts)
    assert moments.count == len(numbers)
    np.testing.assert_allclose(moments.mean, numbers.mean(), atol=1e-9)
    expected = numbers.var(ddof=1) if len(numbers) > 1 else 0.0
    np.testing.assert_allclose(moments.variance, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("saved", [[1.0, 2.0], [-1.0, 0.0, 0.0], [1.0, float("nan"), 0.0], "abc"])
def test_ebpo_refuses_moments_that_are_none(saved):
    state = Ebpo().state_dict()
    with pytest.raises(StateError, match="damaged"):
        Ebpo().load_state_dict({**state, "rewards": saved})
