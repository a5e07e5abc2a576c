from __future__ import annotations

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from basis_rl import Basis, PassRates, RewardBatch, StateError
from basis_rl.shift import BETWEEN, DRIFT, RunningVariance, Scores, ShiftState, ShiftStep
from basis_rl.values import logit_of_counts, sigmoid

rows_of_counts = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 1)), min_size=1, max_size=12)


def table_of(counts, n=8, sources=None):
    return PassRates.from_counts([str(i) for i in range(len(counts))], counts, n, sources=sources)


def keys_of(counts):
    return [str(i) for i in range(len(counts))]


@settings(deadline=None)
@given(rows=rows_of_counts)
def test_robust_equals_the_double_loop_over_two_steps(rows):
    counts, rewards = (np.array(x) for x in zip(*rows, strict=True))
    basis = Basis(table_of(counts))
    logits = logit_of_counts(counts + 0.5, 8 - counts + 0.5)
    for _ in range(2):
        before = basis._form.tracker.state
        shifts = reference.leave_one_out_shift(logits, rewards, before.common, before.drift.value)
        result = basis.estimate(RewardBatch(keys_of(counts), rewards))
        np.testing.assert_allclose(result.baselines, sigmoid(logits + shifts), rtol=1e-12)


def test_robust_by_hand():
    # Two prompts with smoothed pass rate 1/2; drift variance 0.05 makes lambda 20.
    result = Basis(table_of([4, 4])).estimate(RewardBatch(["0", "1"], [1.0, 0.0]))
    # Without row 0 the gradient is -1/2 and the curvature 1/4: tau = -0.5 / 20.25.
    expected = sigmoid(np.array([-0.5 / 20.25, 0.5 / 20.25]))
    np.testing.assert_allclose(result.baselines, expected, rtol=1e-14)
    assert result.metrics["tau"] == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("variant", ["shift", "unb", "vop", "rvg", "initial"])
@pytest.mark.parametrize("with_sources", [False, True])
@pytest.mark.parametrize("many_n", [False, True])
@settings(max_examples=25, deadline=None)
@given(rows=rows_of_counts, data=st.data())
def test_own_reward_never_moves_own_baseline(variant, with_sources, many_n, rows, data):
    counts, rewards = (np.array(x) for x in zip(*rows, strict=True))
    flipped = data.draw(st.integers(0, len(rows) - 1))
    sources = [f"s{i % 3}" for i in range(len(rows))] if with_sources else None
    with pytest.MonkeyPatch.context() as patch:
        if many_n:
            patch.setattr("basis_rl.levels.MOST_EXACT_LEVELS", 1)
        pair = [Basis(table_of(counts), variant=variant) for _ in range(2)]
    warm = RewardBatch(keys_of(counts), 1 - rewards, sources=sources)
    for basis in pair:
        basis.estimate(warm)
    other = rewards.copy()
    other[flipped] = 1 - other[flipped]
    before, after = (
        basis.estimate(RewardBatch(keys_of(counts), r, sources=sources)).baselines
        for basis, r in zip(pair, (rewards, other), strict=True)
    )
    assert after[flipped] == pytest.approx(before[flipped], rel=1e-10, abs=1e-12)
    if variant in ("shift", "initial") and len(rows) > 1:
        assert (np.delete(after, flipped) != np.delete(before, flipped)).any()


