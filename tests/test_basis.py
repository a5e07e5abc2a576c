from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basis_rl import (
    Basis,
    BatchError,
    ConfigError,
    MissingPassRateError,
    PassRates,
    RewardBatch,
)
from basis_rl.smoothing import fit_beta_binomial

PRESETS = ["robust", "paper", "paper-literal"]
ALL_OPTIONS = [{"preset": preset} for preset in PRESETS] + [
    {"variant": "unb"},
    {"variant": "vop"},
    {"variant": "rvg"},
    {"preset": "paper", "variant": "initial"},
    {"preset": "paper", "variant": "vop"},
    {"preset": "paper", "variant": "rvg"},
    {"preset": "paper", "calibration": "previous-batch"},
    {"smoothing": "empirical-bayes"},
]


def table(**options):
    return PassRates.from_counts(["a", "b", "c", "d"], [0, 2, 5, 8], 8, **options)


def numbers(*values):
    return np.array(values, dtype=float)


@pytest.mark.parametrize("options", ALL_OPTIONS)
def test_advantage_is_reward_minus_baseline_and_metrics_are_floats(options):
    rewards = [0.0, 1.0, 1.0, 1.0]
    result = Basis(table(), **options).estimate(RewardBatch(list("abcd"), rewards))
    np.testing.assert_allclose(result.advantages, rewards - result.baselines)
    assert np.isfinite(result.baselines).all()
    for name in ("tau", "active_fraction", "calibration_loss", "coverage", "advantage_std"):
        assert isinstance(result.metrics[name], float), name
    assert result.metrics["baseline_mean"] == pytest.approx(result.baselines.mean())
    assert result.metrics["calibration_loss"] >= 0


