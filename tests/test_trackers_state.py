from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basis_rl import PassRates, RewardBatch, StateError, estimators
from basis_rl.estimators import Ebpo, Kae, KrpoTracking, Spo, SpoPlusPlus
from basis_rl.state_files import read_state, write_state

TABLE = PassRates.from_counts(["a", "b", "c"], [0, 3, 8], 8)
MAKERS = {
    "spo": Spo,
    "spo-plus-plus": SpoPlusPlus,
    "spo-plus-plus, visits": lambda table: SpoPlusPlus(table, clock="visits"),
    "kae": Kae,
    "kae, steps": lambda table: Kae(table, clock="steps", window=3),
    "krpo-tracking": KrpoTracking,
    "ebpo": lambda _: Ebpo(),
}
every = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def batches(seed, count, size=7):
    rng = np.random.default_rng(seed)
    for step in range(count):
        yield RewardBatch(
            rng.choice(["a", "b", "c", "d", "é", "e" * 40], size).tolist(),
            rng.integers(0, 2, size).astype(float),
            divergences=rng.random(size) / 50,
            step=step // 2,
        )


def same(one, other):
    """Equal bit for bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return one == other


@every
@given(seed=st.integers(0, 10**6), first=st.integers(0, 9), second=st.integers(0, 9))
@settings(max_examples=15, deadline=None)
def test_a_run_stopped_and_resumed_is_the_run_itself(make, seed, first, second):
    whole, before = make(TABLE), make(TABLE)
    run = list(batches(seed, first + second))
    results = [whole.estimate(batch).baselines for batch in run]
    for batch in run[:first]:
        before.estimate(batch)
    state = before.state_dict()
    for batch in run:  # the saved state is a copy
        before.estimate(batch)
    after = make(TABLE)
    after.load_state_dict(state)
    for batch, expected in zip(run[first:], results[first:], strict=True):
        np.testing.assert_array_equal(after.estimate(batch).baselines, expected)
    assert same(after.state_dict(), whole.state_dict())


@every
def test_state_files_hold_the_state_bit_for_bit(make, tmp_path):
    estimator = make(None)
    for batch in batches(0, 12):
        estimator.estimate(batch)
    write_state(estimator.state_dict(), tmp_path / "state.npz")
    loaded = make(None)
    loaded.load_state_dict(read_state(tmp_path / "state.npz"))
    assert same(loaded.state_dict(), estimator.state_dict())
    for batch in batches(1, 3):
        np.testing.assert_array_equal(
            loaded.estimate(batch).baselines, estimator.estimate(batch).baselines
        )


@every
def test_observing_is_estimating_without_the_estimate(make):
    one, other = make(TABLE), make(TABLE)
    for batch in batches(2, 10):
        one.estimate(batch)
        assert other.observe(batch) is None
    ours, theirs = one.state_dict(), other.state_dict()
    # Clocks that count calls count estimates alone; these batches name their step.
    assert same(ours, theirs)


@every
def test_observing_leaves_rows_without_a_verdict_out(make):
    one, other = make(TABLE), make(TABLE)
    one.observe(RewardBatch(["a", "b", "d"], [1.0, np.nan, np.nan], step=1))
    other.observe(RewardBatch(["a"], [1.0], step=1))
    assert same(one.state_dict(), other.state_dict())
    one.observe(RewardBatch(["a", "b"], [np.nan, np.nan], step=1))
    assert same(one.state_dict(), other.state_dict())


@every
def test_turns_of_a_rollout_count_once(make):
    one, other = make(TABLE), make(TABLE)
    keys, rewards = ["a", "b", "b", "b"], [1.0, 0.0, 0.0, 1.0]
    estimate = one.estimate(RewardBatch(keys, rewards, rollout_ids=["0", "0", "0", "1"], step=1))
    expected = other.estimate(RewardBatch(["a", "b", "b"], [1.0, 0.0, 1.0], step=1))
    np.testing.assert_array_equal(estimate.baselines, expected.baselines[[0, 1, 1, 2]])
    assert same(one.state_dict(), other.state_dict())


@every
def test_rows_without_a_verdict_change_nothing(make):
    one, other = make(TABLE), make(TABLE)
    one.max_unverified = 0.5
    estimate = one.estimate(RewardBatch(["a", "d", "a"], [1.0, np.nan, 0.0], step=1))
    expected = other.estimate(RewardBatch(["a", "a"], [1.0, 0.0], step=1))
    np.testing.assert_array_equal(estimate.baselines[[0, 2]], expected.baselines)
    assert np.isnan(estimate.baselines[1])
    assert estimate.advantages[1] == 0.0
    assert same(one.state_dict(), other.state_dict())


@pytest.mark.parametrize("make", [Spo, Kae, KrpoTracking])
def test_stale_rows_get_a_baseline_and_are_not_taken_in(make):
    stale = {"row_versions": [3, 2, 1], "policy_version": 3, "step": 3}
    one, other = make(TABLE), make(TABLE)
    result = one.estimate(RewardBatch(["a", "b", "a"], [1.0, 1.0, 1.0], **stale))
    assert not np.isnan(result.baselines).any()
    assert result.metrics["stale_fraction"] == pytest.approx(2 / 3)
    untouched = make(TABLE).expected_spread(["b"])
    np.testing.assert_allclose(one.expected_spread(["b"]), untouched, rtol=1e-12)
    other.estimate(RewardBatch(["a", "b"], [1.0, 0.0], step=3))
    after = RewardBatch(["a", "b"], [0.0, 0.0], step=4)
    assert one.estimate(after).baselines[0] == other.estimate(after).baselines[0]
    lenient, everything = make(TABLE, max_staleness=2), make(TABLE)
    lenient.estimate(RewardBatch(["a", "b", "a"], [1.0, 1.0, 1.0], **stale))
    everything.estimate(RewardBatch(["a", "b", "a"], [1.0, 1.0, 1.0], step=3))
    assert same(lenient.state_dict(), everything.state_dict())


def test_a_batch_of_stale_rows_alone_teaches_nothing():
    for name in ("spo", "kae", "krpo-tracking"):
        estimator = estimators.create(name, TABLE)
        before = estimator.expected_spread(["a", "b"])
        batch = RewardBatch(["a", "b"], [1.0, 1.0], row_versions=[1, 1], policy_version=2)
        assert estimator.estimate(batch).metrics["stale_fraction"] == 1.0
        np.testing.assert_array_equal(estimator.expected_spread(["a", "b"]), before)
    ebpo = Ebpo()
    batch = RewardBatch(["a", "a"], [1.0, 0.0], row_versions=[1, 1], policy_version=2)
    assert ebpo.estimate(batch).baselines.tolist() == [0.5, 0.5]
    assert ebpo.rewards.count == 0
    mixed = RewardBatch(["a", "a", "b"], [1.0, 0.0, 1.0], row_versions=[2, 1, 2], policy_version=2)
    ebpo.estimate(mixed)
    assert (ebpo.rewards.count, ebpo.rewards.mean, ebpo.group_means.count) == (2, 1.0, 2)


@pytest.mark.parametrize("key", ["plain", "é", "𝛽 and é", "\ud800 alone", "", "a\0b"])
def test_prompt_keys_of_any_text_survive(key, tmp_path):
    spo = Spo()
    spo.estimate(RewardBatch([key, "other"], [1.0, 0.0]))
    write_state(spo.state_dict(), tmp_path / "state.npz")
    loaded = Spo()
    loaded.load_state_dict(read_state(tmp_path / "state.npz"))
    np.testing.assert_array_equal(loaded.states.known([key, "other"]), [0, 1])
    assert same(loaded.state_dict(), spo.state_dict())


@every
@pytest.mark.parametrize("damage", ["missing", "wrong"])
def test_damaged_states_are_refused_and_change_nothing(make, damage):
    estimator, later = make(TABLE), make(TABLE)
    for number, batch in enumerate(batches(3, 9)):
        later.estimate(batch)
        if number < 4:
            estimator.estimate(batch)
    good, state = estimator.state_dict(), later.state_dict()
    for name in state:
        bad = dict(state)
        if damage == "wrong":
            bad[name] = "?"
        else:
            del bad[name]
        with pytest.raises(StateError):
            estimator.load_state_dict(bad)
        assert same(estimator.state_dict(), good), name


IMPOSSIBLE = [
    ("spo", ("prompts", "columns", "successes"), -1.0),
    ("spo", ("prompts", "columns", "failures"), np.nan),
    ("spo-plus-plus", ("prompts", "columns", "failures"), -1.0),
    ("spo-plus-plus", ("prompts", "columns", "time"), np.inf),
    ("kae", ("prompts", "columns", "visits"), -1.0),
    ("kae", ("history", "total"), np.nan),
    ("krpo-tracking", ("prompts", "columns", "variance"), -1e-9),
]


@pytest.mark.parametrize(("name", "path", "number"), IMPOSSIBLE)
def test_impossible_numbers_of_a_prompt_are_refused(name, path, number):
    estimator, later = estimators.create(name, TABLE), estimators.create(name, TABLE)
    for batch in batches(4, 4):
        later.estimate(batch)
    good, bad = estimator.state_dict(), later.state_dict()
    *folders, last = path
    place = bad
    for folder in folders:
        place = place[folder]
    place[last].flat[1] = number
    with pytest.raises(StateError, match="resume from an earlier checkpoint") as caught:
        estimator.load_state_dict(bad)
    assert "\n" not in str(caught.value)
    assert same(estimator.state_dict(), good)


def test_a_prompt_with_neither_successes_nor_failures_is_refused():
    estimator = Spo(TABLE)
    estimator.estimate(RewardBatch(["a", "b"], [1.0, 0.0]))
    state = estimator.state_dict()
    for column in state["prompts"]["columns"].values():
        column[1] = 0.0
    with pytest.raises(StateError, match="prompt 1 are impossible"):
        Spo(TABLE).load_state_dict(state)


@pytest.mark.parametrize("name", ["now", "first"])
@pytest.mark.parametrize("value", [1.5, True, "3", 10**400])
def test_a_clock_that_shows_no_step_is_refused(name, value):
    estimator, later = SpoPlusPlus(), SpoPlusPlus()
    later.estimate(RewardBatch(["a"], [1.0], step=3))
    good = estimator.state_dict()
    with pytest.raises(StateError, match="is no step") as caught:
        estimator.load_state_dict({**later.state_dict(), name: value})
    assert len(str(caught.value)) < 200
    assert same(estimator.state_dict(), good)


@every
def test_steps_may_repeat_go_back_and_be_anything_that_counts(make, tmp_path):
    estimator, resumed = make(TABLE), make(TABLE)
    rng = np.random.default_rng(5)
    steps = [np.int64(7), np.uint8(7), 3, -4, 2**53 - 1, 0, -(2**53 - 1), 1]
    for step in steps:
        keys = rng.choice(["a", "d", "é"], 5).tolist()
        batch = RewardBatch(keys, rng.integers(0, 2, 5).astype(float), step=step)
        b = estimator.estimate(batch).baselines
        assert ((b >= 0.0) & (b <= 1.0)).all()
        write_state(estimator.state_dict(), tmp_path / "state")
        resumed.load_state_dict(read_state(tmp_path / "state"))
        assert same(resumed.state_dict(), estimator.state_dict())


def test_another_window_or_clock_is_refused():
    state = Kae(window=8).state_dict()
    with pytest.raises(StateError, match="same window"):
        Kae(window=10).load_state_dict(state)
    with pytest.raises(StateError, match="same clock"):
        Kae(window=8, clock="steps").load_state_dict(state)
    with pytest.raises(StateError, match="same clock"):
        SpoPlusPlus().load_state_dict(SpoPlusPlus(clock="visits").state_dict())


def fastest(call, repeats, clock=time.perf_counter):
    spent = []
    for _ in range(repeats):
        start = clock()
        call()
        spent.append(clock() - start)
    return min(spent)


@pytest.mark.parametrize("name", ["spo", "spo-plus-plus", "kae", "krpo-tracking"])
def test_an_estimate_costs_a_few_passes_over_the_batch(name):
    keys = [f"prompt {i}" for i in range(512)]
    rng = np.random.default_rng(0)
    table = PassRates.from_counts(keys, rng.integers(0, 9, 512), 8)
    estimator = estimators.create(name, table)
    batch = RewardBatch(keys, rng.integers(0, 2, 512).astype(float))
    # Against dictionary look-ups of the same size, so that a busy machine slows both.
    number = {key: i for i, key in enumerate(keys)}
    look_up = fastest(lambda: np.array([number[key] for key in keys]), 50)
    assert fastest(lambda: estimator.estimate(batch), 50) < 30 * look_up


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spo", "spo-plus-plus", "kae", "krpo-tracking", "basis-online"])
def test_a_million_prompts_are_saved_and_loaded_within_a_second(name, tmp_path):
    rng = np.random.default_rng(0)
    estimator = estimators.create(name)
    keys = [f"{i:016x}" for i in range(1_000_000)]
    for start in range(0, len(keys), 100_000):
        part = keys[start : start + 100_000]
        estimator.estimate(RewardBatch(part, rng.integers(0, 2, len(part)).astype(float)))
    path = tmp_path / "state.npz"
    loaded = estimators.create(name)
    # Processor time, so that what else the machine does counts less.
    clock = time.process_time
    assert fastest(lambda: write_state(estimator.state_dict(), path), 3, clock) < 1.0
    assert fastest(lambda: loaded.load_state_dict(read_state(path)), 3, clock) < 1.0
    assert same(loaded.state_dict(), estimator.state_dict())
