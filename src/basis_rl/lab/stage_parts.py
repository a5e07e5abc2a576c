"""A stage out of rewards by prompt."""

from __future__ import annotations

import numpy as np

from basis_rl.batch import FloatArray
from basis_rl.lab.record import RecordError, Stage
from basis_rl.passrates.table import PassRates


def check_known(table: PassRates, keys: list[str], name: str) -> None:
    """Refuse a table that lacks a prompt of the record called ``name``."""
    unknown = [key for key, row in zip(keys, table.rows(keys), strict=True) if row < 0]
    if unknown:
        raise RecordError(
            f"{name}: {len(unknown)} of {len(keys)} prompts have no pass rate (first: "
            f"{unknown[0]!r}): extend the table, or name the one of these prompts"
        )


def stage_from(
    name: str,
    keys: list[str],
    rewards: list[FloatArray],
    shown: int,
    table: PassRates,
    sources: list[str] | None,
) -> Stage:
    """The first ``shown`` rewards of each prompt are shown, the others are the oracle."""
    others = [r[shown:] for r in rewards]
    halves = [(r[::2], r[1::2]) for r in others]
    return Stage(
        name,
        keys,
        np.stack([r[:shown] for r in rewards]),
        np.array([r.mean() for r in others]),
        np.array([variance_of_mean(r) for r in others]),
        table,
        sources,
        np.array([[half.mean() for half in pair] for pair in halves]).T,
        np.array([[variance_of_mean(half) for half in pair] for pair in halves]).T,
    )


def variance_of_mean(rewards: FloatArray) -> float:
    """Unbiased sampling variance of the mean of some rewards."""
    return float(rewards.var(ddof=1) / len(rewards))
