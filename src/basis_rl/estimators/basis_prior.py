"""What `Basis` starts from: smoothed pass rates, and stand-ins for prompts outside the table.

Every source, and the whole table, adds one stand-in row behind the table's own; a prompt that the
table does not know is looked up there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from basis_rl.batch import FloatArray, IntArray, group_index
from basis_rl.estimators.basis_continuous import RewardTable
from basis_rl.passrates.table import PassRates
from basis_rl.smoothing import credibility_pseudo_count, pseudo_counts
from basis_rl.values import logit_of_counts

POPULATION_ATOMS = 32
# Pseudo-observations for stored rewards; "empirical-bayes" fits the number.
PSEUDO_OBSERVATIONS = {"none": 0.0, "jeffreys": 1.0}


class Priors(NamedTuple):
    """Populations that a prompt outside the table may come from.

    Attributes
    ----------
    names : dict of str to int
        Number of each source of the table, in order of appearance.
    prompts : int
        Rows of the table; stand-ins follow them, the whole table's last.
    source_of : int array, shape (P,), or None
    """

    names: dict[str, int]
    prompts: int
    source_of: IntArray | None

    def place(self, source: str) -> int:
        """Row of the stand-in for a source, or of the whole table's if it is unknown."""
        return self.prompts + self.names.get(source, len(self.names))

    def members(self) -> list[IntArray]:
        """Rows of each population: every source's, then all."""
        everyone = np.arange(self.prompts)
        if self.source_of is None:
            return [everyone]
        order = np.argsort(self.source_of, kind="stable")
        ends = np.cumsum(np.bincount(self.source_of))[:-1]
        return [*np.split(order, ends), everyone]


def with_priors(table: PassRates) -> Priors:
    """Populations of a table."""
    if table.sources is None:
        return Priors({}, len(table.keys), None)
    names = {name: number for number, name in enumerate(dict.fromkeys(table.sources))}
    return Priors(names, len(table.keys), group_index(table.sources))


def binary_logits(table: PassRates, priors: Priors, smoothing: str) -> FloatArray:
    """Logit of the smoothed pass rate, ``log(k + a) - log(n - k + b)``, of prompts and stand-ins.

    A stand-in is the mean of its prompts' pass rates, which counts as many rollouts as there are
    prompts.
    """
    assert table.successes is not None
    a, b = pseudo_counts(smoothing, table.successes, table.n)
    rates = table.successes / table.n
    members = priors.members()
    successes = np.concatenate([table.successes, [rates[rows].sum() for rows in members]])
    n = np.concatenate([table.n, [len(rows) for rows in members]])
    return logit_of_counts(successes + a, n - successes + b)


def reward_table(table: PassRates, priors: Priors, smoothing: str) -> RewardTable:
    """Stored rewards of prompts and stand-ins; a stand-in has its population's rewards alone."""
    assert table.reward_values is not None
    assert table.reward_offsets is not None
    values, offsets = table.reward_values, table.reward_offsets
    members = priors.members()
    prompts = np.split(values, offsets[1:-1])
    inside = [np.concatenate([prompts[row] for row in rows]) for rows in members]
    levels = (np.arange(POPULATION_ATOMS) + 0.5) / POPULATION_ATOMS
    population = np.stack([np.quantile(rewards, levels) for rewards in inside])
    own = priors.source_of if priors.source_of is not None else np.zeros(priors.prompts, np.int64)
    pseudo = (
        credibility_pseudo_count(values, offsets)
        if smoothing == "empirical-bayes"
        else PSEUDO_OBSERVATIONS[smoothing]
    )
    return RewardTable(
        values,
        np.concatenate([offsets, np.full(len(members), offsets[-1])]),
        population,
        np.concatenate([own, np.arange(len(members))]),
        np.concatenate([np.full(priors.prompts, pseudo), np.ones(len(members))]),
    )
