"""Steps, filtered and stale rows, and a restart."""

from __future__ import annotations

import copy
import time

import numpy as np
import pytest

from basis_rl import PassRates, RewardBatch
from basis_rl.errors import StateError
from basis_rl.estimators import BasisOnline, BatchMean
from basis_rl.estimators.online.batch import Prompts
from basis_rl.estimators.online.filter import Posterior
from basis_rl.state_files import read_state, write_state

KEYS = [f"p{i}" for i in range(10)]


def batches(count, *, continuous=False, seed=0, sources=True):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=10) if continuous else rng.random(10)
    for step in range(count):
        picked = rng.integers(0, 10, 8)
        rewards = values[picked] + rng.normal(size=8)
        if not continuous:
            rewards = (rng.random(8) < values[picked]).astype(float)
        of = [f"s{i % 2}" for i in picked] if sources else None
        yield RewardBatch([KEYS[i] for i in picked], rewards, sources=of, step=step)


def tables():
    rng = np.random.default_rng(3)
    return {
        "none": (None, "binary"),
        "counts": (PassRates.from_counts(KEYS[:8], rng.integers(0, 9, 8), 8), "auto"),
        "none, real": (None, "continuous"),
        "rewards": (PassRates.from_rewards(KEYS[:8], list(rng.normal(size=(8, 5)))), "auto"),
    }


@pytest.mark.parametrize("case", tables())
def test_a_resumed_run_is_the_uninterrupted_one(case, tmp_path):
    table, rewards = tables()[case]
    continuous = "re" in case
    whole = BasisOnline(table, rewards=rewards)
    expected = [whole.estimate(b).baselines for b in batches(8, continuous=continuous)]
    first, second = BasisOnline(table, rewards=rewards), BasisOnline(table, rewards=rewards)
    for number, batch in enumerate(batches(8, continuous=continuous)):
        if number == 4:
            write_state(first.state_dict(), tmp_path / "state")
            second.load_state_dict(read_state(tmp_path / "state"))
        found = (first if number < 4 else second).estimate(batch).baselines
        np.testing.assert_array_equal(found, expected[number])
    ends = whole.posterior([*KEYS, "new"]), second.posterior([*KEYS, "new"])
    np.testing.assert_array_equal(*ends)


def test_a_state_before_the_first_batch_and_of_an_open_kind():
    fresh = BasisOnline()
    fresh.load_state_dict(BasisOnline().state_dict())
    known = BasisOnline()
    known.estimate(RewardBatch(["a", "b"], [0, 1]))
    fresh.load_state_dict(known.state_dict())
    assert fresh.kind == "binary"
    np.testing.assert_array_equal(fresh.posterior(["a"]), known.posterior(["a"]))


def test_states_that_do_not_fit_are_refused_and_leave_the_estimator_alone():
    online = BasisOnline(rewards="binary")
    for batch in batches(3):
        online.estimate(batch)
    before = online.posterior(KEYS)
    good = online.state_dict()
    with pytest.raises(StateError, match="batch-mean"):
        online.load_state_dict(BatchMean().state_dict())
    with pytest.raises(StateError, match="binary rewards and this run has continuous"):
        BasisOnline(rewards="continuous").load_state_dict(good)
    with pytest.raises(StateError, match="without pass rates and this run is with"):
        BasisOnline(PassRates.from_counts(KEYS, [1] * 10, 2)).load_state_dict(good)
    for damage in (
        {"unit": float("nan")},
        {"unit": None},
        {"drift": {"weights": [1.0], "variances": [1.0]}},
        {"common": {**good["model"]["common"], "x": np.zeros((1, 2))}},
        {"prompts": {"keys": np.zeros(3, np.uint8), "key_sizes": [1], "columns": {}}},
    ):
        with pytest.raises(StateError):
            online.load_state_dict({**good, "model": {**good["model"], **damage}})
        np.testing.assert_array_equal(online.posterior(KEYS), before)


def places(state, path=()):
    for name, value in state.items():
        yield (*path, name)
        if isinstance(value, dict):
            yield from places(value, (*path, name))


