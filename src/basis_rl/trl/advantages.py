"""From an estimate to the advantages in the loss: scaling, importance weights, GPG's factor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from basis_rl.batch import Estimate, FloatArray, RewardBatch
from basis_rl.normalize import normalize_advantages
from basis_rl.trl.objectives import gpg_factor

if TYPE_CHECKING:
    from basis_rl.trl.config import BasisConfig


def make_batch(rows: list[tuple[Any, ...]], rewards: FloatArray, *, step: int) -> RewardBatch:
    """Generation batch of all processes.

    Parameters
    ----------
    rows : list of (key, source, length)
        Of all processes, in order; the source is None where there are none.
    rewards : float64 array, shape (B,)
    step : int
        Optimizer steps so far. Generation batches of one optimizer step share it: they are of the
        same policy, and nothing can have drifted between them.
    """
    keys, sources, lengths = zip(*rows, strict=True)
    return RewardBatch(
        list(keys),
        rewards,
        sources=None if sources[0] is None else list(sources),
        lengths=np.array(lengths, dtype=np.float64),
        step=step,
        policy_version=step,
        row_versions=np.full(len(keys), step, dtype=np.int64),
    )


def in_the_loss(
    config: BasisConfig,
    batch: RewardBatch,
    estimate: Estimate,
    weights: FloatArray | None,
) -> tuple[FloatArray, dict[str, float]]:
    """Advantages as the loss sees them, shape (B,), and metrics of how they came about.

    In this order: the estimator's advantages; ``scale_rewards`` or ``normalize_advantages``; the
    prompt sampler's weights, so that they undo its choice exactly; GPG's factor.
    """
    how = "reward-std" if config.scale_rewards == "batch" else config.normalize_advantages
    if np.isfinite(batch.rewards).sum() > 1:  # one alone has no spread
        estimate = normalize_advantages(estimate, batch, how)
    advantages, metrics = estimate.advantages, {}
    if weights is not None:
        advantages = advantages * weights
    if config.objective == "gpg":
        metrics["gpg_scale"] = gpg_factor(
            config.gpg_scale, batch.keys, batch.rewards, advantages, config.num_generations
        )
        advantages = advantages * metrics["gpg_scale"]
    return advantages, metrics


def centred(rewards: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Rewards minus their mean, 0 where there is no verdict, and the mean; both shape (B,)."""
    seen = ~np.isnan(rewards)
    mean = rewards[seen].mean() if seen.any() else np.nan
    return np.where(seen, rewards - mean, 0.0), np.full_like(rewards, mean)
