"""Finding out before anything is sampled who can take part in a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from basis_rl.lab.gradient.advantages import advantages_of
from basis_rl.lab.gradient.batches import Trained, draws, layouts_of
from basis_rl.lab.gradient.pool import RolloutPool
from basis_rl.lab.gradient.sample import PoolSettings
from basis_rl.passrates.table import PassRates

if TYPE_CHECKING:
    from basis_rl.prompts import Prompt


def rehearse(
    prompts: Sequence[Prompt],
    settings: PoolSettings,
    names: Sequence[str] | None,
    *,
    pass_rates: PassRates | None,
    budget: int,
    group: int,
) -> None:
    """Give every estimator a batch of made-up rewards in each layout.

    Parameters
    ----------
    prompts, settings
        Of the rollouts that will be sampled.
    names, pass_rates
        As `advantages_of`.
    budget, group : int
        As `layouts_of`.

    Raises
    ------
    BasisError
        Of the estimator that refuses: its name, pass rates that do not know a prompt, a column.
    """
    pool = _made_up(prompts, settings)
    P, K = pool.rewards.shape
    draw = next(draws(1, P, K, group, seed=0))
    for one in advantages_of(pool, names, pass_rates=pass_rates, batch_size=budget):
        for layout in layouts_of(one, budget, group):
            rows = Trained.of(draw, layout, K).shown[0, : layout.prompts]
            one(rows.ravel())


def _made_up(prompts: Sequence[Prompt], settings: PoolSettings) -> RolloutPool:
    random, P, K = np.random.default_rng(0), len(prompts), settings.rollouts
    rewards = random.integers(2, size=(P, K + settings.offline + settings.epochs)).astype(float)
    sources = [prompt.source or "" for prompt in prompts]
    return RolloutPool(
        [prompt.key for prompt in prompts],
        rewards[:, :K],
        np.ones((P, K)),
        np.zeros((P, K, 1), dtype=np.float32),
        np.ones((P, K)),
        rewards[:, K : K + settings.offline],
        rewards[:, K + settings.offline :],
        sources if any(sources) else None,
    )
