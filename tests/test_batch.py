from __future__ import annotations

import numpy as np
import pytest

from basis_rl import Basis, BasisError, BatchError, PassRates, RewardBatch
from basis_rl.batch import group_index
from basis_rl.estimators.base import distinct_rollouts


def test_keys_may_be_integers_and_arrays():
    for keys in ([1, 2], np.array([1, 2]), np.array(["1", "2"]), (np.int64(1), "2")):
        assert RewardBatch(keys, [0, 1]).keys == ["1", "2"]


def test_values_are_float64_and_the_batch_is_frozen():
    batch = RewardBatch(["a"], np.array([1], dtype=np.int8), lengths=[3])
    assert batch.rewards.dtype == np.float64
    assert batch.lengths.dtype == np.float64
    with pytest.raises(AttributeError):
        batch.keys = []


def test_steps_and_versions_of_numpy_become_integers():
    batch = RewardBatch(["a"], [1], step=np.int64(3), policy_version=np.uint8(4))
    assert (type(batch.step), type(batch.policy_version)) == (int, int)
    assert (batch.step, batch.policy_version) == (3, 4)


def test_group_index_counts_in_order_of_appearance():
    assert group_index(["b", "a", "b", "c"]).tolist() == [0, 1, 0, 2]


def test_distinct_rollouts_add_lengths_of_turns():
    batch = RewardBatch(
        ["a", "a", "b", "a"],
        [1, 1, np.nan, 0],
        rollout_ids=["x", "x", "x", "y"],
        lengths=[3, 4, 5, 6],
        sources=["s", "s", "t", "s"],
        step=7,
    )
    rollouts, row_of = distinct_rollouts(batch, ~np.isnan(batch.rewards))
    assert rollouts.keys == ["a", "a"]
    assert rollouts.rewards.tolist() == [1, 0]
    assert rollouts.lengths.tolist() == [7, 6]
    assert rollouts.sources == ["s", "s"]
    assert rollouts.step == 7
    assert row_of.tolist() == [0, 0, 1]


# (keys, rewards, options), what the one-line error must name
MALFORMED = [
    (([], []), "empty"),
    ((["a"], []), "rewards has 0 entries for 1 keys"),
    ((["a"], [1, 0]), "rewards has 2 entries for 1 keys"),
    ((["a", "b"], 1.0), "shape ()"),
    ((["a", "b"], [[1.0], [0.0]]), "shape (2, 1)"),
    ((["a"], ["right"]), "cannot be read as numbers"),
    ((["a"], [None]), "NaN"),
    ((["a"], [np.inf]), "rewards[0] is inf"),
    ((["a", "b"], [0, -np.inf]), "rewards[1] is -inf"),
    ((["a", "b"], [0, 1e101]), "rewards[1] is 1e+101"),
    ((["a"], [1 + 2j]), "cannot be read as numbers"),
    (("ab", [1, 0]), "single string 'ab'"),
    ((None, [1]), "keys is a NoneType"),
    ((5, [1]), "keys is a int"),
    (({"a", "b"}, [1, 0]), "keys is a set"),
    ((np.array("a"), [1]), "keys"),
    (
        (["a", "a"], [1, 1], {"rollout_ids": ["x", "x"], "sources": ["s", "t"]}),
        "different sources",
    ),
    (([None], [1]), "keys[0] is None"),
    ((["a", 1.5], [1, 0]), "keys[1] is 1.5"),
    (([True], [1]), "keys[0] is True"),
    ((["a", ("b",)], [1, 0]), "keys[1]"),
    ((["a"], [1], {"sources": []}), "sources has 0 entries"),
    ((["a"], [1], {"sources": "a"}), "single string"),
    ((["a"], [1], {"sources": [None]}), "sources[0] is None"),
    ((["a", "b"], [1, 0], {"rollout_ids": ["x"]}), "rollout_ids has 1 entries for 2 keys"),
    ((["a"], [1], {"rollout_ids": [2.0]}), "rollout_ids[0] is 2.0"),
    ((["a"], [1], {"lengths": [0]}), "lengths[0] is 0.0"),
    ((["a"], [1], {"lengths": [-3]}), "lengths[0] is -3.0"),
    ((["a"], [1], {"lengths": [np.nan]}), "lengths[0] is nan"),
    ((["a"], [1], {"lengths": [np.inf]}), "lengths[0] is inf"),
    ((["a", "b"], [1, 0], {"lengths": [5]}), "lengths has 1 entries"),
    ((["a"], [1], {"step": 2.0}), "step is 2.0"),
    ((["a"], [1], {"step": True}), "step is True"),
    ((["a"], [1], {"step": 10**400}), "whole number below 2**53"),
    ((["a"], [1], {"policy_version": "3"}), "policy_version is '3'"),
    ((["a"], [1], {"policy_version": -(2**53)}), "policy_version is -9007199254740992"),
    ((["a", "b"], [1, 0], {"row_versions": [1, 2**53]}), "row_versions[1] is 9007199254740992"),
    ((["a"], [1], {"row_versions": np.array([2**64 - 1])}), "row_versions[0] is 1844"),
    ((["a"], [1], {"row_versions": [0.5]}), "type float64"),
    ((["a", "b"], [1, 0], {"values": [1, np.nan]}), "values[1] is nan"),
    ((["a"], [1], {"greedy_rewards": [-np.inf]}), "greedy_rewards[0] is -inf"),
    ((["a"], [1], {"divergences": [-0.1]}), "divergences[0] is -0.1"),
    ((["a"], [1], {"divergences": [np.nan]}), "divergences[0] is nan"),
    ((["a"], [0.5]), "not 0 or 1"),
    ((["a"], [3]), "not 0 or 1"),
    ((["zz"], [1]), "first: 'zz'"),
    ((["a", "zz", "yy"], [1, 0, 0]), "2 prompts"),
    ((["a", "b"], [np.nan, np.nan]), "max_unverified"),
    ((["a", "b", "a"], [1, np.nan, 0]), "33.3%"),
    ((["a", "a"], [1, 0], {"rollout_ids": ["x", "x"]}), "different rewards"),
]


@pytest.mark.parametrize(("arguments", "message"), MALFORMED)
def test_malformed_batches_give_one_line_that_names_value_and_place(arguments, message):
    keys, rewards, *rest = arguments
    options = rest[0] if rest else {}
    basis = Basis(PassRates.from_counts(["a", "b"], [1, 2], 4))
    with pytest.raises(BasisError) as caught:
        basis.estimate(RewardBatch(keys, rewards, **options))
    text = str(caught.value)
    assert message in text
    assert "\n" not in text
    assert len(text) < 300


def test_estimate_wants_a_batch_and_keeps_its_own_copy_of_the_rewards():
    basis = Basis(PassRates.from_counts(["a", "b"], [1, 2], 4))
    with pytest.raises(BatchError, match="pass a RewardBatch"):
        basis.estimate([1.0])
    rewards = np.array([1.0, 0.0])
    batch = RewardBatch(["a", "b"], rewards)
    rewards[0] = np.inf
    assert batch.rewards[0] == 1.0


def test_an_error_leaves_the_state_alone():
    basis = Basis(PassRates.from_counts(["a", "b"], [1, 2], 4))
    basis.estimate(RewardBatch(["a", "b"], [1, 1]))
    before = basis.state_dict()
    for keys, rewards in ((["a", "zz"], [1, 0]), (["a", "b"], [0.5, 1]), (["a"], [np.nan])):
        with pytest.raises(BatchError if "zz" not in keys else BasisError):
            basis.estimate(RewardBatch(keys, rewards))
    assert basis.state_dict() == before