@pytest.mark.parametrize("options", ALL_OPTIONS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_order_of_rows_is_irrelevant(options, data):
    size = data.draw(st.integers(1, 10))
    keys = data.draw(st.lists(st.sampled_from("abcd"), min_size=size, max_size=size))
    rewards = data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    sources = data.draw(st.lists(st.sampled_from("xy"), min_size=size, max_size=size))
    order = data.draw(st.permutations(range(size)))
    plain = Basis(table(), **options).estimate(RewardBatch(keys, rewards, sources=sources))
    shuffled = Basis(table(), **options).estimate(
        RewardBatch(
            [keys[i] for i in order],
            [rewards[i] for i in order],
            sources=[sources[i] for i in order],
        )
    )
    np.testing.assert_allclose(
        shuffled.baselines, plain.baselines[list(order)], rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("options", ALL_OPTIONS)
def test_float32_rewards_give_the_same_as_float64(options):
    rewards = np.array([0, 1, 1, 0], dtype=np.float32)
    single = Basis(table(), **options).estimate(RewardBatch(list("abcd"), rewards))
    double = Basis(table(), **options).estimate(
        RewardBatch(list("abcd"), rewards.astype(np.float64))
    )
    np.testing.assert_array_equal(single.baselines, double.baselines)
    assert single.advantages.dtype == np.float64


@pytest.mark.parametrize("options", ALL_OPTIONS)
def test_rows_without_a_verdict_enter_no_sum(options):
    keys, rewards = list("abcdabcd") * 2, numbers(*[0, 1, 1, 1, 0, 0, 1, 1] * 2)
    full = Basis(table(), **options).estimate(RewardBatch(keys, rewards))
    with_nan = Basis(table(), **options).estimate(
        RewardBatch(["b", *keys], np.concatenate([[np.nan], rewards]))
    )
    np.testing.assert_allclose(with_nan.baselines[1:], full.baselines, rtol=1e-12)
    assert np.isnan(with_nan.baselines[0])
    assert with_nan.advantages[0] == 0.0
    assert with_nan.metrics["unverified_fraction"] == pytest.approx(1 / 17)


def test_too_many_rows_without_a_verdict_are_an_error():
    rewards = numbers(np.nan, np.nan, 1, 0)
    with pytest.raises(BatchError, match=r"50.0%.*row 0.*max_unverified"):
        Basis(table()).estimate(RewardBatch(list("abcd"), rewards))
    Basis(table(), max_unverified=0.5).estimate(RewardBatch(list("abcd"), rewards))
    with pytest.raises(BatchError, match=r"100\.0%"):
        Basis(table(), max_unverified=1.0).estimate(RewardBatch(["a"], [np.nan]))


@pytest.mark.parametrize("options", ALL_OPTIONS)
def test_turns_of_a_rollout_count_once(options):
    once = Basis(table(), **options).estimate(RewardBatch(list("bccd"), [1, 0, 1, 1]))
    turns = Basis(table(), **options).estimate(
        RewardBatch(
            ["b", "c", "c", "c", "d", "b"],
            [1, 0, 1, 0, 1, 1],
            rollout_ids=["0", "0", "1", "0", "0", "0"],
        )
    )
    np.testing.assert_allclose(turns.baselines, once.baselines[[0, 1, 2, 1, 3, 0]], rtol=1e-12)


def test_turns_of_a_rollout_must_agree():
    with pytest.raises(BatchError, match="rollout 'x' of prompt 'b'"):
        Basis(table()).estimate(RewardBatch(["b", "b"], [1, 0], rollout_ids=["x", "x"]))


def test_several_rollouts_of_a_prompt_use_each_other_and_not_themselves():
    basis = Basis(table(), preset="paper", betas=[1.0])
    keys = ["b", "b", "c"]
    base = basis.estimate(RewardBatch(keys, [0, 0, 0])).baselines
    changed = basis.estimate(RewardBatch(keys, [1, 0, 0])).baselines
    assert changed[0] == base[0]
    assert changed[1] > base[1]
    assert changed[2] > base[2]


@pytest.mark.parametrize("options", ALL_OPTIONS)
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_batch_of_one(options, reward):
    for key in "abcd":
        baseline = Basis(table(), **options).estimate(RewardBatch([key], [reward])).baselines[0]
        other = Basis(table(), **options).estimate(RewardBatch([key], [1 - reward])).baselines[0]
        assert np.isfinite(baseline)
        if options.get("preset", "robust") == "robust":
            assert baseline == pytest.approx(other, abs=1e-12)


def test_no_active_prompt_gives_baseline_zero():
    for preset in ("paper", "paper-literal"):
        result = Basis(table(), preset=preset).estimate(RewardBatch(["a", "d"], [1, 1]))
        np.testing.assert_array_equal(result.baselines, 0.0)
        assert result.metrics["active_fraction"] == 0.0
        assert np.isinf(result.metrics["calibration_loss"]) == (preset == "paper-literal")


@pytest.mark.parametrize("variant", ["unb", "vop", "rvg"])
def test_one_active_prompt_has_baseline_zero_under_paper_and_its_value_under_robust(variant):
    batch = RewardBatch(["a", "b", "d"], [1, 1, 1])
    paper = Basis(table(), preset="paper", variant=variant).estimate(batch)
    np.testing.assert_array_equal(paper.baselines, 0.0)
    robust = Basis(table(), variant=variant, smoothing="none").estimate(batch)
    expected = 0.0 if variant == "vop" else 0.25
    np.testing.assert_allclose(robust.baselines, [0.0, expected, 0.0], rtol=1e-12)


@pytest.mark.parametrize("successes", [[0, 8], [0, 0], [8], [4, 4, 4]])
def test_empirical_bayes_of_a_few_prompts_is_never_certain(successes):
    keys = [str(i) for i in range(len(successes))]
    rates = PassRates.from_counts(keys, successes, 8)
    basis = Basis(rates, smoothing="empirical-bayes")
    baselines = basis.estimate(RewardBatch(keys, [1.0] * len(keys))).baselines
    assert (baselines > 1e-3).all()
    assert (baselines < 1 - 1e-3).all()


def test_weights_check_the_rewards_too():
    with pytest.raises(BatchError, match="not 0 or 1"):
        Basis(table(), preset="paper").weights(RewardBatch(["b", "c"], [0.5, 1.0]))


def test_empirical_bayes_uses_the_fitted_pseudo_counts_the_right_way_round():
    rng = np.random.default_rng(0)
    counts = rng.binomial(8, rng.beta(0.5, 2.0, 500))
    keys = [str(i) for i in range(500)]
    rates = PassRates.from_counts(keys, counts, 8)
    options = {"preset": "paper", "variant": "initial", "betas": [np.inf]}
    basis = Basis(rates, smoothing="empirical-bayes", **options)
    # Two prompts of one rollout, one right and one wrong, join the table.
    a, b = fit_beta_binomial([*counts, 0, 1], [8] * 500 + [1, 1])
    assert b > 2 * a
    result = basis.estimate(RewardBatch(keys, np.zeros(500)))
    np.testing.assert_allclose(result.baselines, (counts + a) / (8 + a + b), rtol=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"betas": [0.5]}, "betas has no effect"),
        ({"preset": "paper", "variance_floor": 0.1}, "variance_floor has an effect"),
        ({"variance_floor": 0.1}, "variance_floor has an effect"),
        ({"epsilon": "x"}, "epsilon is 'x'"),
        ({"epsilon": None}, "epsilon is None"),
        ({"preset": "paper", "betas": "abc"}, "betas is 'abc'"),
        ({"preset": "paper", "betas": np.arange(500.0)}, "betas has 0.0"),
        ({"max_unverified": None}, "max_unverified is None"),
        ({"max_unverified": float("nan")}, "max_unverified is nan"),
        ({"max_unverified": 2}, "max_unverified is 2"),
    ],
)
def test_options_without_effect_or_of_the_wrong_kind_are_refused(options, message):
    with pytest.raises(ConfigError, match=message) as caught:
        Basis(table(), **options)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("options", ALL_OPTIONS)
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_all_rewards_equal(options, reward):
    basis = Basis(table(), **options)
    for _ in range(30):
        result = basis.estimate(RewardBatch(list("abcd"), [reward] * 4))
        assert np.isfinite(result.baselines).all()
    if options.get("variant", "shift") == "shift" and options.get("preset", "robust") == "robust":
        assert ((result.baselines > 0) & (result.baselines < 1)).all()


