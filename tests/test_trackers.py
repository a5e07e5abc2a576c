from __future__ import annotations

import numpy as np
import pytest
import reference_trackers as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from basis_rl import BatchError, ConfigError, PassRates, RewardBatch, estimators
from basis_rl.estimators import Kae, Krpo, KrpoTracking, Spo, SpoPlusPlus, krpo

TABLE = PassRates.from_counts(["a", "b", "c"], [0, 3, 8], 8)
PRIORS = {"a": (0, 8), "b": (3, 8), "c": (8, 8)}
TRACKERS = [Spo, SpoPlusPlus, Kae, KrpoTracking]

unit_rewards = st.sampled_from([0.0, 1.0, 1.0, 0.0, 0.25])
rows = st.lists(st.tuples(st.sampled_from("abcde"), unit_rewards), min_size=1, max_size=9)
runs = st.lists(rows, min_size=1, max_size=14)
tables = st.sampled_from([None, TABLE])


def baselines(estimator, keys, rewards, **columns):
    return estimator.estimate(RewardBatch(list(keys), rewards, **columns)).baselines


def split(batch):
    return [key for key, _ in batch], [reward for _, reward in batch]


def agrees(estimator, naive, run):
    for batch in run:
        keys, rewards = split(batch)
        expected = naive.estimate(keys, rewards)
        np.testing.assert_allclose(baselines(estimator, keys, rewards), expected, atol=1e-12)


@given(runs, tables)
@settings(max_examples=40, deadline=None)
def test_spo_is_the_loop_over_prompts(run, table):
    agrees(Spo(table), reference.Spo(table and PRIORS), run)


@given(runs, tables, st.sampled_from([1, 2.5, 4, 10]))
@settings(max_examples=60, deadline=None)
def test_kae_is_the_sum_over_the_whole_history(run, table, window):
    agrees(Kae(table, window=window), reference.Kae(table and PRIORS, window), run)


@given(runs, tables)
@settings(max_examples=40, deadline=None)
def test_krpo_tracking_is_one_scalar_step_after_the_other(run, table):
    agrees(KrpoTracking(table), reference.KrpoTracking(table and PRIORS), run)


