"""Real rewards without a table: the unit that the first batch gave is mended."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from basis_rl import RewardBatch
from basis_rl.estimators import BasisOnline
from basis_rl.estimators.online.gaussian import without_outliers
from basis_rl.state_files import read_state, write_state

PROMPTS, BATCH = 320, 64


def batches(visits, factor=1.0, outlier=None, seed=0):
    """Values and noise of variance 1; the first batch divided by the factor."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=PROMPTS)
    for visit in range(visits):
        for number, rows in enumerate(rng.permutation(PROMPTS).reshape(-1, BATCH)):
            rewards = values[rows] + rng.normal(size=BATCH)
            if visit == number == 0:
                rewards /= factor
                rewards[0] = outlier or rewards[0]
            yield RewardBatch(rows.tolist(), rewards), values[rows]


def last_error(**options):
    online, errors = BasisOnline(rewards="continuous"), []
    for batch, values in batches(15, **options):
        errors.append(((online.estimate(batch).baselines - values) ** 2).mean())
    return np.mean(errors[-5:]), online


@pytest.mark.parametrize(
    "options",
    [{"factor": 10.0}, {"factor": 1000.0}, {"factor": 0.1}, {"factor": 0.01}, {"outlier": 1e6}],
    ids=str,
)
def test_a_first_batch_unlike_the_rest_is_made_good(options):
    usual, _ = last_error()
    error, online = last_error(**options)
    assert error < 2.0 * usual
    assert 0.5 < online._model.unit < 2.5


def test_what_is_unknown_of_values_does_not_pass_for_little_noise():
    # Values are a thousand higher after the first batch, so that for long nothing is known of them.
    online = BasisOnline(rewards="continuous")
    for number, (batch, _) in enumerate(batches(20)):
        online.estimate(RewardBatch(batch.keys, batch.rewards + 1000.0 * (number > 0)))
    assert 0.5 < online._model.unit < 4.0


def test_a_usual_first_batch_leaves_the_unit_alone():
    online = BasisOnline(rewards="continuous")
    units = set()
    for batch, _ in batches(15):
        online.estimate(batch)
        units.add(online._model.unit)
    assert len(units) == 1


@pytest.mark.parametrize("factor", [100.0, 0.01])
def test_a_run_resumed_between_two_units_is_the_uninterrupted_one(factor, tmp_path):
    whole, resumed = BasisOnline(rewards="continuous"), BasisOnline(rewards="continuous")
    units = []
    for number, (batch, _) in enumerate(batches(6, factor)):
        if number % 3 == 1:
            write_state(resumed.state_dict(), tmp_path / f"state-{number}")
            resumed = BasisOnline(rewards="continuous")
            resumed.load_state_dict(read_state(tmp_path / f"state-{number}"))
        np.testing.assert_array_equal(
            resumed.estimate(batch).baselines, whole.estimate(batch).baselines
        )
        units.append(whole._model.unit)
    assert len(set(units)) > 2


@pytest.mark.parametrize("factor", [100.0, 0.01])
def test_a_row_has_no_say_in_the_unit_of_its_own_baseline(factor):
    online = BasisOnline(rewards="continuous")
    for number, (batch, _) in enumerate(batches(3, factor)):
        rewards = batch.rewards.copy()
        rewards[number] = 1e3
        changed = copy.deepcopy(online).estimate(RewardBatch(batch.keys, rewards)).baselines
        found = online.estimate(batch).baselines
        assert changed[number] == pytest.approx(found[number], rel=1e-9, abs=1e-11)


def test_rewards_that_are_all_alike_do_not_wear_the_unit_out():
    online, keys = BasisOnline(rewards="continuous"), list(range(8))
    online.estimate(RewardBatch(keys, np.arange(8.0)))
    for _ in range(2000):
        online.estimate(RewardBatch(keys, np.ones(8)))
    assert online._model.unit > 0.1
    for _ in range(2000):  # each prompt has its own, always
        estimate = online.estimate(RewardBatch(keys, np.arange(8.0)))
    assert online._model.unit > 0.1
    np.testing.assert_allclose(estimate.baselines, np.arange(8.0), atol=0.1)


def test_outliers_of_a_first_batch():
    rewards = np.array([0.0, 1.0, 2.0, 3.0, 1e6])
    np.testing.assert_allclose(without_outliers(rewards), [0.0, 1.0, 2.0, 3.0, 2.0 + 9 * 1.5])
    rare = np.array([0.0, 0.0, 0.0, 0.0, 5.0])
    np.testing.assert_array_equal(without_outliers(rare), rare)