@pytest.mark.parametrize("reward", [0.5, 2.0, -1.0, 1e-9])
def test_rewards_other_than_0_and_1_point_to_the_continuous_form(reward):
    with pytest.raises(BatchError, match=r"prompt 'b'.*from_rewards"):
        Basis(table()).estimate(RewardBatch(["a", "b"], [1.0, reward]))


def test_unknown_prompts_are_an_error_that_names_one():
    with pytest.raises(MissingPassRateError, match=r"2 prompts.*first: 'x'.*missing='prior'"):
        Basis(table()).estimate(RewardBatch(["a", "x", "y", "x"], [1, 0, 1, 0]))


def test_unknown_prompts_start_from_their_source():
    rates = table(sources=["easy", "hard", "hard", "easy"])
    # hard: mean of 2/8 and 5/8 over two prompts; jeffreys (0.875 + 0.5) / 3.
    basis = Basis(rates, missing="prior", preset="paper", variant="initial", betas=[np.inf])
    batch = RewardBatch(["x", "y", "z", "b"], [0, 1, 0, 1], sources=["hard", "easy", "new", "hard"])
    result = basis.estimate(batch)
    np.testing.assert_allclose(result.baselines, [0.4375, 0.5, 15 / 32, 0.25])
    assert result.metrics["coverage"] == 0.25
    robust = Basis(rates, missing="prior").estimate(batch)
    assert ((robust.baselines > 0) & (robust.baselines < 1)).all()
    smoothed = Basis(
        rates,
        missing="prior",
        preset="paper",
        variant="initial",
        betas=[np.inf],
        smoothing="jeffreys",
    )
    assert smoothed.estimate(batch).baselines[0] == pytest.approx(1.375 / 3)
    no_sources = basis.estimate(RewardBatch(["x"], [0]))
    assert no_sources.baselines[0] == pytest.approx(15 / 32)


