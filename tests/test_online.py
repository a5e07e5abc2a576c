"""`BasisOnline` against a slow reference, and what it does with odd batches."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from reference_online import ReferenceOnline, posterior, value_after

from basis_rl import PassRates, RewardBatch
from basis_rl.errors import BatchError, ConfigError, MissingPassRateError
from basis_rl.estimators import BasisOnline, basis_online, create
from basis_rl.estimators.online import model, shift
from basis_rl.estimators.online.binary import after_many, after_one, value_and_slope
from basis_rl.estimators.online.gaussian import after_rewards
from basis_rl.estimators.online.rewards import Rewards


def some_table(prompts=12, n=16, seed=0, sources=None):
    rng = np.random.default_rng(seed)
    keys = [f"p{i}" for i in range(prompts)]
    rates = rng.beta(1.0, 1.0, prompts)
    return PassRates.from_counts(keys, rng.binomial(n, rates), n, sources=sources), rates


def reference_of(table, names=()):
    known = BasisOnline(table)._model.filters.start
    prompts = {
        key: (float(known.mean[i]), float(known.variance[i])) for i, key in enumerate(table.keys)
    }
    walk = [1.0, shift.SHARPENING_SHARE, shift.TREND_SHARE, *[shift.SOURCE_SHARE] * len(names)]
    start = [0.05, shift.SHARPENING_START, shift.TREND_START, *[shift.SOURCE_START] * len(names)]
    return ReferenceOnline(
        prompts,
        prompt_pace=[*model.DEVIATIONS, model.DEVIATIONS[2]],
        scatter=[0.0] * 5 + [model.SCATTER],
        first_weights=[(1 - model.SWITCHING) / 5] * 5 + [model.SWITCHING],
        prompt_switching=model.SWITCHING,
        common_pace=shift.DEVIATIONS,
        common_switching=shift.SWITCHING,
        walk=walk,
        start_covariance=np.diag(start),
        trend_memory=shift.TREND_MEMORY,
        sources=names,
    )


@pytest.mark.parametrize("rollouts", [1, 3])
@pytest.mark.parametrize("sources", [None, ["a", "b", "a"]])
def test_batches_agree_with_the_slow_reference(rollouts, sources):
    names = () if sources is None else ("a", "b")
    table, rates = some_table()
    reference, online = reference_of(table, names), BasisOnline(table)
    rng = np.random.default_rng(1)
    for _ in range(4):
        # Every prompt is met in order, so that the sources are too.
        picked = np.repeat(np.sort(rng.choice(12, 6, replace=False)), rollouts)
        keys = [f"p{i}" for i in picked]
        of = None if sources is None else [sources[i % 3] for i in picked]
        if of is not None:
            of[0], of[-1] = "a", "b"
            of = [of[int(np.flatnonzero(picked == i)[0])] for i in picked]
        rewards = (rng.random(len(keys)) < rates[picked]).astype(float)
        expected = reference.estimate(keys, rewards, of)
        found = online.estimate(RewardBatch(keys, rewards, sources=of)).baselines
        np.testing.assert_allclose(found, expected, atol=5e-4)
    np.testing.assert_allclose(online._model.drift.weights, reference.weights, atol=1e-4)
    places = list(range(3)) + [online._model.common.places[name] for name in names]
    np.testing.assert_allclose(online._model.common.x[:, places], np.array(reference.x), atol=5e-4)


def test_integrals_agree_with_dense_ones():
    rng = np.random.default_rng(0)
    for _ in range(60):
        mean, variance = rng.normal(0, 2), np.exp(rng.uniform(-4, 1))
        n = int(rng.integers(0, 30))
        k = float(rng.integers(0, n + 1))
        value, log_likelihood, after, narrowed = (
            float(part) for part in after_many(*map(np.array, (mean, variance, k, float(n))))
        )
        chance, expected, spread = posterior(mean, variance, k, n)
        assert value == pytest.approx(value_after(mean, variance, k, n), abs=1e-4)
        assert log_likelihood == pytest.approx(np.log(chance), abs=1e-3)
        assert after == pytest.approx(expected, abs=1e-3)
        assert narrowed == pytest.approx(spread, rel=5e-3)


def test_one_reward_is_many_of_one():
    mean, variance = np.array([[-3.0, 0.0, 2.0]]), np.array([[0.5, 1.0, 2.0]])
    for reward in (0.0, 1.0):
        rewards = np.full(3, reward)
        value, log_likelihood, after, narrowed = after_one(mean, variance, rewards)
        _, *many = after_many(mean, variance, rewards, np.ones(3))
        np.testing.assert_allclose(value, value_and_slope(mean, variance)[0], atol=1e-12)
        for one, several in zip((log_likelihood, after, narrowed), many, strict=True):
            np.testing.assert_allclose(one, several, atol=1e-2)


def test_a_prompt_that_turns_is_followed():
    table = PassRates.from_counts(["up", *map(str, range(20))], [0, *[10] * 20], 20)
    online, rng = BasisOnline(table), np.random.default_rng(0)
    first = online.posterior(["up"])[0]
    for step in range(40):
        rewards = np.append(1.0, rng.integers(0, 2, 20))
        online.estimate(RewardBatch(["up", *map(str, range(20))], rewards, step=step))
    value, deviation = online.posterior(["up", "0"])
    assert first < 0.1
    assert value[0] > 0.6
    assert 0.3 < value[1] < 0.7
    assert (deviation > 0).all()


def test_unknown_prompts_start_from_their_sources_population():
    sources = ["easy"] * 30 + ["hard"] * 30
    table = PassRates.from_counts(range(60), [15] * 30 + [1] * 30, 16, sources=sources)
    online = BasisOnline(table)
    value, _ = online.posterior(["x", "y", "z"], ["easy", "hard", "unheard of"])
    assert value[0] > 0.75
    assert value[1] < 0.25
    assert 0.3 < value[2] < 0.7
    # A source that appears in mid-run gets a shift of its own.
    for _ in range(5):
        online.estimate(RewardBatch(range(60), [1.0] * 30 + [0.0] * 30, sources=sources))
    batch = RewardBatch(["n1", "n2", "n3", "0"], [1, 1, 1, 1], sources=["new"] * 3 + ["easy"])
    estimate = online.estimate(batch)
    assert np.isfinite(estimate.baselines).all()
    assert estimate.metrics["new_fraction"] == 0.75


def test_missing_error_names_the_prompt():
    table, _ = some_table()
    with pytest.raises(MissingPassRateError, match="'new'"):
        BasisOnline(table, missing="error").estimate(RewardBatch(["p1", "new"], [1, 0]))
    assert BasisOnline(table).estimate(RewardBatch(["p1", "new"], [1, 0])).baselines[1] > 0


def test_kind_of_rewards():
    table, _ = some_table()
    with pytest.raises(ConfigError, match="from_rewards"):
        BasisOnline(table, rewards="continuous")
    with pytest.raises(ConfigError, match="auto, binary, continuous"):
        BasisOnline(rewards="real")
    with pytest.raises(ConfigError, match=r"PassRates\.load"):
        BasisOnline({"a": 0.5})
    with pytest.raises(ConfigError, match="'prior' or 'error'"):
        BasisOnline(missing="none")
    with pytest.raises(BatchError, match="from_rewards"):
        BasisOnline(table).estimate(RewardBatch(["p1", "p2"], [0.5, 1]))
    online = BasisOnline()
    online.estimate(RewardBatch(["p1", "p2"], [0, 1]))
    with pytest.raises(BatchError, match="rewards='continuous'"):
        online.estimate(RewardBatch(["p1", "p2"], [0, 0.5]))


def test_a_table_of_rates_is_taken_as_of_eight_rollouts():
    rates = PassRates.from_rates(["a", "b"], [0.0, 0.75])
    counts = PassRates.from_counts(["a", "b"], [0, 6], 8)
    batch = RewardBatch(["a", "b"], [1, 1])
    np.testing.assert_array_equal(
        BasisOnline(rates).estimate(batch).baselines, BasisOnline(counts).estimate(batch).baselines
    )


def test_first_real_rewards_without_a_table_get_the_mean_of_the_others():
    online = BasisOnline(rewards="continuous")
    assert np.isnan(online.posterior(["a"])[0]).all()
    assert online.expected_spread(["a", 3]).tolist() == [1.0, 1.0]
    alike = online.estimate(RewardBatch(["a", "b", "c"], [2.0, 2.0, 2.0]))
    np.testing.assert_array_equal(alike.baselines, [2.0, 2.0, 2.0])
    first = online.estimate(RewardBatch(["a", "b", "c"], [1.0, 2.0, 6.0]))
    np.testing.assert_allclose(first.baselines, [4.0, 3.5, 1.5])
    for _ in range(60):
        estimate = online.estimate(RewardBatch(["a", "b", "c"], [1.0, 2.0, 6.0]))
    np.testing.assert_allclose(estimate.baselines, [1.0, 2.0, 6.0], atol=0.7)


def test_real_rewards_do_not_care_for_their_unit_or_zero():
    rng = np.random.default_rng(0)
    stored = rng.normal(size=(8, 6))
    rewards = rng.normal(size=(5, 8))
    keys = list(range(8))

    def run(scale, shift_by):
        online = BasisOnline(PassRates.from_rewards(keys, list(scale * stored + shift_by)))
        return np.array(
            [
                online.estimate(RewardBatch(keys, scale * row + shift_by)).baselines
                for row in rewards
            ]
        )

    np.testing.assert_allclose(run(100.0, 0.0), 100.0 * run(1.0, 0.0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(run(1.0, 5.0), run(1.0, 0.0) + 5.0, atol=0.1)


def test_extreme_states_give_finite_numbers():
    table = PassRates.from_counts(["a", "b"], [0, 100_000], 100_000)
    online = BasisOnline(table)
    with np.errstate(all="raise", under="ignore"):
        for step in (0, 1, 10_000_000):
            estimate = online.estimate(RewardBatch(["a", "b", "c"], [1, 0, 1], step=step))
            assert ((estimate.baselines > 0) & (estimate.baselines < 1)).all()


def test_docstring_example():
    result = doctest.testmod(basis_online)
    assert result.attempted > 0
    assert result.failed == 0


def test_registered_with_and_without_a_table():
    table, _ = some_table()
    assert isinstance(create("basis-online"), BasisOnline)
    assert create("basis-online", table, missing="error").missing == "error"


def test_spread_is_largest_where_nothing_is_known():
    online = BasisOnline(PassRates.from_counts(["no", "half", "yes"], [0, 32, 64], 64))
    spread = online.expected_spread(["no", "half", "yes"])
    assert spread[0] < 0.2
    assert spread[2] < 0.2
    assert spread[1] == pytest.approx(0.5, abs=0.02)
    np.testing.assert_array_equal(spread, online.expected_spread(["no", "half", "yes"]))


def test_a_population_without_finite_logits_stays_within_bounds():
    table = PassRates.from_counts(range(40), [0] * 20 + [1000] * 20, 1000)
    start = BasisOnline(table)._model.filters.start
    assert start.variance[-1] <= 25.0
    assert (np.abs(start.mean) < 25).all()


def test_an_outlier_moves_a_real_value_no_further_than_six_deviations_do():
    rng = np.random.default_rng(0)
    table = PassRates.from_rewards(range(20), list(rng.normal(size=(20, 16))))

    def moved(reward):
        online = BasisOnline(table)
        before = online.posterior(["3"])[0]
        online.estimate(RewardBatch(range(20), [0, 0, 0, reward, *[0] * 16]))
        return float((online.posterior(["3"])[0] - before)[0])

    assert moved(1e6) == pytest.approx(moved(1e3), rel=1e-9)
    assert 0 < moved(1e6) < 1.5
    assert moved(2.0) < moved(4.0) < moved(1e6)


def test_filters_are_judged_by_the_distance_of_an_outlier():
    def log_likelihood(reward):
        rewards = Rewards(np.array([reward]), np.ones(1), np.ones(1))
        return float(after_rewards(np.zeros((1, 1)), np.zeros((1, 1)), rewards)[0].item())

    assert log_likelihood(1.5) == pytest.approx(-0.5 * 1.5**2)
    assert log_likelihood(6.0) == pytest.approx(-0.5 * (6.0**2 - 4.0**2))
    assert log_likelihood(6.0) - log_likelihood(5.0) == pytest.approx(-2.0)
