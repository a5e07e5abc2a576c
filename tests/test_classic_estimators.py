"""REINFORCE++, ReMax, OPO, PVPO, A*-PO and a critic: numbers by hand, properties, errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basis_rl import BatchError, ConfigError, MissingPassRateError, PassRates, RewardBatch
from basis_rl.estimators import (
    AStarPo,
    Basis,
    Critic,
    GroupMean,
    LeaveOneOut,
    Opo,
    Pvpo,
    ReinforcePlusPlus,
    ReMax,
    create,
)
from basis_rl.estimators.a_star_po import optimal_values

KEYS = ["a", "a", "b", "b", "b"]
REWARDS = [1.0, 0.0, 1.0, 1.0, 0.0]
LENGTHS = [1, 3, 2, 2, 4]
NEEDED = {
    "lengths": LENGTHS,
    "greedy_rewards": [1.0, 1.0, 0.0, 0.0, 0.0],
    "values": [0.5, 0.5, 0.25, 0.25, 0.25],
}
COUNTS = PassRates.from_counts(["a", "b", "c"], [2, 6, 0], 8)
CLASSIC = {
    "reinforce-plus-plus": {},
    "opo": {},
    "remax": {},
    "critic": {},
    "pvpo": {"pass_rates": COUNTS},
    "a-star-po": {"pass_rates": COUNTS},
}


def batch(keys=KEYS, rewards=REWARDS, **columns) -> RewardBatch:
    return RewardBatch(keys, rewards, **{**NEEDED, **columns})


# Numbers by hand


def test_reinforce_plus_plus_whitens_by_tokens():
    # 12 tokens, 5 of them of right answers.
    mean = 5 / 12
    variance = (5 * (7 / 12) ** 2 + 7 * (5 / 12) ** 2) / 11
    made = ReinforcePlusPlus().estimate(batch())
    np.testing.assert_allclose(made.baselines, mean)
    expected = (np.array(REWARDS) - mean) / math.sqrt(variance + 1e-8)
    np.testing.assert_allclose(made.advantages, expected, rtol=1e-12)
    assert abs(np.dot(made.advantages, LENGTHS)) < 1e-12
    plain = ReinforcePlusPlus(std=False).estimate(batch())
    np.testing.assert_allclose(plain.advantages, np.array(REWARDS) - mean)


def test_reinforce_plus_plus_of_openrlhf_has_the_biased_variance():
    variance = 5 / 12 * 7 / 12
    made = ReinforcePlusPlus(whitening="openrlhf").estimate(batch())
    expected = (np.array(REWARDS) - 5 / 12) / math.sqrt(variance)
    np.testing.assert_allclose(made.advantages, expected, rtol=1e-12)


def test_reinforce_plus_plus_over_a_group_baseline():
    # Less the group's mean: 1/2, -1/2 and 1/3, 1/3, -2/3; by tokens 1/2 - 3/2 + 4/3 - 8/3 = -7/3.
    centred = np.array([1 / 2, -1 / 2, 1 / 3, 1 / 3, -2 / 3])
    mean = -7 / 3 / 12
    variance = np.dot(LENGTHS, (centred - mean) ** 2) / 11
    made = ReinforcePlusPlus(group_baseline=True).estimate(batch())
    np.testing.assert_allclose(made.baselines, [1 / 2 + mean] * 2 + [2 / 3 + mean] * 3)
    np.testing.assert_allclose(made.advantages, (centred - mean) / math.sqrt(variance + 1e-8))
    assert made.metrics["group_mean"] == pytest.approx((2 * 1 / 2 + 3 * 2 / 3) / 5)


def test_opo_weighs_a_groups_rewards_by_length():
    made = Opo().estimate(batch())
    np.testing.assert_allclose(made.baselines, [1 / 4] * 2 + [4 / 8] * 3)
    np.testing.assert_allclose(made.advantages, np.array(REWARDS) - made.baselines)


def test_remax_and_critic_take_their_columns():
    made = ReMax().estimate(batch())
    np.testing.assert_array_equal(made.advantages, [0, -1, 1, 1, 0])
    made = Critic().estimate(batch())
    np.testing.assert_array_equal(made.advantages, [0.5, -0.5, 0.75, 0.75, -0.25])


def test_pvpo_is_the_reference_mean_in_each_kind_of_table():
    tables = [
        COUNTS,
        PassRates.from_rates(["a", "b"], [0.25, 0.75]),
        PassRates.from_rewards(["a", "b"], [[0.0, 0.5], [1.0, 1.0, 0.25]]),
    ]
    for table in tables:
        made = Pvpo(table).estimate(batch())
        np.testing.assert_allclose(made.baselines, [0.25] * 2 + [0.75] * 3)
        assert made.metrics["coverage"] == 1.0


def test_a_star_po_is_a_log_mean_exp():
    made = AStarPo(COUNTS).estimate(batch(["a", "b", "c", "c", "c"]))
    a, b = (0.5 * math.log(1 - p + p * math.exp(2)) for p in (1 / 4, 3 / 4))
    np.testing.assert_allclose(made.baselines, [a, b, 0.0, 0.0, 0.0], rtol=1e-12)
    table = PassRates.from_rewards(["a", "b"], [[0.0, 0.5], [1.0, -1.0, 0.25]])
    made = AStarPo(table, beta1=2.0).estimate(batch())
    a = 2 * math.log((1 + math.exp(0.25)) / 2)
    b = 2 * math.log((math.exp(0.5) + math.exp(-0.5) + math.exp(0.125)) / 3)
    np.testing.assert_allclose(made.baselines, [a, a, b, b, b], rtol=1e-12)


# Limits and precision of V*


@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=9),
    st.floats(-6, 6).map(lambda power: 10.0**power),
)
def test_optimal_values_lie_between_mean_and_best(rewards, beta1):
    value = optimal_values(PassRates.from_rewards(["a"], [rewards]), beta1)[0]
    slack = 1e-9 * (1 + max(map(abs, rewards)))
    assert np.mean(rewards) - slack <= value <= max(rewards) + slack


@pytest.mark.parametrize("beta1", [1e-300, 1e-4, 9e-3, 1.1e-2, 0.5, 1e3, 1e12])
def test_optimal_values_of_counts_are_those_of_their_rewards(beta1):
    rewards = [[0.0] * 4, [0.0, 0.0, 0.0, 1.0], [1.0, 1.0, 0.0, 1.0], [1.0] * 4]
    keys = ["none", "one", "three", "all"]
    counts = PassRates.from_counts(keys, [0, 1, 3, 4], 4)
    rates = PassRates.from_rates(keys, [0.0, 0.25, 0.75, 1.0])
    expected = optimal_values(PassRates.from_rewards(keys, rewards), beta1)
    for table in (counts, rates):
        np.testing.assert_allclose(optimal_values(table, beta1), expected, rtol=1e-9, atol=1e-12)
    assert expected[0] == 0.0
    assert expected[3] == 1.0
    if beta1 >= 1e3:
        np.testing.assert_allclose(expected, [0, 0.25, 0.75, 1], atol=1e-3)
    if beta1 <= 1e-4:
        np.testing.assert_allclose(expected, [0, 1, 1, 1], atol=1e-3)


def test_optimal_values_far_below_the_best_do_not_overflow():
    table = PassRates.from_rewards(["a", "b"], [[-1e90, 1e90], [0.0, -3.0]])
    np.testing.assert_allclose(optimal_values(table, 1e-300), [1e90, 0.0], atol=1e-12)


def test_a_rate_next_to_nothing_keeps_its_value_finite():
    rates = PassRates.from_rates(["a"], [1e-300])
    for beta1 in (1e-3, 5e-2, 0.5):
        assert 0 <= optimal_values(rates, beta1)[0] < 1


# Prompts outside the table


@pytest.mark.parametrize("make", [Pvpo, AStarPo])
def test_prompts_outside_the_table(make):
    table = PassRates.from_counts(["a", "b", "c"], [2, 6, 0], 8, sources=["s", "s", "t"])
    with pytest.raises(MissingPassRateError, match=r"first: 'zz'.*missing='prior'"):
        make(table).estimate(batch(["a", "a", "b", "b", "zz"]))
    known = make(table).estimate(RewardBatch(["a", "b", "c"], [0, 1, 1])).baselines
    own = dict(zip("abc", known, strict=True))
    made = make(table, missing="prior").estimate(
        RewardBatch(["a", "x", "y", "z"], [0, 1, 1, 0], sources=["s", "s", "t", "u"])
    )
    of_s = (own["a"] + own["b"]) / 2
    everyone = (own["a"] + own["b"] + own["c"]) / 3
    np.testing.assert_allclose(made.baselines, [own["a"], of_s, own["c"], everyone])
    assert made.metrics["coverage"] == 0.25


@pytest.mark.parametrize("make", [Pvpo, AStarPo])
def test_real_rewards_need_a_table_of_rewards(make):
    with pytest.raises(BatchError, match="from_rewards"):
        make(COUNTS).estimate(batch(rewards=[0.5, 0, 1, 1, 0]))
    table = PassRates.from_rewards(["a", "b"], [[0.5], [0.25]])
    make(table).estimate(batch(rewards=[0.5, 0, 1, 1, 0]))


# Errors


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("reinforce-plus-plus", "lengths"),
        ("opo", "lengths"),
        ("remax", "greedy_rewards"),
        ("critic", "values"),
    ],
)
def test_a_missing_column_is_named_before_anything_else(name, column):
    estimator = create(name)
    assert column in type(estimator).needed_columns
    columns = {other: value for other, value in NEEDED.items() if other != column}
    # Too many rows without a verdict as well: the column comes first.
    with pytest.raises(BatchError, match=rf"'{name}' needs {column}.*{column}=") as caught:
        estimator.estimate(RewardBatch(KEYS, [np.nan] * 5, **columns))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("column", [*NEEDED, "divergences", "row_versions"])
def test_a_column_of_another_length_is_refused(column):
    with pytest.raises(BatchError, match=f"{column} has 4 entries for 5 keys"):
        RewardBatch(KEYS, REWARDS, **{column: [1, 1, 1, 1]})


@pytest.mark.parametrize("make", [Opo, lambda: ReinforcePlusPlus(group_baseline=True)])
def test_one_rollout_for_every_prompt_is_refused(make):
    with pytest.raises(BatchError, match="one rollout"):
        make().estimate(batch(["a", "b", "c", "d", "e"]))


def test_bad_options_are_refused():
    with pytest.raises(ConfigError, match="'verl' or 'openrlhf'"):
        ReinforcePlusPlus(whitening="trl")
    for beta1 in (0, -1.0, math.inf, math.nan, True, "0.5"):
        with pytest.raises(ConfigError, match="beta1"):
            AStarPo(COUNTS, beta1=beta1)
    for make in (Pvpo, AStarPo):
        with pytest.raises(ConfigError, match="pass a PassRates"):
            make({"a": 0.5})
        with pytest.raises(ConfigError, match="'error' or 'prior'"):
            make(COUNTS, missing="mean")
    for name in ("pvpo", "a-star-po"):
        with pytest.raises(ConfigError, match="needs pass rates"):
            create(name)


# What holds for all of them

VALUE = st.floats(-3, 3).map(lambda x: round(x, 3))


@st.composite
def any_batch(draw, binary):
    """Prompts a, b, c with mixed numbers of rollouts; one has two at least."""
    keys = [*draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=12)), "a", "a"]
    size = len(keys)
    rewards = st.sampled_from([0.0, 1.0]) if binary else VALUE
    number = st.integers(1, 50)
    return {
        "keys": keys,
        "rewards": draw(st.lists(rewards, min_size=size, max_size=size)),
        "lengths": draw(st.lists(number, min_size=size, max_size=size)),
        "greedy_rewards": draw(st.lists(VALUE, min_size=size, max_size=size)),
        "values": draw(st.lists(VALUE, min_size=size, max_size=size)),
    }


GROUPED = {"group-mean": {}, "leave-one-out": {}}
EVERYONE = CLASSIC | GROUPED | {"reinforce-plus-plus": {"group_baseline": True}}


@pytest.mark.parametrize("name", sorted(EVERYONE))
@settings(max_examples=40, deadline=None)
@given(columns=any_batch(binary=True), seed=st.integers(0, 1000))
def test_the_order_of_rows_does_not_matter(name, columns, seed):
    order = np.random.default_rng(seed).permutation(len(columns["keys"]))
    made = create(name, **EVERYONE[name]).estimate(RewardBatch(**columns))
    shuffled = RewardBatch(**{what: [x[i] for i in order] for what, x in columns.items()})
    other = create(name, **EVERYONE[name]).estimate(shuffled)
    np.testing.assert_allclose(other.baselines, made.baselines[order], atol=1e-12)
    np.testing.assert_allclose(other.advantages, made.advantages[order], atol=1e-7)


@pytest.mark.parametrize(
    "make", [Opo, LeaveOneOut, lambda: GroupMean(std=False), lambda: ReinforcePlusPlus(std=False)]
)
@settings(max_examples=40, deadline=None)
@given(columns=any_batch(binary=False), factor=st.floats(0.1, 10), offset=st.floats(-5, 5))
def test_baselines_scale_and_shift_with_the_rewards(make, columns, factor, offset):
    made = make().estimate(RewardBatch(**columns))
    rewards = [factor * reward + offset for reward in columns["rewards"]]
    other = make().estimate(RewardBatch(**{**columns, "rewards": rewards}))
    np.testing.assert_allclose(other.baselines, factor * made.baselines + offset, atol=1e-9)
    np.testing.assert_allclose(other.advantages, factor * made.advantages, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(columns=any_batch(binary=False))
def test_equal_lengths_make_plain_means(columns):
    columns["lengths"] = [7] * len(columns["keys"])
    made = RewardBatch(**columns)
    plain = GroupMean(std=False).estimate(made).baselines
    np.testing.assert_allclose(Opo().estimate(made).baselines, plain, atol=1e-12)
    whitened = ReinforcePlusPlus(std=False).estimate(made).baselines
    np.testing.assert_allclose(whitened, np.mean(columns["rewards"]), atol=1e-12)


@pytest.mark.parametrize("name", sorted(CLASSIC))
def test_rows_without_a_verdict_and_turns_of_a_rollout(name):
    estimator = create(name, max_unverified=0.5, **CLASSIC[name])
    expected = estimator.estimate(batch())
    # The last rollout in two turns of half its tokens each, and one more row without a verdict.
    columns = {what: [*x, x[-1], x[-1]] for what, x in NEEDED.items()}
    columns["lengths"] = [1, 3, 2, 2, 3, 1, 9]
    ids = ["0", "1", "0", "1", "2", "2", "3"]
    turns = RewardBatch([*KEYS, "b", "b"], [*REWARDS, 0.0, np.nan], rollout_ids=ids, **columns)
    made = estimator.estimate(turns)
    order = [0, 1, 2, 3, 4, 4]
    np.testing.assert_allclose(made.advantages[:6], expected.advantages[order], atol=1e-12)
    np.testing.assert_allclose(made.baselines[:6], expected.baselines[order], atol=1e-12)
    assert made.advantages[6] == 0.0
    assert np.isnan(made.baselines[6])


@pytest.mark.parametrize("name", sorted(CLASSIC))
def test_a_restart_changes_nothing(name):
    estimator = create(name, **CLASSIC[name])
    first = estimator.estimate(batch()).advantages
    estimator.estimate(batch(rewards=[0, 0, 0, 0, 1]))
    again = create(name, **CLASSIC[name])
    again.load_state_dict(estimator.state_dict())
    np.testing.assert_array_equal(again.estimate(batch()).advantages, first)


def test_equal_rewards_give_no_advantage():
    for rewards in ([1.0] * 5, [0.3] * 5):
        for options in ({}, {"group_baseline": True}, {"whitening": "openrlhf"}):
            made = ReinforcePlusPlus(**options).estimate(batch(rewards=rewards))
            np.testing.assert_allclose(made.advantages, 0.0, atol=1e-11)


def test_a_lone_rollout_beside_groups():
    keys = ["a", "a", "lone", "b", "b"]
    made = Opo().estimate(batch(keys))
    assert made.advantages[2] == 0.0
    assert made.metrics["single_fraction"] == pytest.approx(0.2)
    made = ReinforcePlusPlus(group_baseline=True, std=False).estimate(batch(keys))
    centred = np.array([0.5, -0.5, 0, 0.5, -0.5])
    np.testing.assert_allclose(made.advantages, centred - np.dot(LENGTHS, centred) / 12, atol=1e-15)


@pytest.mark.parametrize("make", [GroupMean, LeaveOneOut, Opo])
def test_mixed_numbers_of_rollouts_are_as_if_each_prompt_came_alone(make):
    rng = np.random.default_rng(3)
    keys = [name for name, n in zip("abcd", (2, 3, 8, 17), strict=True) for _ in range(n)]
    rewards, lengths = rng.random(30), rng.integers(1, 99, 30)
    order = rng.permutation(30)
    made = make().estimate(
        RewardBatch([keys[i] for i in order], rewards[order], lengths=lengths[order])
    )
    for name in "abcd":
        own = np.array([keys[i] == name for i in order])
        alone = make().estimate(
            RewardBatch([name] * own.sum(), rewards[order][own], lengths=lengths[order][own])
        )
        np.testing.assert_allclose(made.advantages[own], alone.advantages, atol=1e-12)


def test_pvpo_is_basis_at_infinite_beta():
    basis = Basis(
        COUNTS, "paper", variant="initial", calibration="whole-batch", betas=[float("inf")]
    )
    np.testing.assert_allclose(
        basis.estimate(batch()).baselines, Pvpo(COUNTS).estimate(batch()).baselines, atol=1e-12
    )
