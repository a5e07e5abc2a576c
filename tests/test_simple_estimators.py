from __future__ import annotations

import re

import numpy as np
import pytest

from basis_rl import (
    Basis,
    BatchError,
    BatchMean,
    ConfigError,
    GroupMean,
    LeaveOneOut,
    PassRates,
    RewardBatch,
    StateError,
    Zero,
    estimators,
)
from basis_rl.errors import nearest
from basis_rl.estimators import registry
from basis_rl.estimators.base import Estimator

KEYS = ["a", "a", "a", "b", "b", "c"]
REWARDS = [1.0, 0.0, 1.0, 0.0, 0.0, 1.0]


def baselines(estimator, keys=KEYS, rewards=REWARDS, **options):
    return estimator.estimate(RewardBatch(keys, rewards, **options)).baselines


def test_zero():
    result = Zero().estimate(RewardBatch(KEYS, REWARDS))
    np.testing.assert_array_equal(result.baselines, 0.0)
    np.testing.assert_array_equal(result.advantages, REWARDS)


def test_batch_mean():
    np.testing.assert_allclose(baselines(BatchMean()), 0.5)
    np.testing.assert_allclose(baselines(BatchMean(), ["a"], [0.25]), 0.25)


def test_batch_mean_counts_a_rollout_of_several_turns_once():
    ids = ["0", "0", "0", "0", "1", "0"]
    rewards = [1.0, 1.0, 1.0, 0.0, 0.0, 1.0]
    np.testing.assert_allclose(baselines(BatchMean(), KEYS, rewards, rollout_ids=ids), 2 / 4)


def test_group_mean():
    result = GroupMean(std=False).estimate(RewardBatch(KEYS, REWARDS))
    np.testing.assert_allclose(result.baselines, [2 / 3] * 3 + [0.0] * 2 + [1.0])
    np.testing.assert_allclose(result.advantages, [1 / 3, -2 / 3, 1 / 3, 0, 0, 0])
    assert result.metrics["single_fraction"] == pytest.approx(1 / 6)


def test_group_mean_divides_by_the_sample_standard_deviation():
    result = GroupMean(epsilon=1e-4).estimate(RewardBatch(KEYS, REWARDS))
    std = np.std([1, 0, 1], ddof=1)
    expected = np.array([1 / 3, -2 / 3, 1 / 3]) / (std + 1e-4)
    np.testing.assert_allclose(result.advantages[:3], expected)
    np.testing.assert_array_equal(result.advantages[3:], 0.0)
    np.testing.assert_allclose(result.baselines[:3], 2 / 3)


def test_leave_one_out():
    np.testing.assert_allclose(baselines(LeaveOneOut()), [0.5, 1.0, 0.5, 0.0, 0.0, 1.0], atol=1e-15)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan")])
def test_group_mean_refuses_an_epsilon_that_cannot_divide(epsilon):
    with pytest.raises(ConfigError, match="epsilon"):
        GroupMean(epsilon=epsilon)


@pytest.mark.parametrize("make", [GroupMean, LeaveOneOut])
def test_one_rollout_for_every_prompt_is_refused(make):
    for keys in (["a"], ["a", "b"]):
        with pytest.raises(BatchError, match=r"one rollout.*'basis-online', 'basis' \("):
            baselines(make(), keys, [1.0] * len(keys))
    turns = RewardBatch(["a", "a"], [1.0, 1.0], rollout_ids=["0", "0"])
    with pytest.raises(BatchError, match="one rollout"):
        make().estimate(turns)


@pytest.mark.parametrize("make", [Zero, BatchMean, GroupMean, LeaveOneOut])
def test_rows_without_a_verdict(make):
    keys, rewards = KEYS * 2, [*REWARDS, *REWARDS[:-1], np.nan]
    result = make(max_unverified=0.2).estimate(RewardBatch(keys, rewards))
    assert np.isnan(result.baselines[-1])
    assert result.advantages[-1] == 0.0
    expected = make().estimate(RewardBatch(keys[:-1], rewards[:-1]))
    np.testing.assert_array_equal(result.advantages[:-1], expected.advantages)
    with pytest.raises(BatchError, match="max_unverified"):
        make(max_unverified=0.01).estimate(RewardBatch(keys, rewards))


