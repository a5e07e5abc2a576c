"""Normalising advantages: a step of its own after any estimator."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from basis_rl.batch import BoolArray, Estimate, FloatArray, RewardBatch, group_index, sum_by
from basis_rl.errors import BatchError, ConfigError, nearest
from basis_rl.whitening import WHITENING_EPSILON, weighted_moments

TRL_EPSILON = 1e-4
VERL_GROUP_EPSILON = 1e-6


def normalize_advantages(estimate: Estimate, batch: RewardBatch, how: str = "batch") -> Estimate:
    r"""Advantages with a common scale; baselines stay what they are.

    ================  ===========================================================================
    ``"none"``        A as it is
    ``"batch"``       ``(A - mean) / (std + 1e-4)``: every rollout counts once, std with B - 1.
                      TRL's `RLOOConfig(normalize_advantages=True)`
    ``"tokens"``      ``(A - mu) / sqrt(var + 1e-8)`` with ``mu = sum L_i A_i / sum L_i``, var
                      over tokens, minus 1 in the denominator. verl's `masked_whiten`; the measure
                      is that of SPO++ (arXiv 2608.24870, Eq. 5)
    ``"group"``       ``A / (std_g + 1e-6)``, std_g over the prompt's advantages, not centred.
                      On group means this is GRPO, with verl's epsilon (TRL's is 1e-4)
    ``"reward-std"``  ``A / (std(r) + 1e-4)``, std over the batch's rewards, not centred. On
                      group means this is TRL's `scale_rewards="batch"` (arXiv 2508.08221)
    ================  ===========================================================================

    Parameters
    ----------
    estimate : Estimate
        What an estimator made of ``batch``.
    batch : RewardBatch
    how : str
        A name of the table.

    Returns
    -------
    Estimate
        Rows without a verdict keep advantage 0 and enter no sum.

    Raises
    ------
    ConfigError
        If the name is unknown.
    BatchError
        If the estimate is another batch's, "tokens" has no lengths, or "group" no prompt with a
        second rollout.

    Notes
    -----
    Means and standard deviations contain the row's own reward: what an estimator left out comes
    back with weight 1/B. "batch" and "tokens" move the mean, so an advantage of 0 need not stay
    0. The turns of a rollout (`rollout_ids`) count once together in "batch", "group" and
    "reward-std", and by their own tokens in "tokens". A prompt's lone rollout keeps its advantage
    under "group", as in verl. Equal advantages become 0 under "batch" and "tokens".
    """
    if how not in _WAYS:
        raise ConfigError(f"how is {how!r}{nearest(how, sorted(_WAYS))}")
    if len(estimate.advantages) != len(batch):
        raise BatchError(
            f"the estimate has {len(estimate.advantages)} rows and the batch {len(batch)}: pass "
            "the batch that it was made of"
        )
    verified = ~np.isnan(estimate.baselines)
    if how == "none" or not verified.any():
        return estimate
    advantages = np.zeros(len(batch))
    advantages[verified] = _WAYS[how](estimate.advantages[verified], batch, verified)
    return dataclasses.replace(
        estimate, advantages=advantages, metrics=_updated(estimate, advantages[verified])
    )


def _tokens(advantages: FloatArray, batch: RewardBatch, verified: BoolArray) -> FloatArray:
    if batch.lengths is None:
        raise BatchError(
            "normalising by tokens needs lengths, and the batch has none: pass RewardBatch(keys, "
            "rewards, lengths=...), each completion's number of tokens"
        )
    mean, variance = weighted_moments(advantages, batch.lengths[verified])
    return np.asarray((advantages - mean) / np.sqrt(variance + WHITENING_EPSILON))


def _batch(advantages: FloatArray, batch: RewardBatch, verified: BoolArray) -> FloatArray:
    mean, variance = weighted_moments(advantages, _share(batch, verified))
    return np.asarray((advantages - mean) / (np.sqrt(variance) + TRL_EPSILON))


def _reward_std(advantages: FloatArray, batch: RewardBatch, verified: BoolArray) -> FloatArray:
    _, variance = weighted_moments(batch.rewards[verified], _share(batch, verified))
    return np.asarray(advantages / (np.sqrt(variance) + TRL_EPSILON))


def _group(advantages: FloatArray, batch: RewardBatch, verified: BoolArray) -> FloatArray:
    prompt = group_index([batch.keys[i] for i in np.flatnonzero(verified)])
    share, size = _share(batch, verified), int(prompt.max()) + 1
    rollouts = sum_by(prompt, share, size)
    if rollouts.max() < 1.5:  # sums of fractions
        raise BatchError(
            "every prompt has one rollout, which has no standard deviation: sample 2 or more per "
            "prompt, or use how='batch' or 'tokens'"
        )
    deviations = advantages - (sum_by(prompt, share * advantages, size) / rollouts)[prompt]
    squares = sum_by(prompt, share * deviations**2, size)
    std = np.sqrt(squares / np.maximum(rollouts - 1.0, 1.0))
    return np.where(rollouts < 1.5, 1.0, 1.0 / (std + VERL_GROUP_EPSILON))[prompt] * advantages


def _share(batch: RewardBatch, verified: BoolArray) -> FloatArray:
    """Each row's share of its rollout: 1, or one by the rollout's number of rows."""
    if batch.rollout_ids is None:
        return np.ones(int(verified.sum()))
    rows = np.flatnonzero(verified)
    rollout = group_index([(batch.keys[i], batch.rollout_ids[i]) for i in rows])
    return np.asarray(1.0 / np.bincount(rollout)[rollout])


_WAYS: dict[str, Callable[[FloatArray, RewardBatch, BoolArray], FloatArray]] = {
    "none": lambda advantages, batch, verified: advantages,
    "batch": _batch,
    "tokens": _tokens,
    "group": _group,
    "reward-std": _reward_std,
}


def _updated(estimate: Estimate, advantages: FloatArray) -> dict[str, float]:
    """The estimator's metrics with those of the new advantages."""
    metrics = dict(estimate.metrics)
    std = float(advantages.std())
    metrics["advantage_mean"] = float(advantages.mean())
    metrics["advantage_std"] = std
    metrics["advantage_zero_fraction"] = float((advantages == 0).mean())
    reward_std = metrics.get("reward_std", 0.0)
    metrics["advantage_to_reward_std"] = std / reward_std if reward_std > 0 else float("nan")
    return metrics