@pytest.mark.parametrize("variant", ["unb", "vop", "rvg"])
@settings(max_examples=40, deadline=None)
@given(rows=rows_of_counts)
def test_under_paper_at_fixed_beta_own_reward_never_moves_own_baseline(variant, rows):
    counts, rewards = (np.array(x) for x in zip(*rows, strict=True))
    basis = Basis(table_of(counts), preset="paper", variant=variant, betas=[0.7])
    base = basis.estimate(RewardBatch(keys_of(counts), rewards)).baselines
    for i in range(len(rows)):
        other = rewards.copy()
        other[i] = 1 - other[i]
        flipped = basis.estimate(RewardBatch(keys_of(counts), other)).baselines
        assert flipped[i] == pytest.approx(base[i], rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("variant", ["unb", "vop", "rvg"])
@settings(max_examples=40, deadline=None)
@given(rows=rows_of_counts.filter(lambda rows: len(rows) > 1))
def test_refinement_at_leave_one_out_shifts_equals_the_double_loop(variant, rows):
    counts, rewards = (np.array(x) for x in zip(*rows, strict=True))
    basis = Basis(table_of(counts), variant=variant)
    logits = logit_of_counts(counts + 0.5, 8 - counts + 0.5)
    shifts = reference.leave_one_out_shift(logits, rewards, 0.0, DRIFT.value)
    expected = []
    for i, shift in enumerate(shifts):
        V = sigmoid(logits + shift)
        expected.append(reference.refined(variant, V, rewards, [True] * len(V))[i])
    actual = basis.estimate(RewardBatch(keys_of(counts), rewards)).baselines
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(rows=rows_of_counts, data=st.data())
@pytest.mark.parametrize("variant", ["shift", "unb", "rvg"])
def test_sources_equal_leaving_the_row_out_of_the_batch(variant, rows, data):
    """The definition: row i's baseline with sources is what the batch without row i predicts."""
    counts, rewards = (np.array(x) for x in zip(*rows, strict=True))
    sources = data.draw(st.lists(st.sampled_from("xyz"), min_size=len(rows), max_size=len(rows)))
    start = {"common": 0.3, "by_source": {"x": 0.1, "y": 0.5, "z": 0.2}}
    start |= {"drift": [0.0, 0.0], "between": [0.0, 0.0]}

    def fresh():
        basis = Basis(table_of(counts), variant=variant)
        basis.load_state_dict(
            {"estimator": "basis", "calibration": "leave-one-out", "continuous": False} | start
        )
        return basis

    actual = fresh().estimate(RewardBatch(keys_of(counts), rewards, sources=sources)).baselines
    logits = logit_of_counts(counts + 0.5, 8 - counts + 0.5)
    for i in range(len(rows)):
        rest = [j for j in range(len(rows)) if j != i]
        if not rest or sources[i] not in {sources[j] for j in rest}:
            continue
        without = fresh()
        without.estimate(
            RewardBatch([str(j) for j in rest], rewards[rest], sources=[sources[j] for j in rest])
        )
        shifts = without._form.tracker.state.by_source
        V = sigmoid(logits + np.array([shifts[s] for s in sources]))
        expected = (
            V[i]
            if variant == "shift"
            else reference.refined(variant, V, rewards, [True] * len(V))[i]
        )
        assert actual[i] == pytest.approx(expected, rel=1e-9)


def test_shift_follows_a_policy_that_gets_worse_and_one_that_gets_better():
    rng = np.random.default_rng(0)
    counts = rng.integers(8, 57, 400)
    for true_shift in (-2.0, 1.5):
        basis = Basis(table_of(counts, 64))
        for _ in range(40):
            rows = rng.choice(400, 128, replace=False)
            V = sigmoid(logit_of_counts(counts[rows], 64 - counts[rows]) + true_shift)
            rewards = (rng.random(128) < V).astype(float)
            metrics = basis.estimate(RewardBatch([str(i) for i in rows], rewards)).metrics
        assert metrics["tau"] == pytest.approx(true_shift, abs=0.3)


def test_sources_that_drift_apart_are_followed_and_the_common_shift_is_not_enough():
    rng = np.random.default_rng(1)
    counts = rng.integers(8, 57, 600)
    sources = np.array(["add", "multiply", "count"])[np.arange(600) % 3]
    true_shift = {"add": 2.0, "multiply": 0.0, "count": -1.0}
    by_source, common = Basis(table_of(counts, 64)), Basis(table_of(counts, 64))
    errors = {True: [], False: []}
    for step in range(40):
        rows = rng.choice(600, 96, replace=False)
        logits = logit_of_counts(counts[rows], 64 - counts[rows])
        V = sigmoid(logits + np.array([true_shift[s] for s in sources[rows]]))
        rewards = (rng.random(96) < V).astype(float)
        keys = [str(i) for i in rows]
        for told, basis in ((True, by_source), (False, common)):
            batch = RewardBatch(keys, rewards, sources=sources[rows] if told else None)
            if step >= 10:
                errors[told].append(((basis.estimate(batch).baselines - V) ** 2).mean())
            else:
                basis.estimate(batch)
    assert np.mean(errors[True]) < 0.4 * np.mean(errors[False])
    state = by_source._form.tracker.state
    for name, shift in true_shift.items():
        assert state.by_source[name] == pytest.approx(shift, abs=0.5)


def test_sources_without_differences_cost_little():
    rng = np.random.default_rng(2)
    counts = rng.integers(8, 57, 600)
    sources = np.array(list("abcdef"))[np.arange(600) % 6]
    by_source, common = Basis(table_of(counts, 64)), Basis(table_of(counts, 64))
    errors = {True: [], False: []}
    for _ in range(80):
        rows = rng.choice(600, 96, replace=False)
        V = sigmoid(logit_of_counts(counts[rows], 64 - counts[rows]) + 0.5)
        rewards = (rng.random(96) < V).astype(float)
        keys = [str(i) for i in rows]
        for told, basis in ((True, by_source), (False, common)):
            batch = RewardBatch(keys, rewards, sources=sources[rows] if told else None)
            errors[told].append(((basis.estimate(batch).baselines - V) ** 2).mean())
    assert np.mean(errors[True][40:]) < np.mean(errors[False][40:]) + 0.002
    assert by_source._form.tracker.state.between.value < 0.02


def test_a_new_source_starts_at_the_common_shift_and_an_absent_one_moves_along():
    basis = Basis(table_of([4] * 40, 8))
    keys = [str(i) for i in range(40)]
    for _ in range(20):
        basis.estimate(RewardBatch(keys, [1.0] * 35 + [0.0] * 5, sources=["a"] * 20 + ["b"] * 20))
    state = basis._form.tracker.state
    gap = state.by_source["b"] - state.common
    assert abs(gap) > 0.02
    fresh = basis._form.tracker.begin(["new"], 1)
    assert fresh.start[0] == state.common
    basis.estimate(RewardBatch(keys[:20], [0.0] * 20, sources=["a"] * 20))
    after = basis._form.tracker.state
    assert after.common < state.common
    assert after.by_source["b"] - after.common == pytest.approx(gap, abs=1e-12)


def test_steps_are_bounded_where_the_likelihood_is_flat():
    n = 10_000
    basis = Basis(table_of([1] * 50, n))
    basis.load_state_dict(
        {
            "estimator": "basis",
            "calibration": "leave-one-out",
            "continuous": False,
            "common": 0.0,
            "by_source": {},
            "drift": [4e6, 1e6],
            "between": [0.0, 0.0],
        }
    )
    metrics = basis.estimate(RewardBatch(keys_of([1] * 50), [1.0] * 50)).metrics
    assert metrics["tau"] == 1.0


def test_running_variance_is_prior_then_data_within_its_range():
    variance = RunningVariance(default=0.5, weight=2.0, least=0.1, most=1.0, memory=0.95)
    assert variance.value == 0.5
    assert variance.plus(8.0, 10.0).value == pytest.approx((1.0 + 8.0) / 12.0)
    assert variance.plus(-100.0, 10.0).value == 0.1
    assert variance.plus(100.0, 10.0).value == 1.0
    twice = variance.plus(1.0, 1.0).plus(1.0, 1.0)
    assert twice.excess == pytest.approx(1.95)


def test_drift_variance_grows_where_the_policy_moves_fast():
    rng = np.random.default_rng(3)
    counts = rng.integers(8, 57, 600)
    learned = {}
    for speed in (0.0, 0.3):
        basis = Basis(table_of(counts, 64))
        for step in range(30):
            rows = rng.choice(600, 256, replace=False)
            tilt = speed * step - 3 * speed
            V = sigmoid(logit_of_counts(counts[rows], 64 - counts[rows]) + tilt)
            rewards = (rng.random(256) < V).astype(float)
            basis.estimate(RewardBatch([str(i) for i in rows], rewards))
        learned[speed] = basis._form.tracker.state.drift.value
    assert learned[0.0] < 0.05 < learned[0.3]


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_resumed_estimates_equal_unbroken_ones_to_the_bit(seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 9, 20)
    batches = [
        RewardBatch(
            keys_of(counts),
            rng.integers(0, 2, 20),
            sources=rng.choice(["a", "b", "c"], 20) if rng.random() < 0.5 else None,
        )
        for _ in range(4)
    ]
    whole, first = Basis(table_of(counts)), Basis(table_of(counts))
    expected = [whole.estimate(b).baselines for b in batches]
    for b in batches[:2]:
        first.estimate(b)
    second = Basis(table_of(counts))
    second.load_state_dict(first.state_dict())
    for b, baselines in zip(batches[2:], expected[2:], strict=True):
        np.testing.assert_array_equal(second.estimate(b).baselines, baselines)


def test_state_is_json_and_is_checked():
    import json

    basis = Basis(table_of([4, 4]))
    basis.estimate(RewardBatch(["0", "1"], [1, 0], sources=["a", "b"]))
    state = json.loads(json.dumps(basis.state_dict()))
    other = Basis(table_of([4, 4]))
    other.load_state_dict(state)
    assert other.state_dict() == basis.state_dict()
    for change in (
        {"estimator": "zero"},
        {"calibration": "whole-batch"},
        {"common": float("nan")},
        {"common": "x"},
        {"drift": [1.0]},
        {"by_source": {"a": float("inf")}},
    ):
        with pytest.raises(StateError):
            other.load_state_dict(state | change)
    with pytest.raises(StateError, match=r"calibration='whole-batch'.*same options"):
        other.load_state_dict(state | {"calibration": "whole-batch"})
    with pytest.raises(StateError, match=r"damaged.*common"):
        other.load_state_dict({k: v for k, v in state.items() if k != "common"})
    assert other.state_dict() == basis.state_dict()


def test_state_round_trip():
    state = ShiftState(0.5, {"a": 1.0}, DRIFT.plus(1.0, 2.0), BETWEEN.plus(0.5, 1.0))
    assert ShiftState.from_dict(state.to_dict()) == state


@settings(max_examples=60, deadline=None)
@given(rows=rows_of_counts.filter(lambda rows: len(rows) > 1), data=st.data())
def test_sources_take_the_posteriors_mode_without_the_row(rows, data):
    counts, rewards = (np.array(x) for x in zip(*rows, strict=True))
    sources = data.draw(st.lists(st.sampled_from("xyz"), min_size=len(rows), max_size=len(rows)))
    start = {"x": 0.1, "y": 0.5, "z": -0.4}
    basis = Basis(table_of(counts))
    basis._form.tracker.state = ShiftState(0.0, start)
    actual = basis.estimate(RewardBatch(keys_of(counts), rewards, sources=sources)).baselines
    logits = logit_of_counts(counts + 0.5, 8 - counts + 0.5)
    V = sigmoid(logits + np.array([start[s] for s in sources]))
    for i in range(len(rows)):
        rest = [j for j in range(len(rows)) if j != i]
        # A source that has no other row takes the common step: its own is 0 without data.
        g = [*(rewards - V)[rest], 0.0]
        h = [*(V * (1 - V))[rest], 0.0]
        names = [*(sources[j] for j in rest), sources[i]]
        step = reference.source_steps(g, h, names, DRIFT.value, BETWEEN.value)[sources[i]]
        expected = sigmoid(logits[i] + start[sources[i]] + np.clip(step, -1, 1))
        assert actual[i] == pytest.approx(float(expected), rel=1e-9)


def simulated_scores(rng, step_of_source, H):
    """Scores of one row a source with curvature H and gradient of that variance."""
    G = H * step_of_source + rng.normal(size=len(H)) * np.sqrt(H)
    count, number = np.ones(len(H)), np.arange(len(H))
    return Scores(G, H, count, number, np.zeros(len(H)))


@pytest.mark.parametrize("true", [0.01, 0.3])
def test_surprise_and_disagreement_are_unbiased_for_their_variances(true):
    rng = np.random.default_rng(0)
    H = np.array([0.5, 2.0, 4.0, 8.0])
    step = ShiftStep(drift=true, between=true)
    drift, between = np.zeros(2), np.zeros(2)
    for _ in range(40_000):
        own = rng.normal(scale=true**0.5, size=4)
        common = rng.normal(scale=true**0.5)
        scores = simulated_scores(rng, common + own, H)
        drift += step.surprise(scores)
        between += step.disagreement(scores)
    assert drift[0] / drift[1] == pytest.approx(true, rel=0.15, abs=0.01)
    assert between[0] / between[1] == pytest.approx(true, rel=0.15, abs=0.01)


def test_one_batch_counts_by_how_much_it_can_say():
    rng = np.random.default_rng(1)
    step = ShiftStep(drift=0.5, between=0.0)
    informations = [
        step.surprise(simulated_scores(rng, 0.0, np.array([H])))[1] for H in (1.0, 100.0, 10_000.0)
    ]
    # H^2 / (1 + drift H)^2 grows to 1 / drift^2, not for ever.
    np.testing.assert_allclose(informations, [1 / 2.25, 1e4 / 51**2, 1e8 / 5001**2])


def test_many_sources_with_few_rows_each_are_still_told_apart():
    rng = np.random.default_rng(5)
    counts = rng.integers(8, 57, 800)
    names = np.array([f"s{i % 20}" for i in range(800)])
    true_shift = {f"s{i}": rng.normal() for i in range(20)}
    by_source, common = Basis(table_of(counts, 64)), Basis(table_of(counts, 64))
    errors = {True: [], False: []}
    for step in range(100):
        rows = rng.choice(800, 32, replace=False)
        logits = logit_of_counts(counts[rows], 64 - counts[rows])
        V = sigmoid(logits + np.array([true_shift[s] for s in names[rows]]))
        rewards = (rng.random(32) < V).astype(float)
        for told, basis in ((True, by_source), (False, common)):
            batch = RewardBatch(
                [str(i) for i in rows], rewards, sources=names[rows] if told else None
            )
            baselines = basis.estimate(batch).baselines
            if step >= 30:
                errors[told].append(((baselines - V) ** 2).mean())
    assert np.mean(errors[True]) < 0.6 * np.mean(errors[False])


@pytest.mark.parametrize("sources", [["a"] * 256, ["a", "b", "c", "d"] * 64])
def test_common_shift_is_that_of_the_sources(sources):
    """It starts new sources and batches without sources, and is the metric tau."""
    rng = np.random.default_rng(6)
    counts = rng.integers(8, 57, 256)
    basis = Basis(table_of(counts, 64))
    V = sigmoid(logit_of_counts(counts, 64 - counts) + 2.0)
    for _ in range(40):
        rewards = (rng.random(256) < V).astype(float)
        metrics = basis.estimate(RewardBatch(keys_of(counts), rewards, sources=sources)).metrics
    assert metrics["tau"] == pytest.approx(2.0, abs=0.25)
    fresh = basis._form.tracker.begin(["new"], 1)
    assert fresh.start[0] == metrics["tau"]


def test_a_pass_rate_of_0_or_1_says_nothing_about_the_shift():
    counts, rewards = [0] * 8 + [4] * 8, [1] * 8 + [0, 1] * 4
    with_stuck = Basis(table_of(counts), smoothing="none")
    without = Basis(table_of(counts), smoothing="none")
    a = with_stuck.estimate(RewardBatch(keys_of(counts), rewards))
    b = without.estimate(RewardBatch([str(i) for i in range(8, 16)], rewards[8:]))
    assert a.metrics["tau"] == b.metrics["tau"]
    np.testing.assert_array_equal(a.baselines[8:], b.baselines)
    np.testing.assert_array_equal(a.baselines[:8], 0.0)


def test_many_pass_rates_are_no_different(monkeypatch):
    counts, rewards = [0, 1, 3, 5, 7, 8], [0, 1, 0, 1, 1, 1]
    options = [{"variant": v} for v in ("shift", "unb", "vop", "rvg")]
    exact = [Basis(table_of(counts), **o) for o in options]
    monkeypatch.setattr("basis_rl.levels.MOST_EXACT_LEVELS", 1)
    by_row = [Basis(table_of(counts), **o) for o in options]
    batch = RewardBatch(keys_of(counts), rewards, sources=list("xyxyxy"))
    for a, b in zip(exact, by_row, strict=True):
        assert a._form.levels.exact
        assert not b._form.levels.exact
        for _ in range(3):
            np.testing.assert_allclose(
                a.estimate(batch).baselines, b.estimate(batch).baselines, rtol=1e-12
            )


def test_metrics_of_the_shift():
    counts, rewards = np.array([1, 4, 6, 7]), np.array([0, 1, 0, 1])
    basis = Basis(table_of(counts))
    result = basis.estimate(RewardBatch(keys_of(counts), rewards))
    loss = np.mean((rewards - result.baselines) ** 2)
    assert result.metrics["calibration_loss"] == pytest.approx(loss, rel=1e-12)
    assert result.metrics["tau"] == basis._form.tracker.state.common


def test_refinements_active_set_is_that_of_the_shift_before_the_batch():
    counts, rewards = [1, 4, 7], [1, 1, 1]
    # At the start |logit| of 1/8 and 7/8 is 1.7 > logit(0.8) = 1.39; after a step it would not be.
    basis = Basis(table_of(counts), variant="unb", smoothing="none", epsilon=0.2)
    result = basis.estimate(RewardBatch(keys_of(counts), rewards))
    assert result.baselines[0] == result.baselines[2] == 0.0
    assert result.metrics["active_fraction"] == pytest.approx(1 / 3)
    shifted = Basis(table_of(counts), variant="unb", smoothing="none", epsilon=0.2)
    shifted._form.tracker.state = ShiftState(common=0.6)
    result = shifted.estimate(RewardBatch(keys_of(counts), rewards))
    assert result.baselines[0] > 0.0
    assert result.baselines[2] == 0.0


@pytest.mark.parametrize(
    "change",
    [
        {"by_source": None},
        {"by_source": ["a"]},
        {"drift": [0.0, -100.0]},
        {"drift": [float("inf"), 0.0]},
        {"drift": "12"},
        {"drift": None},
        {"between": [0.0, float("inf")]},
        {"common": 10**400},
        {"common": True},
        {"common": 1e308},
    ],
)
def test_damaged_states_are_refused_and_leave_the_estimator_alone(change):
    basis = Basis(table_of([4, 4]))
    basis.estimate(RewardBatch(["0", "1"], [1, 0], sources=["a", "b"]))
    before = basis.state_dict()
    with pytest.raises(StateError):
        basis.load_state_dict(before | change)
    assert basis.state_dict() == before
    for nonsense in (None, [], "state"):
        with pytest.raises(StateError):
            basis.load_state_dict(nonsense)
