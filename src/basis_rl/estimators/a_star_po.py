"""A*-PO: the optimal value under a KL penalty, from offline rewards."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from basis_rl.batch import FloatArray, RewardBatch
from basis_rl.errors import ConfigError
from basis_rl.estimators.base import Estimator, check_share
from basis_rl.estimators.table_rows import ReferenceValues, check_table
from basis_rl.passrates.table import PassRates


class AStarPo(Estimator):
    r"""Optimal value of the KL-regularised problem, ``V* = beta1 log mean_m exp(r_ref,m / beta1)``.

    It lies between the reference policy's mean (beta1 to infinity) and its best reward (beta1 to
    0), and never moves. It is a log-mean-exp; BASIS's value is the mean under the same tilt.

    Parameters
    ----------
    pass_rates : PassRates
        Counts, rewards or bare rates (a rate p is the mean over 0/1 rewards).
    beta1 : float
        Temperature in units of the reward, positive; the paper's 0.5.
    missing : {"error", "prior"}
        A prompt outside the table: an error, or the mean V* of its source's prompts (of the whole
        table's where the source is unknown).

    Raises
    ------
    ConfigError
        If beta1 is not positive and finite, there is no table, or ``missing`` is unknown.
    MissingPassRateError, BatchError
        In `estimate`, as `Pvpo`.

    Notes
    -----
    Any number of rollouts per prompt; the paper trains with one. There V* is no baseline of a
    policy gradient but the target of a regression, ``(beta2 log pi/pi_ref - (r - V*))^2`` with
    beta2 = 1e-3; here it is taken as a baseline, and ``r - V*`` has a negative mean until the
    policy is better than its reference. The code's defaults are beta1 = 0.5 and 8 reference
    samples at temperature 1; it also drops prompts with no right sample, and takes beta1 = 0 for
    the mean, which is `Pvpo` here. No state: a restart needs the same table and beta1.

    Source: K. Brantley et al., Accelerating RL for LLM Reasoning with Optimal Advantage
    Regression, arXiv 2505.20686; ZhaolinGao/A-PO `rl_dataset.py`; TRL 1.16
    `trl.experimental.a2po`.
    """

    name: ClassVar[str] = "a-star-po"
    follows = False

    def __init__(
        self,
        pass_rates: PassRates,
        *,
        beta1: float = 0.5,
        missing: str = "error",
        max_unverified: float = 0.1,
    ) -> None:
        self.beta1 = check_beta1(beta1)
        self.pass_rates = check_table(pass_rates)
        self._reference = ReferenceValues(pass_rates, optimal_values(pass_rates, beta1), missing)
        self.max_unverified = check_share("max_unverified", max_unverified)

    def _baselines(self, rollouts: RewardBatch) -> tuple[FloatArray, dict[str, float]]:
        values, coverage = self._reference.of(rollouts)
        return values, {"coverage": coverage}


def check_beta1(beta1: float) -> float:
    """Refuse a temperature that is not positive and finite."""
    if isinstance(beta1, bool) or not isinstance(beta1, int | float) or not 0 < beta1 < np.inf:
        raise ConfigError(
            f"beta1 is {beta1!r}: give a positive number, e.g. 0.5; the limits 0 and infinity are "
            "the best and the mean reward"
        )
    return float(beta1)


def optimal_values(table: PassRates, beta1: float) -> FloatArray:
    """``beta1 log mean exp(r / beta1)`` over each prompt's reference rewards; shape (P,).

    Neither a small beta1 overflows nor a large one cancels: 0/1 rewards take
    ``beta1 log1p(p expm1(1 / beta1))``, or logarithms where that exponential is large; others
    ``top + beta1 log1p(mean expm1((r - top) / beta1))`` with the prompt's largest reward.
    """
    if table.reward_values is None:
        rates = table.means
        if beta1 > 1e-2:
            return np.asarray(beta1 * np.log1p(rates * np.expm1(1.0 / beta1)))
        with np.errstate(divide="ignore"):  # log 0 is -inf, and adds nothing
            return np.asarray(beta1 * np.logaddexp(np.log1p(-rates), np.log(rates) + 1.0 / beta1))
    assert table.reward_offsets is not None
    starts, values = table.reward_offsets[:-1], table.reward_values
    top = np.maximum.reduceat(values, starts)
    with np.errstate(over="ignore"):  # far below the best, -inf adds nothing
        below = np.expm1((values - np.repeat(top, table.n)) / beta1)
    means = np.add.reduceat(below, starts) / table.n
    return np.asarray(top + beta1 * np.log1p(means))