@pytest.mark.parametrize("name", ["zero", "batch-mean", "group-mean", "leave-one-out", "basis"])
def test_every_registered_name_makes_an_estimator_whose_state_survives(name):
    table = PassRates.from_counts(["a", "b", "c"], [1, 2, 3], 4)
    estimator = estimators.create(name, pass_rates=table)
    assert estimator.name == name
    estimator.estimate(RewardBatch(KEYS, REWARDS))
    state = estimator.state_dict()
    estimators.create(name, pass_rates=table).load_state_dict(state)
    with pytest.raises(StateError, match="'other'"):
        estimator.load_state_dict({**state, "estimator": "other"})


def test_create_refuses_unknown_names_and_options():
    with pytest.raises(ConfigError, match="did you mean 'batch-mean'"):
        estimators.create("batchmean")
    for name, meant in {
        "grpo": "'group-mean'",
        "Dr.GRPO": "'group-mean'",
        "RLOO": "'leave-one-out'",
        "ppo": "'critic'",
        "SPO": "'spo'",
        "spo++": "'spo-plus-plus'",
        "reinforce++": "'batch-mean' (the mean of the batch) or 'reinforce-plus-plus' (by tokens",
    }.items():
        with pytest.raises(ConfigError, match=re.escape(f"did you mean {meant}")):
            estimators.create(name)
    with pytest.raises(ConfigError, match="known are a-star-po, basis, "):
        estimators.create("foo")
    with pytest.raises(ConfigError, match="did you mean 'std'"):
        estimators.create("group-mean", sdt=True)
    with pytest.raises(ConfigError, match="needs pass rates"):
        estimators.create("basis")
    table = PassRates.from_counts(["a"], [1], 2)
    with pytest.raises(ConfigError, match="did you mean 'variant'"):
        estimators.create("basis", pass_rates=table, varaint="unb")


def test_every_method_that_a_paper_names_is_registered():
    for method, meant in registry.METHODS.items():
        assert set(meant) <= set(estimators.names()), method
        assert method not in estimators.names()
        assert registry.nearest_name(method.upper()).startswith(f": did you mean {meant[0]!r}")


@pytest.mark.parametrize(
    ("word", "known", "end"),
    [
        ("VERL", ["verl", "trl"], ": did you mean 'verl'?"),
        ("verl", ["VERL"], ": did you mean 'VERL'?"),
        ("sdt", ["epsilon", "std"], ": did you mean 'std'?"),
        ("grpo", ["krpo", "opo"], ": known are krpo, opo"),
        ("foo", ["opo"], ": known are opo"),
        ("oppoo", ["opo"], ": did you mean 'opo'?"),
        ("eave-one-out", ["leave-one-out"], ": did you mean 'leave-one-out'?"),
        ("", ["opo"], ": known are opo"),
        ("foo", [], ": it takes none"),
    ],
)
def test_short_words_are_close_by_their_first_letter(word, known, end):
    assert nearest(word, known) == end


def test_other_packages_register_theirs(monkeypatch):
    monkeypatch.setattr(registry, "_FACTORIES", dict(registry._FACTORIES))

    class Half(Estimator):
        name = "half"

        def _baselines(self, rollouts):
            return np.full(len(rollouts), 0.5), {}

    estimators.register("half", Half)
    np.testing.assert_allclose(baselines(estimators.create("half")), 0.5)
    with pytest.raises(ConfigError, match="replace=True"):
        estimators.register("half", Half)
    estimators.register("half", Half, replace=True)


def test_an_installed_package_is_found_by_its_entry_point(monkeypatch):
    monkeypatch.setattr(registry, "_FACTORIES", dict(registry._FACTORIES))
    calls = []

    class EntryPoint:
        def load(self):
            calls.append("loaded")
            estimators.register("somebodys", Zero)

    def entry_points(group, name):
        return [EntryPoint()] if (group, name) == ("basis_rl.estimators", "somebodys") else []

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    assert isinstance(estimators.create("somebodys"), Zero)
    assert calls == ["loaded"]


def test_basis_is_an_estimator_with_the_same_three_verbs():
    for cls in (Basis, Zero, BatchMean, GroupMean, LeaveOneOut):
        assert issubclass(cls, Estimator)
        for verb in ("estimate", "state_dict", "load_state_dict"):
            assert callable(getattr(cls, verb))
    assert "basis" in estimators.names()
