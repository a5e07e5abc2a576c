from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basis_rl import Basis, ConfigError, PassRates, RewardBatch, StateError

REWARDS = [[0.1, 0.5, 0.9], [1.0, 2.0], [-1.0, 0.0, 0.5, 3.0], [0.7]]


def table(rewards=REWARDS, **options):
    return PassRates.from_rewards([str(i) for i in range(len(rewards))], rewards, **options)


def moments(rewards, beta):
    """Appendix E as printed."""
    q = [math.exp(r / beta) for r in rewards]
    mean = sum(w * r for w, r in zip(q, rewards, strict=True)) / sum(q)
    second = sum(w * r * r for w, r in zip(q, rewards, strict=True)) / sum(q)
    return mean, second - mean**2


def equation_7(rewards, observed, betas, floor=1e-6):
    """Eq. 7 and Eq. 5 with loops; among equal losses the largest beta."""
    best = None
    for beta in betas:
        pairs = [moments(row, beta) for row in rewards]
        V, s2 = [v for v, _ in pairs], [max(s, floor) for _, s in pairs]
        b = []
        for i in range(len(V)):
            others = [j for j in range(len(V)) if j != i]
            mass = sum(V[k] ** 2 / s2[k] for k in others)
            top = sum(V[i] * V[j] / s2[j] * observed[j] for j in others)
            b.append(top / mass if mass > 0 else 0.0)
        loss = sum((r - x) ** 2 for r, x in zip(observed, b, strict=True))
        if best is None or loss <= best[0]:
            best = (loss, beta, b)
    return best[2], best[1]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.floats(-2, 2).map(lambda x: round(x, 2)), min_size=1, max_size=4),
            st.floats(-2, 2),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_paper_equals_equation_7_with_loops(rows):
    stored, observed = zip(*rows, strict=True)
    betas = [0.3, 1.0, 5.0]
    basis = Basis(table(stored), preset="paper", betas=betas, variance_floor=1e-2)
    result = basis.estimate(RewardBatch([str(i) for i in range(len(rows))], observed))
    expected, _ = equation_7(stored, observed, [result.metrics["beta"]], floor=1e-2)
    np.testing.assert_allclose(result.baselines, expected, rtol=1e-7, atol=1e-7)
    best, _ = equation_7(stored, observed, betas, floor=1e-2)
    assert np.sum((np.array(observed) - result.baselines) ** 2) <= 1e-6 + (1 + 1e-6) * np.sum(
        (np.array(observed) - np.array(best)) ** 2
    )


def test_zero_denominator_is_the_zero_baseline():
    result = Basis(table([[0.0, 0.0], [0.5, 0.6]]), preset="paper").estimate(
        RewardBatch(["0", "1"], [0.3, 0.4])
    )
    assert result.baselines[1] == 0.0
    alone = Basis(table(), preset="paper").estimate(RewardBatch(["0"], [0.3]))
    np.testing.assert_array_equal(alone.baselines, 0.0)


def test_stored_0_and_1_rewards_agree_with_counts():
    stored = [[1] * k + [0] * (8 - k) for k in (1, 3, 5, 7)]
    counts = PassRates.from_counts(list("0123"), [1, 3, 5, 7], 8)
    batch = RewardBatch(list("0123"), [0, 1, 0, 1])
    for options in (
        {"preset": "paper"},
        {"preset": "paper", "variant": "vop"},
        {"preset": "paper", "variant": "rvg"},
        {"preset": "paper", "variant": "initial"},
    ):
        # No beta so small that V(1 - V) meets the floor of the variance.
        options = options | {"betas": [0.3, 0.5, 1.0, 3.0]}
        real = Basis(table(stored), **options).estimate(batch)
        binary = Basis(counts, **options).estimate(batch)
        np.testing.assert_allclose(real.baselines, binary.baselines, rtol=1e-9)
    real, binary = (Basis(t, smoothing="none")._form.tracker for t in (table(stored), counts))
    assert real.state == binary.state


