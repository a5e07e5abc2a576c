"""Where a batch's prompts are in a table of pass rates."""

from __future__ import annotations

import numpy as np

from basis_rl.batch import FloatArray, IntArray, RewardBatch
from basis_rl.errors import BatchError, ConfigError, MissingPassRateError
from basis_rl.estimators.basis_prior import Priors, with_priors
from basis_rl.passrates.table import PassRates

MISSING = ("error", "prior")


class ReferenceValues:
    """A fixed value of every prompt of a table, and for prompts outside the mean of a population.

    Parameters
    ----------
    table : PassRates
    values : array, shape (P,)
        One value for each of the table's prompts.
    missing : {"error", "prior"}
        A prompt outside the table: an error, or the mean value of its source's prompts (of the
        whole table's where the source is unknown).

    Raises
    ------
    ConfigError
        If ``missing`` is neither.
    """

    def __init__(self, table: PassRates, values: FloatArray, missing: str) -> None:
        if missing not in MISSING:
            raise ConfigError(f"missing is {missing!r}: use 'error' or 'prior'")
        self.table = table
        self.missing = missing
        self._priors = with_priors(table)
        stand_ins = [values[rows].mean() for rows in self._priors.members()]
        self._values = np.append(values, stand_ins)

    def of(self, rollouts: RewardBatch) -> tuple[FloatArray, float]:
        """Value of each rollout's prompt, and the share of rollouts whose prompt is in the table.

        Raises
        ------
        MissingPassRateError, BatchError
            As `rows_of`.
        """
        rows, known = rows_of(self.table, self._priors, rollouts, self.missing)
        return self._values[rows], known


def check_table(table: PassRates | None) -> PassRates:
    """Refuse anything but a table.

    Raises
    ------
    ConfigError
    """
    if not isinstance(table, PassRates):
        raise ConfigError(
            f"pass_rates is a {type(table).__name__}: pass a PassRates, e.g. "
            "PassRates.load('pass-rates.parquet')"
        )
    return table


def rows_of(
    table: PassRates, priors: Priors, rollouts: RewardBatch, missing: str
) -> tuple[IntArray, float]:
    """Each rollout's row, and the share of rollouts whose prompt is in the table.

    Raises
    ------
    MissingPassRateError
        If a prompt is not in the table and ``missing`` is "error"; with "prior" its row is that
        of a stand-in (`Priors.place`).
    BatchError
        If the table holds rates of 0/1 rewards, and a reward is another.
    """
    if not table.is_continuous:
        check_zero_one(rollouts)
    rows = table.rows(rollouts.keys)
    unknown = rows < 0
    if not unknown.any():
        return rows, 1.0
    if missing == "error":
        first = rollouts.keys[int(unknown.argmax())]
        raise MissingPassRateError(
            f"{len({rollouts.keys[i] for i in np.flatnonzero(unknown)})} prompts of the batch "
            f"have no pass rate (first: {first!r}): add them to the table, or pass "
            "missing='prior'"
        )
    sources = rollouts.sources or [""] * len(rows)
    rows = rows.copy()
    rows[unknown] = [priors.place(sources[i]) for i in np.flatnonzero(unknown)]
    return rows, float(1.0 - unknown.mean())


def check_zero_one(rollouts: RewardBatch) -> None:
    """Refuse rewards other than 0 and 1.

    Raises
    ------
    BatchError
        Naming the first one and pointing to the continuous form.
    """
    rewards = rollouts.rewards
    valid = rewards == 0.0
    valid |= rewards == 1.0
    if not valid.all():
        row = int(valid.argmin())
        raise BatchError(
            f"the reward {float(rewards[row])} of prompt {rollouts.keys[row]!r} is not 0 or 1, and "
            "the table holds pass rates of 0/1 rewards: build it with PassRates.from_rewards for "
            "real rewards"
        )
