"""SPO: a Beta distribution of every prompt's pass rate, with forgetting.

Source: arXiv 2509.13232.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from basis_rl.batch import FloatArray, RewardBatch
from basis_rl.errors import ConfigError
from basis_rl.estimators.base import check_number
from basis_rl.estimators.tracking.beta_tracker import BetaTracker
from basis_rl.estimators.tracking.tracker import Visits
from basis_rl.passrates.table import PassRates


class Spo(BetaTracker):
    r"""Beta tracker of single-stream policy optimisation, ``b_i = v = a / (a + b)``.

    After a visit ``a <- rho a + r`` and ``b <- rho b + 1 - r`` with
    ``rho = clip(2^(-D / D_half), *rho_range)``, D being how far the policy moved since the
    prompt's last visit (`RewardBatch.divergences`).

    Parameters
    ----------
    pass_rates : PassRates, optional
        ``a = N (S + 1/2) / (n + 1)`` and ``b = N - a`` with N = `prior_rollouts`. Prompts outside
        the table, or all without one, start from the mean of other prompts (see `Starts`) with
        the weight of `unseen_rollouts`.
    rho : float
        Where the batch has no divergences. 0.875, the published configuration's value for
        ``rho.type: constant``.
    half_divergence : float
        D_half, 0.06.
    rho_range : (float, float)
        (0.875, 0.96).
    prior_rollouts : float
        N, 8: what the tracker holds in the long run at rho 0.875, ``1 / (1 - rho)``.
    unseen_rollouts : float
        1, as in the published code without offline rollouts, which starts all at 1/2 instead.
    max_staleness : int
        Versions that a row may lag behind and still be taken in. The paper has no stale rows.
    max_unverified : float
        Largest share of NaN rewards accepted.

    Raises
    ------
    ConfigError, BatchError
        If an option is out of range, or a reward (of the table or the batch) is outside 0 to 1.

    Notes
    -----
    The baseline is the one before the batch, so a row's own reward never moves it, nor do the
    prompt's other rollouts in the same batch: the paper samples one. Several are forgotten once,
    at their mean D, and all added; in the published code the last one alone survives. A reward
    between 0 and 1 is that much of a success. The paper also whitens the advantages over the
    batch, which is a step of its own here (`basis_rl.normalize`). A restart needs `state_dict`:
    a and b of every prompt.

    Source: Z. Xu and Z. Ding, arXiv 2509.13232, and its code in verl-recipe, ``spo/``.
    """

    name: ClassVar[str] = "spo"

    def __init__(
        self,
        pass_rates: PassRates | None = None,
        *,
        rho: float = 0.875,
        half_divergence: float = 0.06,
        rho_range: tuple[float, float] = (0.875, 0.96),
        prior_rollouts: float = 8.0,
        unseen_rollouts: float = 1.0,
        max_staleness: int = 0,
        max_unverified: float = 0.1,
    ) -> None:
        super().__init__(
            pass_rates,
            prior_rollouts=prior_rollouts,
            unseen_rollouts=unseen_rollouts,
            max_staleness=max_staleness,
            max_unverified=max_unverified,
        )
        self.rho = check_number("rho", rho, 0.0, 1.0)
        self.half_divergence = check_number("half_divergence", half_divergence, 1e-6)
        if not isinstance(rho_range, tuple | list) or len(rho_range) != 2:
            raise ConfigError(f"rho_range is {rho_range!r}: give two numbers, e.g. (0.875, 0.96)")
        low = check_number("rho_range[0]", rho_range[0], 0.0, 1.0)
        self.rho_range = (low, check_number("rho_range[1]", rho_range[1], low, 1.0))

    def _update(self, visits: Visits, rollouts: RewardBatch) -> None:
        rho: FloatArray | float = self.rho
        if rollouts.divergences is not None:
            moved = visits.mean_of(rollouts.divergences)
            rho = np.clip(np.exp2(-moved / self.half_divergence), *self.rho_range)
        a, b = self.states["successes"], self.states["failures"]
        a[visits.rows] = rho * a[visits.rows] + visits.total
        b[visits.rows] = rho * b[visits.rows] + (visits.count - visits.total)
