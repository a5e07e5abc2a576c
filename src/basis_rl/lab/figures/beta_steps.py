"""Fig. 8: the beta that the paper's recipe chooses, step by step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from basis_rl.estimators import Basis
from basis_rl.lab.figures.draws import Draws, Progress
from basis_rl.lab.figures.history import batches_in_time, shown_once
from basis_rl.lab.record import RewardRecord
from basis_rl.lab.stages import first_visits
from basis_rl.passrates.table import PassRates


@dataclass(frozen=True)
class BetaStep:
    """One batch of a run.

    Attributes
    ----------
    batch : int
        Number of the batch, from 1.
    step : int
        The record's step.
    rows : int
    beta : float
        Chosen by Eq. 5 over the whole batch (preset "paper").
    beta_literal : float
        Chosen by Eq. 5 as printed (preset "paper-literal").
    tau : float
        Common logit shift of preset "robust", which is 1/beta and may be negative.
    """

    batch: int
    step: int
    rows: int
    beta: float
    beta_literal: float
    tau: float


@dataclass(frozen=True)
class BetaStage:
    """Betas that the paper's preset chose in the batches of one stage: median and 95% range."""

    stage: str
    batches: int
    beta: float
    low: float
    high: float


def beta_steps(
    record: RewardRecord,
    pass_rates: PassRates | None = None,
    *,
    batch_size: int = 64,
    cache_rollouts: int = 32,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[BetaStep]:
    """Fig. 8 of a run: its visits in time order, one random rollout of each shown.

    Batches are those of `batches_in_time`. Without a table the cache is each prompt's first
    visits; visits of prompts that a given table does not know are left out.
    """
    rest = np.arange(len(record))
    table = pass_rates if pass_rates is not None else record.pass_rates
    if table is None:
        table, rest = first_visits(record, cache_rollouts)
    known = table.rows(record.keys) >= 0
    rest = rest[known[record.prompt[rest]]]
    rng = np.random.default_rng(seed)
    smoothing = "none" if table.kind == "rates" else None
    presets = ("paper", "paper-literal", "robust")
    estimators = [Basis(table, preset=preset, smoothing=smoothing) for preset in presets]
    rows: list[BetaStep] = []
    for visits in batches_in_time(record, rest, batch_size, rng):
        batch = shown_once(record, visits, rng)
        paper, literal, robust = (e.estimate(batch).metrics for e in estimators)
        rows.append(
            BetaStep(
                len(rows) + 1,
                int(record.step[visits[0]]),
                len(visits),
                paper["beta"],
                literal["beta"],
                robust["tau"],
            )
        )
        if progress is not None:
            progress()
    return rows


def batches_of(record: RewardRecord, batch_size: int) -> int:
    """About how many batches `beta_steps` will make."""
    return max(len(record) // batch_size, 1)


def beta_stage(draws: Draws) -> list[BetaStage]:
    """Fig. 8 of one stage, where there is no run to follow."""
    names = [c.name for c in draws.compared]
    betas = draws.betas[names.index("basis-paper")]
    low, median, high = (float(q) for q in np.quantile(betas, [0.025, 0.5, 0.975]))
    return [BetaStage(draws.stage.name, len(betas), median, low, high)]
