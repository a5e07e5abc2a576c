"""Advantages against verl's own functions, on random batches in double precision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
import verl.utils.torch_functional as verl_torch
from hypothesis import given, settings
from hypothesis import strategies as st
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo import core_algos

from basis_rl import RewardBatch, estimators, normalize_advantages
from basis_rl.gae import gae
from basis_rl.whitening import whiten_tokens

TOKENS = 12
TOLERANCE = 1e-6
random_batches = settings(max_examples=80, deadline=None)


@dataclass
class Batch:
    """One batch, as verl and as the estimators want it."""

    ids: list[str]
    rewards: np.ndarray
    mask: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return self.mask.sum(axis=1)

    @property
    def alone(self) -> np.ndarray:
        return np.array([self.ids.count(name) == 1 for name in self.ids])

    def ours(self, **columns) -> RewardBatch:
        return RewardBatch(self.ids, self.rewards, lengths=self.lengths, **columns)

    def verl(self) -> dict:
        """The reward at each row's last token, as verl's reward managers put it."""
        rewards = np.zeros(self.mask.shape)
        last = [np.flatnonzero(row)[-1] for row in self.mask]
        rewards[np.arange(len(last)), last] = self.rewards
        return {
            "token_level_rewards": torch.from_numpy(rewards),
            "response_mask": torch.from_numpy(self.mask),
        }

    def verl_advantages(self, name: str, **arguments) -> np.ndarray:
        """One advantage a row; the same at each of its tokens, and 0 elsewhere."""
        function = core_algos.get_adv_estimator_fn(name)
        advantages = function(**self.verl(), **arguments)[0].numpy()
        first = self.mask.argmax(axis=1)
        scalars = advantages[np.arange(len(first)), first]
        np.testing.assert_allclose(advantages, scalars[:, None] * self.mask, atol=1e-12)
        return scalars

    @property
    def index(self) -> np.ndarray:
        return np.array(self.ids, dtype=object)


BINARY = st.sampled_from([0.0, 1.0])
REAL = st.floats(-3, 3, allow_nan=False).map(lambda x: round(x, 3))


@st.composite
def batches(draw, least=1, holes=False):
    """Prompts in any order, each with ``least`` to 5 rollouts; one at least has two."""
    sizes = [max(2, least), *draw(st.lists(st.integers(least, 5), max_size=6))]
    ids = draw(st.permutations([f"prompt-{i}" for i, n in enumerate(sizes) for _ in range(n)]))
    values = draw(st.sampled_from([BINARY, REAL, st.just(1.0)]))
    rewards = draw(st.lists(values, min_size=len(ids), max_size=len(ids)))
    mask = np.zeros((len(ids), TOKENS))
    for row in mask:
        row[: draw(st.integers(1, TOKENS))] = 1.0
        if holes and row.sum() > 2:
            row[draw(st.integers(0, int(row.sum()) - 2))] = 0.0
    return Batch(list(ids), np.array(rewards), mask)


def ours(name: str, batch: RewardBatch, **options) -> np.ndarray:
    return estimators.create(name, **options).estimate(batch).advantages


def allowed(batch: Batch, rewards: np.ndarray) -> float:
    """verl adds 1e-8 to the number of tokens, which shows where all are equal and 1 / std is 1e4.

    Our advantage is then exactly 0.
    """
    equal = float(np.ptp(rewards)) == 0.0
    return TOLERANCE + equal * 1.01e-4 * float(np.abs(rewards).max()) / batch.mask.sum()


@pytest.mark.parametrize(
    ("name", "std"), [("grpo", True), ("grpo", False), ("grpo_vectorized", False)]
)
@random_batches
@given(batch=batches())
def test_grpo(name, std, batch):
    theirs = batch.verl_advantages(name, index=batch.index, norm_adv_by_std_in_grpo=std)
    mine = ours("group-mean", batch.ours(), std=std)
    tolerance = TOLERANCE if name == "grpo" else 2e-6  # the vectorised form is in single precision
    np.testing.assert_allclose(mine[~batch.alone], theirs[~batch.alone], atol=tolerance)
    # verl keeps the raw reward of a lone rollout, we give it no advantage.
    np.testing.assert_array_equal(mine[batch.alone], 0.0)
    np.testing.assert_allclose(theirs[batch.alone], batch.rewards[batch.alone], atol=1e-5)


@random_batches
@given(batch=batches())
def test_rloo(batch):
    mine = ours("leave-one-out", batch.ours())
    plain = batch.verl_advantages("rloo", index=batch.index)
    vectorised = batch.verl_advantages("rloo_vectorized", index=batch.index)
    np.testing.assert_allclose(mine, vectorised, atol=TOLERANCE)
    np.testing.assert_allclose(mine[~batch.alone], plain[~batch.alone], atol=TOLERANCE)
    # The two disagree on a lone rollout: raw reward, and 0 as here.
    np.testing.assert_allclose(plain[batch.alone], batch.rewards[batch.alone])


@random_batches
@given(batch=batches())
def test_opo(batch):
    mine = ours("opo", batch.ours())
    theirs = batch.verl_advantages("opo", index=batch.index)
    np.testing.assert_allclose(mine[~batch.alone], theirs[~batch.alone], atol=TOLERANCE)
    np.testing.assert_allclose(mine[batch.alone], 0.0, atol=1e-12)
    np.testing.assert_allclose(theirs[batch.alone], batch.rewards[batch.alone])


@random_batches
@given(batch=batches(holes=True))
def test_reinforce_plus_plus(batch):
    theirs = batch.verl_advantages("reinforce_plus_plus", config=AlgoConfig(gamma=1.0))
    mine = ours("reinforce-plus-plus", batch.ours())
    np.testing.assert_allclose(mine, theirs, atol=allowed(batch, batch.rewards))


@random_batches
@given(batch=batches(least=2))
def test_reinforce_plus_plus_with_a_group_baseline(batch):
    theirs = batch.verl_advantages("reinforce_plus_plus_baseline", index=batch.index)
    mine = ours("reinforce-plus-plus", batch.ours(), group_baseline=True)
    np.testing.assert_allclose(mine, theirs, atol=TOLERANCE)


def test_reinforce_plus_plus_with_a_lone_rollout():
    batch = Batch(["a", "a", "b"], np.array([1.0, 0.0, 1.0]), np.ones((3, TOKENS)))
    theirs = batch.verl_advantages("reinforce_plus_plus_baseline", index=batch.index)
    mine = ours("reinforce-plus-plus", batch.ours(), group_baseline=True)
    assert theirs[2] > 1.0  # the raw reward goes into the whitening
    np.testing.assert_allclose(mine[2], 0.0, atol=1e-12)


@random_batches
@given(batch=batches(), data=st.data())
def test_remax(batch, data):
    greedy = data.draw(st.lists(REAL, min_size=len(batch.ids), max_size=len(batch.ids)))
    theirs = batch.verl_advantages("remax", reward_baselines=torch.tensor(greedy).double())
    mine = ours("remax", batch.ours(greedy_rewards=greedy))
    np.testing.assert_allclose(mine, theirs, atol=TOLERANCE)


@random_batches
@given(
    batch=batches(holes=True),
    gamma=st.sampled_from([1.0, 0.99, 0.5, 0.0]),
    lam=st.sampled_from([1.0, 0.95, 0.0]),
    seed=st.integers(0, 2**16),
)
def test_gae(batch, gamma, lam, seed):
    rng = np.random.default_rng(seed)
    rewards, values = rng.normal(size=batch.mask.shape), rng.normal(size=batch.mask.shape)
    theirs, their_returns = core_algos.compute_gae_advantage_return(
        torch.from_numpy(rewards),
        torch.from_numpy(values),
        torch.from_numpy(batch.mask),
        gamma,
        lam,
    )
    advantages, returns = gae(rewards, values, batch.mask, gamma, lam)
    inside = batch.mask == 1
    np.testing.assert_allclose(returns[inside], their_returns.numpy()[inside], atol=TOLERANCE)
    whitened = whiten_tokens(advantages, batch.mask)
    np.testing.assert_allclose(whitened[inside], theirs.numpy()[inside], atol=TOLERANCE)
    assert not advantages[~inside].any()
    assert not returns[~inside].any()


@random_batches
@given(batch=batches(), seed=st.integers(0, 2**16))
def test_a_critic_is_gae_of_the_first_token(batch, seed):
    values = np.random.default_rng(seed).normal(size=batch.mask.shape)
    advantages, _ = gae(batch.verl()["token_level_rewards"].numpy(), values, batch.mask)
    mine = ours("critic", batch.ours(values=values[:, 0]))
    np.testing.assert_allclose(mine, advantages[:, 0], atol=1e-9)


@random_batches
@given(batch=batches(holes=True), shift_mean=st.booleans())
def test_whitening(batch, shift_mean):
    values = torch.from_numpy(batch.rewards[:, None] * np.ones(TOKENS))
    mask = torch.from_numpy(batch.mask)
    theirs = (verl_torch.masked_whiten(values, mask, shift_mean=shift_mean) * mask).numpy()
    mine = whiten_tokens(values.numpy(), batch.mask, shift_mean=shift_mean)
    np.testing.assert_allclose(mine, theirs, atol=allowed(batch, batch.rewards))


@random_batches
@given(batch=batches(least=2))
def test_normalising_after_an_estimator(batch):
    made = batch.ours()
    whole = estimators.create("zero").estimate(made)
    theirs = batch.verl_advantages("reinforce_plus_plus", config=AlgoConfig(gamma=1.0))
    mine = normalize_advantages(whole, made, "tokens").advantages
    np.testing.assert_allclose(mine, theirs, atol=allowed(batch, batch.rewards))
    centred = estimators.create("group-mean", std=False).estimate(made)
    theirs = batch.verl_advantages("grpo", index=batch.index)
    mine = normalize_advantages(centred, made, "group").advantages
    np.testing.assert_allclose(mine, theirs, atol=TOLERANCE)
    theirs = batch.verl_advantages("reinforce_plus_plus_baseline", index=batch.index)
    mine = normalize_advantages(centred, made, "tokens").advantages
    np.testing.assert_allclose(mine, theirs, atol=TOLERANCE)
