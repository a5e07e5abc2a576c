"""PVPO: the reference policy's mean reward, fixed."""

from __future__ import annotations

from typing import ClassVar

from basis_rl.batch import FloatArray, RewardBatch
from basis_rl.estimators.base import Estimator, check_share
from basis_rl.estimators.table_rows import ReferenceValues, check_table
from basis_rl.passrates.table import PassRates


class Pvpo(Estimator):
    """Mean reward of the reference policy's rollouts, ``b_i = mean_m r_ref,m``; it never moves.

    This is BASIS's initial value at beta = infinity, unsmoothed.

    Parameters
    ----------
    pass_rates : PassRates
        Counts, rewards or bare rates.
    missing : {"error", "prior"}
        A prompt outside the table: an error, or the mean of its source's prompts (of the whole
        table's where the source is unknown).

    Raises
    ------
    ConfigError
        If there is no table, or ``missing`` is unknown.
    MissingPassRateError, BatchError
        In `estimate`: if a prompt is not in the table; if it holds rates of 0/1 rewards and a
        reward is another.

    Notes
    -----
    Any number of rollouts per prompt; the baseline does not use them. The paper's advantage is
    not divided by anything. Its reference is replaced "at fixed steps" without a number; make a
    new estimator with a new table to do that. The paper drops prompts that the reference always
    solves and adds a stronger model's solutions to those that it never does; neither is done here.
    The authors have published no code (the re-implementation in Wodlfvllf/grpo-composer has the
    same formula). No state: a restart needs the same table.

    Source: W. Feng et al., PVPO, arXiv 2508.21104.
    """

    name: ClassVar[str] = "pvpo"
    follows = False

    def __init__(
        self, pass_rates: PassRates, *, missing: str = "error", max_unverified: float = 0.1
    ) -> None:
        self.pass_rates = check_table(pass_rates)
        self._reference = ReferenceValues(pass_rates, pass_rates.means, missing)
        self.max_unverified = check_share("max_unverified", max_unverified)

    def _baselines(self, rollouts: RewardBatch) -> tuple[FloatArray, dict[str, float]]:
        values, coverage = self._reference.of(rollouts)
        return values, {"coverage": coverage}