@pytest.mark.parametrize("case", tables())
def test_damage_anywhere_is_one_line_and_changes_nothing(case):
    table, rewards = tables()[case]
    online = BasisOnline(table, rewards=rewards)
    for batch in batches(3, continuous="re" in case):
        online.estimate(batch)
    before, good = online.posterior(KEYS), online.state_dict()
    refused = 0
    for path in places(good):
        harmless = {"step", "start"}
        for damage in ("gone", None, "x", -1, np.nan, [], {}, [None], np.full(4, -1.0), 10**400):
            state = copy.deepcopy(good)
            inner = state
            for name in path[:-1]:
                inner = inner[name]
            inner[path[-1]] = damage
            if isinstance(damage, str) and damage == "gone":
                del inner[path[-1]]
            if path == ("estimator",) and isinstance(damage, np.ndarray):
                continue
            if damage is None and (path[-1] in harmless or path == ("model",)):
                continue
            with pytest.raises(StateError, match=r"^[^\n]*$"):
                online.load_state_dict(state)
            refused += 1
            np.testing.assert_array_equal(online.posterior(KEYS), before)
    assert refused > 100


def test_a_negative_variance_is_refused():
    online = BasisOnline(rewards="binary")
    for batch in batches(3):
        online.estimate(batch)
    for damage in ("variance_2", "covariance"):
        state = copy.deepcopy(online.state_dict())
        inner = state["model"]["common" if damage == "covariance" else "prompts"]
        (inner if damage == "covariance" else inner["columns"])[damage] *= -1.0
        with pytest.raises(StateError, match=r"negative|not positive"):
            online.load_state_dict(state)


@pytest.mark.parametrize("rewards", [[0.0, 1.0], [0.3, 1.7]])
def test_its_own_first_state_takes_it_back_to_the_start(rewards):
    online = BasisOnline()
    first = online.state_dict()
    before = [online.estimate(RewardBatch(["a", "b"], rewards)).baselines for _ in range(3)]
    online.load_state_dict(first)
    assert online.kind == "auto"
    again = [online.estimate(RewardBatch(["a", "b"], rewards)).baselines for _ in range(3)]
    np.testing.assert_array_equal(again, before)
    online.load_state_dict(first)
    online.estimate(RewardBatch(["a", "b"], [0.0, 1.0] if rewards[0] else [0.3, 1.7]))


def test_a_grown_table_may_have_another_unit():
    rng = np.random.default_rng(0)
    stored = list(rng.normal(size=(8, 5)))
    online = BasisOnline(PassRates.from_rewards(KEYS[:8], stored))
    for batch in batches(4, continuous=True):
        online.estimate(batch)
    more = PassRates.from_rewards(KEYS, [*stored, *(5.0 * rng.normal(size=(2, 5)))])
    resumed = BasisOnline(more)
    untouched, _ = resumed.posterior(["p9"])
    resumed.load_state_dict(online.state_dict())
    met = [key for key in KEYS[:8] if online._model.filters.states.known([key])[0] >= 0]
    np.testing.assert_allclose(resumed.posterior(met)[0], online.posterior(met)[0])
    assert abs(resumed.posterior(["p9"])[0] - untouched) < 2.0


def test_one_step_drifts_once_however_many_batches_it_has():
    whole, parts = BasisOnline(rewards="binary"), BasisOnline(rewards="binary")
    for step in range(3):
        whole.estimate(RewardBatch(["a", "b"], [1, 0], step=step))
        parts.estimate(RewardBatch(["a"], [1], step=step))
        parts.estimate(RewardBatch(["b"], [0], step=step))
    assert whole._clock.now == parts._clock.now == 2
    np.testing.assert_array_equal(
        whole._model.filters.states["time"], parts._model.filters.states["time"]
    )
    same = BasisOnline(rewards="binary")
    for _ in range(3):
        same.estimate(RewardBatch(["a", "b"], [1, 0]))
    np.testing.assert_array_equal(same.posterior(["a", "b"]), whole.posterior(["a", "b"]))


def test_longer_absence_makes_a_prompt_less_known():
    online = BasisOnline(rewards="binary")
    rng = np.random.default_rng(0)
    for step in range(20):
        online.estimate(RewardBatch(["a", "b", "c"], rng.integers(0, 2, 3), step=step))
    soon, late = copy.deepcopy(online), copy.deepcopy(online)
    soon.estimate(RewardBatch(["b"], [1], step=20))
    late.estimate(RewardBatch(["b"], [1], step=2000))
    assert late.posterior(["a"])[1] > 1.2 * soon.posterior(["a"])[1]


def test_observed_rows_teach_and_count_in_the_same_step():
    table = PassRates.from_counts(KEYS, [4] * 10, 8)
    with_filtered, without = BasisOnline(table), BasisOnline(table)
    for step in range(6):
        kept = RewardBatch(KEYS[:5], [0, 1, 0, 1, 0], step=step)
        with_filtered.observe(RewardBatch(KEYS[5:], [1, 1, 1, 1, np.nan], step=step))
        with_filtered.estimate(kept)
        without.estimate(kept)
    assert with_filtered._clock.now == without._clock.now == 5
    assert with_filtered.posterior(["p6"])[0] > 0.65
    assert without.posterior(["p6"])[0] < 0.6
    with_filtered.observe(RewardBatch(["p6"], [np.nan]))  # nothing to learn, and no error
    BatchMean().observe(RewardBatch(["p6"], [1]))