def test_robust_shift_is_one_newton_step_on_the_tilted_mean():
    stored, observed = [[0.0, 1.0, 2.0], [1.0, 3.0]], [2.0, 1.0]
    basis = Basis(table(stored), smoothing="none")
    unit = np.std([0.0, 1.0, 2.0, 1.0, 3.0])
    # Row 0 sees row 1 alone: gradient (1 - 2) / unit, curvature 1 / unit^2, lambda 20.
    tau = (-1.0 / unit) / (1.0 / unit**2 + 20.0) / unit
    expected, _ = moments(stored[0], 1.0 / tau)
    baselines = basis.estimate(RewardBatch(["0", "1"], observed)).baselines
    assert baselines[0] == pytest.approx(expected, rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_own_reward_never_moves_own_baseline(data):
    size = data.draw(st.integers(1, 8))
    keys = data.draw(st.lists(st.sampled_from("0123"), min_size=size, max_size=size))
    rewards = data.draw(st.lists(st.floats(-3, 3), min_size=size, max_size=size))
    sources = data.draw(st.none() | st.lists(st.sampled_from("xy"), min_size=size, max_size=size))
    row = data.draw(st.integers(0, size - 1))
    other = list(rewards)
    other[row] += 1.5
    before, after = (
        Basis(table()).estimate(RewardBatch(keys, r, sources=sources)).baselines
        for r in (rewards, other)
    )
    assert after[row] == pytest.approx(before[row], rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_robust_does_not_depend_on_the_unit_of_the_reward(scale):
    rng = np.random.default_rng(0)
    stored = [list(rng.normal(size=6)) for _ in range(20)]
    observed = rng.normal(0.5, 1.0, 20)
    keys = [str(i) for i in range(20)]
    plain, scaled = (Basis(table([[r * s for r in row] for row in stored])) for s in (1.0, scale))
    for _ in range(3):
        a = plain.estimate(RewardBatch(keys, observed))
        b = scaled.estimate(RewardBatch(keys, observed * scale))
    np.testing.assert_allclose(b.baselines, a.baselines * scale, rtol=1e-9)
    assert b.metrics["tau"] == pytest.approx(a.metrics["tau"] / scale)


def test_robust_follows_a_policy_that_improves_and_beats_the_batch_mean():
    rng = np.random.default_rng(1)
    centers = rng.normal(size=300)
    stored = [list(c + rng.normal(size=16)) for c in centers]
    basis = Basis(table(stored))
    errors, mean_errors = [], []
    for step in range(60):
        rows = rng.choice(300, 64, replace=False)
        true = centers[rows] + min(step / 40, 1.0)  # tilting a unit normal by tau moves it by tau
        observed = true + rng.normal(size=64)
        result = basis.estimate(RewardBatch([str(i) for i in rows], observed))
        if step > 20:
            errors.append(((result.baselines - true) ** 2).mean())
            mean_errors.append(((observed.mean() - true) ** 2).mean())
    assert np.mean(errors) < 0.35 * np.mean(mean_errors)
    assert result.metrics["tau"] > 0.3


def test_smoothing_lends_a_constant_prompt_the_populations_spread():
    stored = [[0.0] * 4] + [[0.0, 1.0, 0.0, 1.0]] * 9
    keys = [str(i) for i in range(10)]
    stuck, free = (Basis(table(stored), smoothing=s) for s in ("none", "jeffreys"))
    for _ in range(30):
        a = stuck.estimate(RewardBatch(keys, [1.0] * 10)).baselines
        b = free.estimate(RewardBatch(keys, [1.0] * 10)).baselines
    assert a[0] == 0.0
    assert b[0] > 0.2
    fitted = Basis(table(stored), smoothing="empirical-bayes")
    assert fitted._form.table.pseudo_count[0] > 0


def test_unknown_prompts_start_from_their_sources_rewards():
    rates = table([[0.0, 0.2], [5.0, 5.2]], sources=["low", "high"])
    basis = Basis(rates, missing="prior", preset="paper", variant="initial", betas=[np.inf])
    result = basis.estimate(
        RewardBatch(["x", "y", "z"], [0.0, 0.0, 0.0], sources=["low", "high", "new"])
    )
    np.testing.assert_allclose(result.baselines, [0.1, 5.1, 2.6], atol=0.02)
    assert result.metrics["coverage"] == 0.0


def test_weights_reproduce_the_baselines():
    for variant in ("unb", "vop", "rvg"):
        basis = Basis(table(), preset="paper", variant=variant, betas=[0.5, 1.0])
        batch = RewardBatch(["0", "1", "2", "2"], [0.3, 1.2, 0.1, 2.0])
        W = basis.weights(batch)
        np.testing.assert_allclose(W @ batch.rewards, basis.estimate(batch).baselines, rtol=1e-12)
        assert (np.diagonal(W) == 0).all()


def test_refinement_at_leave_one_out_shifts_is_refused():
    with pytest.raises(ConfigError, match="needs 0/1 rewards"):
        Basis(table(), variant="unb")


def test_state_round_trip():
    first = Basis(table())
    batch = RewardBatch(["0", "1", "2"], [0.3, 1.2, 0.1])
    first.estimate(batch)
    second = Basis(table())
    second.load_state_dict(first.state_dict())
    np.testing.assert_array_equal(second.estimate(batch).baselines, first.estimate(batch).baselines)


@pytest.mark.parametrize("floor", [1e-2, 0.5])
def test_variance_floor_is_the_one_given(floor):
    stored, observed = [[0.5, 0.5], [0.1, 0.9], [1.0, 1.2]], [0.4, 0.8, 1.1]
    basis = Basis(table(stored), preset="paper", betas=[1.0], variance_floor=floor)
    expected, _ = equation_7(stored, observed, [1.0], floor=floor)
    result = basis.estimate(RewardBatch(list("012"), observed))
    np.testing.assert_allclose(result.baselines, expected, rtol=1e-12)


def test_ratio_weighting_leaves_out_values_near_zero():
    stored = [[-0.1, 0.1], [0.5, 0.7], [1.0, 1.0]]
    basis = Basis(table(stored), preset="paper", variant="rvg", betas=[np.inf], epsilon=0.01)
    result = basis.estimate(RewardBatch(list("012"), [9.0, 0.3, 0.5]))
    np.testing.assert_allclose(result.baselines, [0.0, 0.6 / 1.0 * 0.5, 1.0 / 0.6 * 0.3])
    assert result.metrics["active_fraction"] == pytest.approx(2 / 3)


def test_jeffreys_is_one_pseudo_observation_of_the_prompts_own_source():
    stored = [[0.0, 0.0, 0.0], [0.0, 0.0], [8.0, 8.0], [8.0, 8.0]]
    basis = Basis(
        table(stored, sources=["low", "low", "high", "high"]),
        preset="paper",
        variant="initial",
        betas=[np.inf],
        smoothing="jeffreys",
    )
    result = basis.estimate(RewardBatch(list("0123"), [0.0] * 4))
    np.testing.assert_allclose(result.baselines, [0.0, 0.0, 8.0, 8.0], atol=1e-12)
    common = Basis(
        table(stored), preset="paper", variant="initial", betas=[np.inf], smoothing="jeffreys"
    )
    result = common.estimate(RewardBatch(list("0123"), [0.0] * 4))
    population = np.quantile(np.concatenate(stored), (np.arange(32) + 0.5) / 32).mean()
    np.testing.assert_allclose(result.baselines[0], population / 4, rtol=1e-12)
    np.testing.assert_allclose(result.baselines[2], (16 + population) / 3, rtol=1e-12)


def test_one_absurd_reward_does_not_disturb_the_following_batches():
    rng = np.random.default_rng(3)
    stored = [list(rng.normal(c, 1.0, 8)) for c in rng.normal(size=60)]
    keys = [str(i) for i in range(60)]
    plain, shocked = Basis(table(stored)), Basis(table(stored))
    for step in range(10):
        observed = np.array([np.mean(s) for s in stored]) + rng.normal(size=60)
        a = plain.estimate(RewardBatch(keys, observed)).baselines
        if step == 4:
            observed[0] = -1e90
        b = shocked.estimate(RewardBatch(keys, observed)).baselines
    assert np.abs(a - b).max() < 0.1


def test_one_absurd_stored_reward_does_not_spoil_the_others():
    rng = np.random.default_rng(4)
    centers = rng.normal(size=200)
    stored = [list(c + rng.normal(size=8)) for c in centers]
    spoilt = [list(row) for row in stored]
    spoilt[0][0] = 1e6
    keys = [str(i) for i in range(200)]
    errors = []
    for rows in (stored, spoilt):
        basis, rng = Basis(table(rows)), np.random.default_rng(5)
        squares = []
        for step in range(30):
            true = centers + step / 40
            observed = true + rng.normal(size=200)
            baselines = basis.estimate(RewardBatch(keys, observed)).baselines
            squares.append(((baselines - true) ** 2)[1:].mean())
        errors.append(np.mean(squares))
    assert errors[1] < 1.1 * errors[0]


def test_a_table_that_has_grown_keeps_the_shift_in_the_rewards_own_unit():
    rng = np.random.default_rng(6)
    stored = [list(rng.normal(size=8)) for _ in range(30)]
    keys = [str(i) for i in range(30)]
    small = Basis(table(stored))
    for _ in range(10):
        small.estimate(RewardBatch(keys, rng.normal(0.5, 1.0, 30)))
    grown = Basis(small.pass_rates.with_rewards(["far"], [list(rng.normal(0, 40, 60))]))
    assert grown._form.unit > 2 * small._form.unit
    grown.load_state_dict(small.state_dict())
    before = small._form.tracker.state.common / small._form.unit
    assert grown._form.tracker.state.common / grown._form.unit == pytest.approx(before)
    with pytest.raises(StateError):
        grown.load_state_dict(small.state_dict() | {"unit": 0.0})


def test_a_state_of_counts_is_refused_by_a_table_of_rewards():
    counts = Basis(PassRates.from_counts(["0"], [1], 2))
    with pytest.raises(StateError, match="continuous"):
        Basis(table()).load_state_dict(counts.state_dict())


def test_empirical_bayes_without_a_second_reward_is_one_pseudo_observation():
    basis = Basis(table([[0.0], [1.0]]), smoothing="empirical-bayes")
    assert basis._form.table.pseudo_count[0] == 1.0
