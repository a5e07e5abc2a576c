"""What `Basis` starts from: smoothed pass rates, and stand-ins for prompts outside the table.

Every source, and the whole table, adds one stand-in row behind the table's own; a prompt that the
table does not know is looked up there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from basis_rl.batch import FloatArray, IntArray, group_index
from basis_rl.errors import ConfigError
from basis_rl.estimators.basis_continuous import RewardTable
from basis_rl.passrates.table import PassRates
from basis_rl.smoothing import pseudo_counts, pseudo_observations
from basis_rl.values import logit_of_counts

POPULATION_ATOMS = 32


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

    Raises
    ------
    ConfigError
        If rates whose n is unknown are to be smoothed.
    """
    rates, members = table.means, priors.members()
    sums, prompts = [rates[rows].sum() for rows in members], [len(rows) for rows in members]
    if table.successes is None:
        check_no_smoothing(smoothing)
        # Without pseudo-counts n does not matter: as one rollout with a reward of the rate.
        passed, failed = np.append(rates, sums), np.append(1.0 - rates, np.subtract(prompts, sums))
        return logit_of_counts(passed, failed)
    a, b = pseudo_counts(smoothing, table.successes, table.n)
    successes, n = np.append(table.successes, sums), np.append(table.n, prompts)
    return logit_of_counts(successes + a, n - successes + b)


def check_no_smoothing(smoothing: str) -> None:
    """Refuse to smooth rates whose n is unknown.

    Raises
    ------
    ConfigError
    """
    if smoothing != "none":
        raise ConfigError(
            f"smoothing {smoothing!r} needs the number of rollouts behind each pass rate, and this "
            "table holds rates without it: import them with it (`basis-rl cache import --n N`) if "
            "you know it, or pass smoothing='none' (estimator.smoothing: none in a "
            "configuration), which trusts rates of exactly 0 and 1"
        )


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
    pseudo = pseudo_observations(smoothing, values, offsets)
    return RewardTable(
        values,
        np.concatenate([offsets, np.full(len(members), offsets[-1])]),
        population,
        np.concatenate([own, np.arange(len(members))]),
        np.concatenate([np.full(priors.prompts, pseudo), np.ones(len(members))]),
    )