@given(runs, tables, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_spo_forgets_by_the_mean_divergence(run, table, random):
    estimator, naive = Spo(table), reference.Spo(table and PRIORS)
    for batch in run:
        keys, rewards = split(batch)
        moved = [random.choice([0.0, 0.004, 0.01, 0.05]) for _ in keys]
        expected = naive.estimate(keys, rewards, divergences=moved)
        actual = baselines(estimator, keys, rewards, divergences=moved)
        np.testing.assert_allclose(actual, expected, atol=1e-12)


@given(runs, tables, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_spo_plus_plus_is_equation_3_whatever_the_order_of_arrival(run, table, random):
    estimator, naive = SpoPlusPlus(table), reference.SpoPlusPlus(table and PRIORS)
    now = 5
    for batch in run:
        keys, rewards = split(batch)
        now += random.randint(0, 4)
        times = [now - random.randint(0, 5) for _ in keys]
        naive.at(now, times)
        expected = naive.estimate(keys, rewards, times=times)
        actual = baselines(
            estimator, keys, rewards, row_versions=np.array(times), policy_version=now
        )
        np.testing.assert_allclose(actual, expected, atol=1e-12)


@pytest.mark.parametrize("bandwidth", [None, 0.4])
def test_kae_in_steps(bandwidth):
    rng = np.random.default_rng(0)
    options = {"window": 12, "clock": "steps", "bandwidth": bandwidth}
    estimator, naive = Kae(TABLE, **options), reference.Kae(PRIORS, **options)
    for step in np.cumsum(rng.integers(1, 7, size=25)):
        keys = rng.choice(list("abcde"), size=6).tolist()
        rewards = rng.integers(0, 2, size=6).astype(float).tolist()
        naive.step = int(step)
        expected = naive.estimate(keys, rewards)
        actual = baselines(estimator, keys, rewards, step=int(step))
        np.testing.assert_allclose(actual, expected, atol=1e-12)


@given(rows)
@settings(max_examples=60, deadline=None)
def test_krpo_is_the_published_loop(batch):
    keys, rewards = split([*batch, *batch[:1]])
    result = Krpo().estimate(RewardBatch(keys, rewards))
    expected, advantages = reference.krpo(keys, rewards)
    np.testing.assert_allclose(result.baselines, expected, atol=1e-12)
    np.testing.assert_allclose(result.advantages, advantages, atol=1e-9)
    plain = Krpo(std=False).estimate(RewardBatch(keys, rewards))
    np.testing.assert_allclose(plain.advantages, np.subtract(rewards, expected), atol=1e-12)


def test_spo_by_hand():
    spo = Spo(TABLE)
    # N = 8: a has (4/9, 68/9), b (28/9, 44/9).
    np.testing.assert_allclose(baselines(spo, "ab", [1.0, 0.0]), [1 / 18, 7 / 18])
    a = 0.875 * 4 / 9 + 1
    b = 0.875 * 68 / 9
    np.testing.assert_allclose(baselines(spo, "a", [0.0]), [a / (a + b)])
    # D = 0: the range's upper end; D = 1: its lower one.
    for moved, rho in ((0.0, 0.96), (0.06 * np.log2(1 / 0.9), 0.9), (1.0, 0.875)):
        spo = Spo(TABLE)
        baselines(spo, "b", [1.0], divergences=[moved])
        a, b = rho * 28 / 9 + 1, rho * 44 / 9
        np.testing.assert_allclose(baselines(spo, "b", [0.0]), [a / (a + b)])


def test_spo_plus_plus_by_hand():
    spo = SpoPlusPlus(TABLE, rho=0.5)
    baselines(spo, "b", [1.0], policy_version=10)
    # Two policies later; forgetting alone does not move the value.
    value = (28 / 9 + 1) / (28 / 9 + 1 + 44 / 9)
    np.testing.assert_allclose(baselines(spo, "b", [0.0], policy_version=12), [value])
    a, b = 0.25 * (28 / 9 + 1), 0.25 * 44 / 9 + 1
    np.testing.assert_allclose(baselines(spo, "b", [0.0], policy_version=12), [a / (a + b)])
    # The table's evidence is as old as the run, also where the prompt comes late.
    np.testing.assert_allclose(baselines(spo, "c", [0.0], policy_version=12), [17 / 18])
    a, b = 0.25 * 68 / 9, 0.25 * 4 / 9 + 1
    np.testing.assert_allclose(baselines(spo, "c", [0.0], policy_version=12), [a / (a + b)])


@pytest.mark.parametrize("table", [None, TABLE])
def test_spo_plus_plus_knows_a_rows_time_by_any_of_three_names(table):
    rng = np.random.default_rng(6)
    runs = [SpoPlusPlus(table) for _ in range(4)]
    for now in (1, 3, 4, 9, 10, 30):
        keys, rewards = rng.choice(list("abde"), 4).tolist(), rng.random(4)
        ways = [
            {"step": now},
            {"policy_version": now, "step": 100},
            {"row_versions": np.full(4, now), "policy_version": now},
            {"row_versions": np.full(4, now)},
        ]
        found = [baselines(run, keys, rewards, **way) for run, way in zip(runs, ways, strict=True)]
        for other in found[1:]:
            np.testing.assert_array_equal(other, found[0])
    naive = reference.SpoPlusPlus(table and PRIORS)
    again = SpoPlusPlus(table)
    for now in (3, 4, 9):
        naive.at(now, [now, now])
        expected = naive.estimate(["a", "e"], [1.0, 0.0], times=[now, now])
        np.testing.assert_allclose(baselines(again, "ae", [1.0, 0.0], step=now), expected)


@pytest.mark.parametrize("make", [SpoPlusPlus, lambda: Kae(clock="steps")])
def test_without_steps_a_clock_counts_estimates(make):
    estimator, batch = make(), RewardBatch(["a"], [1.0])
    for calls in (1, 2, 3):
        estimator.estimate(batch)
        estimator.observe(batch)
        assert estimator.now == calls


def test_spo_plus_plus_survives_a_million_policies_without_a_visit():
    spo = SpoPlusPlus(TABLE)
    baselines(spo, "b", [1.0], step=0)
    with np.errstate(all="raise", under="ignore"):
        assert 0 < baselines(spo, "b", [0.0], step=1_000_000)[0] < 1
        assert baselines(spo, "b", [0.0], step=2_000_000).tolist() == [0.0]


def test_spo_plus_plus_by_visits_is_spo_at_the_same_rate():
    rng = np.random.default_rng(1)
    visits, spo = SpoPlusPlus(TABLE, clock="visits"), Spo(TABLE)
    for _ in range(20):
        keys = rng.choice(list("abcd"), size=5).tolist()
        rewards = rng.integers(0, 2, 5).astype(float)
        np.testing.assert_allclose(
            baselines(visits, keys, rewards), baselines(spo, keys, rewards), atol=1e-12
        )


def test_kae_by_hand():
    kae = Kae(window=4)
    for reward in (1.0, 0.0, 1.0, 1.0):
        baselines(kae, "a", [reward])
    # Ages 1, 2, 3; the first visit is a whole window old.
    expected = (0.75 * 1 + 0.5 * 1 + 0.25 * 0) / 1.5
    np.testing.assert_allclose(baselines(kae, "a", [0.0]), [expected])
    kae = Kae(TABLE, window=4)
    baselines(kae, "b", [1.0])
    # 8 offline rollouts at age 2, one reward at age 1, and the row's sibling at age 0.
    total, weight = 0.5 * 3 + 0.75, 0.5 * 8 + 0.75
    expected = [(total + r) / (weight + 1) for r in (0.0, 1.0)]
    np.testing.assert_allclose(baselines(kae, "bb", [1.0, 0.0]), expected)


def test_kae_keeps_the_mean_of_a_visit_of_very_many_rollouts():
    kae = Kae()
    baselines(kae, ["a"] * 70_000, np.arange(70_000) % 4 == 0)
    np.testing.assert_allclose(baselines(kae, "a", [1.0]), [0.25])


def test_krpo_by_hand():
    result = Krpo().estimate(RewardBatch(["a", "a"], [1.0, 0.0]))
    first = 1.00001 / 1.01001
    P = first * 0.01 + 1e-5
    second = first * 0.01 / (P + 0.01)
    np.testing.assert_allclose(result.baselines, [first, second], rtol=1e-12)


def test_krpo_refuses_single_rollouts():
    with pytest.raises(BatchError, match="'krpo-tracking'"):
        baselines(Krpo(), "ab", [1.0, 0.0])
    metrics = Krpo().estimate(RewardBatch(["a", "a", "b"], [1.0, 0.0, 1.0])).metrics
    assert metrics["single_fraction"] == pytest.approx(1 / 3)


def test_krpo_orders_its_rows_once_a_batch(monkeypatch):
    built = []
    of = krpo._Order.of
    monkeypatch.setattr(krpo._Order, "of", lambda keys: built.append(keys) or of(keys))
    batch = RewardBatch(["a", "a"], [1.0, 0.0])
    scaled, plain = Krpo().estimate(batch), Krpo(std=False).estimate(batch)
    assert len(built) == 2
    np.testing.assert_array_equal(scaled.baselines, plain.baselines)
    np.testing.assert_array_equal(plain.advantages, batch.rewards - plain.baselines)
    assert (np.abs(scaled.advantages) > np.abs(plain.advantages)).all()


@pytest.mark.parametrize("make", [*TRACKERS, lambda table: SpoPlusPlus(table, clock="visits")])
@pytest.mark.parametrize("table", [None, TABLE])
def test_a_reward_never_moves_its_own_baseline(make, table):
    rng = np.random.default_rng(2)
    history = [(rng.choice(list("abcd"), 6).tolist(), rng.random(6)) for _ in range(5)]
    keys = ["a", "a", "b", "d", "e", "e"]

    def last(rewards):
        estimator = make(table)
        for names, earlier in history:
            baselines(estimator, names, earlier)
        return baselines(estimator, keys, rewards)

    rewards = rng.random(6)
    before = last(rewards)
    for i in range(6):
        flipped = rewards.copy()
        flipped[i] = 1.0 - flipped[i]
        np.testing.assert_allclose(last(flipped)[i], before[i], atol=1e-15)


@given(runs, tables)
@settings(max_examples=30, deadline=None)
def test_baselines_of_unit_rewards_stay_in_the_unit_interval(run, table):
    for make in TRACKERS:
        estimator = make(table)
        for batch in run:
            keys, rewards = split(batch)
            b = baselines(estimator, keys, rewards)
            assert ((b >= -1e-12) & (b <= 1 + 1e-12)).all(), make.name


@pytest.mark.parametrize("make", TRACKERS)
def test_the_order_of_rows_does_not_matter(make):
    rng = np.random.default_rng(3)
    one, other = make(TABLE), make(TABLE)
    for _ in range(6):
        keys, rewards = rng.choice(list("abcde"), 8), rng.random(8)
        order = rng.permutation(8)
        np.testing.assert_allclose(
            baselines(one, keys, rewards)[order],
            baselines(other, keys[order], rewards[order]),
            atol=1e-12,
        )


@pytest.mark.parametrize("make", TRACKERS)
def test_starts(make):
    # Of the table; of its sources; without a table, of the other prompts.
    np.testing.assert_allclose(baselines(make(TABLE), "z", [1.0]), [11 / 24])
    table = PassRates.from_counts(list("abc"), [0, 3, 8], 8, sources=["s", "t", "t"])
    estimator = make(table)
    b = baselines(estimator, "xyz", [1.0, 0.0, 1.0], sources=["s", "t", "u"])
    np.testing.assert_allclose(b, [0, 11 / 16, 11 / 24])
    estimator = make()
    np.testing.assert_allclose(baselines(estimator, "xxy", [1.0, 1.0, 0.0])[2], 1.0)
    expected = (0.9 * 2 + 1) / (0.9 * 3 + 1)
    np.testing.assert_allclose(baselines(estimator, "zv", [0.0, 1.0])[0], expected)
    alone = baselines(make(), "a", [1.0])[0]
    assert alone == (0.5 if make in (Spo, SpoPlusPlus) else 0.0)


def test_starts_of_bare_rates_and_of_stored_rewards():
    rates = PassRates.from_rates(["a", "b"], [0.0, 0.5])
    assert baselines(Spo(rates), "ab", [1.0, 1.0]).tolist() == [0.0, 0.5]
    assert baselines(KrpoTracking(rates), "ab", [1.0, 1.0]).tolist() == [0.0, 0.5]
    stored = PassRates.from_rewards(["a", "b"], [[0.0, 0.5, 1.0], [1.0]])
    # One pseudo-observation of the population's mean, 0.75.
    expected = [(1.5 + 0.75) / 4, (1.0 + 0.75) / 2]
    np.testing.assert_allclose(baselines(Spo(stored), "ab", [1.0, 0.2]), expected)
    np.testing.assert_allclose(baselines(Kae(stored), "ab", [1.0, 0.2]), [0.5, 1.0])
    # With sources, of its own source in the table, whether the batch names it or not.
    stored = PassRates.from_rewards(["a", "b"], [[0.0, 0.5, 1.0], [1.0]], sources=["s", "t"])
    expected = [(1.5 + 0.5) / 4, (1.0 + 1.0) / 2]
    np.testing.assert_allclose(baselines(Spo(stored), "ab", [1.0, 0.2]), expected)


@pytest.mark.parametrize("make", [Spo, SpoPlusPlus])
def test_beta_trackers_refuse_rewards_outside_the_unit_interval(make):
    for reward in (-0.1, 1.5):
        with pytest.raises(BatchError, match=r"prompt 'b' is outside 0 to 1.*'kae'"):
            baselines(make(), "ab", [0.0, reward])
    table = PassRates.from_rewards(["a", "b"], [[-1.0, 2.0], [0.0]])
    with pytest.raises(ConfigError, match="from -1 to 2"):
        make(table)


@pytest.mark.parametrize("make", [Kae, KrpoTracking])
def test_any_real_rewards(make):
    table = PassRates.from_rewards(["a", "b"], [[-3.0, 5.0, 1.0], [7.0]])
    rng = np.random.default_rng(4)
    shift, scale = 4.0, 3.0
    moved = PassRates.from_rewards(
        ["a", "b"], [(scale * np.array([-3.0, 5.0, 1.0]) + shift), [scale * 7.0 + shift]]
    )
    one, other = make(table), make(moved)
    for _ in range(5):
        keys, rewards = rng.choice(list("ab"), 4), rng.normal(size=4)
        np.testing.assert_allclose(
            scale * baselines(one, keys, rewards) + shift,
            baselines(other, keys, scale * rewards + shift),
            atol=1e-9,
        )


@pytest.mark.parametrize("make", [Kae, KrpoTracking, lambda: KrpoTracking(start_variance=1e100)])
def test_huge_rewards_stay_finite(make):
    estimator = make()
    for rewards in ([1e100, -1e100], [1e100, 1e100], [-1e100, 1e-300]):
        assert np.isfinite(baselines(estimator, "aa", rewards)).all()


def test_a_start_that_rounds_past_1_is_1():
    spo = Spo()
    spo.starts.seen = np.array([1.0 + 1e-15, 1.0])
    assert baselines(spo, "a", [1.0]).tolist() == [1.0]
    assert spo.states["failures"].tolist() == [0.0]


def test_kae_whose_window_shrinks_to_nothing_takes_the_latest_visit():
    kae = Kae(clock="steps", bandwidth=0.5)
    baselines(kae, "aa", [1.0, 0.0], step=10**12)
    for step in (0, -(10**12)):
        assert baselines(kae, "a", [0.5], step=step).tolist() == [0.5]


@pytest.mark.parametrize("make", TRACKERS)
def test_expected_spread(make):
    estimator = make(TABLE)
    known = 3 / 8 if make is Kae else 3.5 / 9
    np.testing.assert_allclose(
        estimator.expected_spread(["b", "new"]),
        [np.sqrt(v * (1 - v)) for v in (known, 11 / 24)],
    )
    baselines(estimator, "bbd", [1.0, 1.0, 1.0])
    value = baselines(estimator, "bd", [0.0, 0.0])
    estimator = make(TABLE)
    baselines(estimator, "bbd", [1.0, 1.0, 1.0])
    before = len(estimator.states)
    spread = estimator.expected_spread(["b", "d", "new"])
    np.testing.assert_allclose(spread[:2], np.sqrt(value * (1 - value)), atol=2e-3)
    assert len(estimator.states) == before


@pytest.mark.parametrize("make", TRACKERS)
def test_expected_spread_knows_integer_keys(make):
    estimator = make()
    baselines(estimator, [1, 2], [1.0, 1.0])
    baselines(estimator, [1, 2], [0.0, 1.0])
    expected = estimator.expected_spread(["1", "2"])
    assert expected[0] > expected[1] + 0.1
    np.testing.assert_array_equal(estimator.expected_spread(np.array([1, 2])), expected)
    with pytest.raises(BatchError, match="sources has 1 entries for 2 keys"):
        estimator.expected_spread([1, 2], ["s"])


REFUSED = [
    (Spo, {"rho": 1.5}, "rho is 1.5"),
    (Spo, {"rho_range": (0.9, 0.5)}, r"rho_range\[1\] is 0.5"),
    (Spo, {"rho_range": 0.9}, "two numbers"),
    (Spo, {"half_divergence": 0.0}, "half_divergence"),
    (Spo, {"prior_rollouts": 0}, "prior_rollouts"),
    (Spo, {"max_staleness": -1}, "max_staleness"),
    (Spo, {"max_staleness": 0.5}, "max_staleness"),
    (SpoPlusPlus, {"rho": -0.1}, "rho"),
    (SpoPlusPlus, {"clock": "step"}, "clock is 'step'"),
    (Kae, {"window": 0.5}, "window"),
    (Kae, {"window": "8"}, "window"),
    (Kae, {"clock": "visit"}, "did you mean 'visits'"),
    (Kae, {"bandwidth": 0.0}, "bandwidth"),
    (Krpo, {"measurement_variance": 0.0}, "measurement_variance"),
    (Krpo, {"epsilon": float("nan")}, "epsilon"),
    (KrpoTracking, {"process_variance": -1.0}, "process_variance"),
    (KrpoTracking, {"start_variance": float("inf")}, "start_variance"),
]


@pytest.mark.parametrize(("make", "options", "message"), REFUSED)
def test_options_out_of_range_are_refused(make, options, message):
    with pytest.raises(ConfigError, match=message):
        make(**options)


@pytest.mark.parametrize("make", TRACKERS)
def test_a_table_must_be_a_table(make):
    with pytest.raises(ConfigError, match="PassRates"):
        make({"a": 0.5})
    assert estimators.create(make.name).name == make.name
    assert estimators.create(make.name, TABLE).starts.table is TABLE