@pytest.mark.parametrize("variant", ["unb", "vop", "rvg"])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_weights_reproduce_the_baselines(variant, data):
    size = data.draw(st.integers(2, 10))
    keys = data.draw(st.lists(st.sampled_from("abcd"), min_size=size, max_size=size))
    rewards = data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    basis = Basis(table(), preset="paper", variant=variant, smoothing="jeffreys", betas=[0.5, 1.0])
    batch = RewardBatch(keys, rewards)
    W = basis.weights(batch)
    assert (np.diagonal(W) == 0).all()
    np.testing.assert_allclose(W @ rewards, basis.estimate(batch).baselines, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("continuous", [False, True])
def test_weights_restore_the_next_beta(continuous):
    rates = (
        PassRates.from_rewards(["b", "c"], [[0, 0, 0, 1], [1, 0, 1, 1]]) if continuous else table()
    )
    basis = Basis(rates, preset="paper", calibration="previous-batch", betas=[0.5, 4.0])
    basis.estimate(RewardBatch(["b", "c", "b", "c"], [0, 0, 0, 1]))
    before = basis.state_dict()
    other = RewardBatch(["b", "c", "b", "c"], [1, 1, 1, 1])
    basis.weights(other)
    assert basis.state_dict() == before
    basis.estimate(other)
    assert basis.state_dict() != before


def test_weights_leave_the_state_alone_and_skip_rows_without_a_verdict():
    basis = Basis(
        table(), preset="paper", calibration="previous-batch", max_unverified=0.5, betas=[1, 2]
    )
    basis.estimate(RewardBatch(["b", "c"], [1, 0]))
    before = basis.state_dict()
    W = basis.weights(
        RewardBatch(["b", "c", "c", "b"], [1, np.nan, 0, 1], rollout_ids=["0", "1", "2", "0"])
    )
    assert basis.state_dict() == before
    np.testing.assert_array_equal(W[1], 0.0)
    np.testing.assert_array_equal(W[:, 1], 0.0)
    assert W[2, 0] == W[2, 3] > 0  # the two turns share their rollout's weight
    assert W[0, 3] == 0


def test_weights_of_the_shift_are_refused():
    for options in ({}, {"variant": "unb"}, {"preset": "paper", "variant": "initial"}):
        with pytest.raises(ConfigError, match="no weighted average"):
            Basis(table(), **options).weights(RewardBatch(["b", "c"], [1, 0]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "papers"}, "did you mean 'paper'"),
        ({"variant": "umb"}, "did you mean 'unb'"),
        ({"calibration": "leave-on-out"}, "leave-one-out"),
        ({"smoothing": "jeffrey"}, "jeffreys"),
        ({"missing": "ignore"}, "error, prior"),
        ({"epsilon": 0.0}, "epsilon is 0.0"),
        ({"epsilon": 0.5}, "epsilon is 0.5"),
        ({"betas": [], "preset": "paper"}, "betas is empty"),
        ({"variant": "shift", "calibration": "whole-batch"}, "variant='initial'"),
        ({"calibration": "whole-batch"}, "variant='initial'"),
    ],
)
def test_wrong_options_name_the_remedy(options, message):
    with pytest.raises(ConfigError, match=message):
        Basis(table(), **options)


def test_an_explicit_argument_overrides_the_preset():
    basis = Basis(table(), preset="paper", variant="shift")
    assert basis.options.calibration == "leave-one-out"
    assert basis.options.smoothing == "none"
    assert Basis(table(), smoothing="none").options.variant == "shift"
    with pytest.raises(ConfigError, match="PassRates"):
        Basis({"a": 0.5})


def test_smoothed_values_stay_inside_where_unsmoothed_ones_are_stuck():
    keys, rewards = list("abcd") * 4, [1, 1, 1, 0] * 4
    robust = Basis(table()).estimate(RewardBatch(keys, rewards)).baselines
    stuck = Basis(table(), smoothing="none").estimate(RewardBatch(keys, rewards)).baselines
    assert stuck[0] == 0.0
    assert stuck[3] == 1.0
    assert 0 < robust[0] < 0.2
    assert 0.8 < robust[3] < 1