def test_stale_rewards_tell_less_and_do_not_turn_back_the_clock():
    rng = np.random.default_rng(0)
    online = BasisOnline(PassRates.from_counts(KEYS, [4] * 10, 8))
    for step in range(30):
        values = rng.integers(0, 2, 10)
        online.estimate(RewardBatch(KEYS, values, step=step))
    fresh, stale = copy.deepcopy(online), copy.deepcopy(online)
    before, _ = online.posterior(KEYS)
    rows = {"step": 31, "policy_version": 31}
    fresh.estimate(RewardBatch(KEYS, [1] * 10, **rows, row_versions=[31] * 10))
    stale.estimate(RewardBatch(KEYS, [1] * 10, **rows, row_versions=[11] * 10))
    moved = [(model.posterior(KEYS)[0] - before).mean() for model in (fresh, stale)]
    assert moved[0] > moved[1] > 0
    assert stale._model.filters.states["time"].min() == 29  # of the last visit, as before
    assert stale.posterior(KEYS)[1].mean() > fresh.posterior(KEYS)[1].mean()


def test_rows_without_a_verdict_and_turns_of_a_rollout_are_left_to_the_base():
    online, plain = BasisOnline(rewards="binary"), BasisOnline(rewards="binary")
    turns = RewardBatch(
        ["a", "a", "b", *KEYS], [1, 1, 0, *[1] * 9, np.nan],
        rollout_ids=["x", "x", "y", *["z"] * 10],
    )  # fmt: skip
    found = online.estimate(turns)
    expected = plain.estimate(RewardBatch(["a", "b", *KEYS[:9]], [1, 0, *[1] * 9]))
    np.testing.assert_array_equal(found.baselines[1:12], expected.baselines)
    assert np.isnan(found.baselines[-1])
    assert found.advantages[-1] == 0
    assert len(online._model.filters.states) == len(plain._model.filters.states) == 11


def test_many_prompts_save_and_load_fast(tmp_path):
    online = BasisOnline(rewards="binary")
    size = 300_000
    keys = [f"math/train/{i:07d}" for i in range(size)]
    states = online._model.filters.states
    states.rows(keys)
    for k in range(6):
        states[f"variance_{k}"][:] = 1.0
    start = time.process_time()
    write_state(online.state_dict(), tmp_path / "state")
    saved = time.process_time()
    resumed = BasisOnline(rewards="binary")
    resumed.load_state_dict(read_state(tmp_path / "state"))
    loaded = time.process_time()
    assert len(resumed._model.filters.states) == size
    # A million take under 1 s each on a free machine; this catches a loop over prompts in Python.
    assert saved - start < 1.0
    assert loaded - saved < 1.0


def test_a_prompts_newest_row_counts_for_its_age():
    batch = RewardBatch(["a", "b", "a"], [1, 0, 0])
    prompts = Prompts.of(batch, np.array([3.0, 5.0, 4.0]), 1.0)
    assert prompts.times.tolist() == [4.0, 5.0]
    online = BasisOnline(rewards="binary")
    online.estimate(RewardBatch(["a", "b"], [1, 0], step=9))
    _, posterior = online._model.filters.at(["a", "b", "c"], None, np.array([-3.0, 1.0, -1.0]))
    assert posterior.lag.tolist() == [3.0, 0.0, 0.0]  # the first batch is at 0
    assert posterior.time.tolist() == [0.0, 1.0, -1.0]


def test_rewards_of_a_noisy_view_are_told_of_the_prompt_by_regression():
    # m ~ N(1, 2), y = m + e with e ~ N(0, 3), and a reward of y with noise 4 that is 6.
    K = np.ones((1, 1))
    none = np.zeros(1)
    before = Posterior(1.0 * K, 2.0 * K, none, none, none, none, none > 0)
    gain = 5.0 / (5.0 + 4.0)
    after = before.updated(3.0 * K, 1.0 + gain * 5.0 * K, 5.0 * (1 - gain) * K)
    direct = 2.0 / (2.0 + 3.0 + 4.0)
    np.testing.assert_allclose(after.mean, 1.0 + direct * 5.0)
    np.testing.assert_allclose(after.variance, 2.0 * (1 - direct))
