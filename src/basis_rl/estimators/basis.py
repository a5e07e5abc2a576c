"""BASIS: baselines from an offline pass rate and the rewards of the rest of the batch.

Source: arXiv 2605.27293.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from basis_rl.batch import FloatArray, IntArray, RewardBatch
from basis_rl.errors import ConfigError, StateError
from basis_rl.estimators.base import (
    Estimator,
    State,
    check_share,
    check_verified,
    distinct_rollouts,
    spread,
)
from basis_rl.estimators.basis_continuous import ContinuousGrid, ContinuousShift
from basis_rl.estimators.basis_grid import BinaryGrid
from basis_rl.estimators.basis_options import BasisOptions, resolve_options
from basis_rl.estimators.basis_prior import binary_logits, reward_table, with_priors
from basis_rl.estimators.basis_shift import BinaryShift
from basis_rl.estimators.table_rows import check_table, rows_of
from basis_rl.passrates.table import PassRates


class _Form(Protocol):
    """The four forms: 0/1 or real rewards, beta on a grid or the shift by likelihood."""

    def baselines(
        self, rows: IntArray, rewards: FloatArray, sources: list[str] | None
    ) -> tuple[FloatArray, dict[str, float]]: ...

    def state(self) -> dict[str, Any]: ...

    def load(self, state: Mapping[str, Any]) -> None: ...


class Basis(Estimator):
    r"""Batchwise advantage estimation from one rollout per prompt.

    Under the preset "robust": ``b_i = sigmoid(logit p_i + tau_{-i})``, p the smoothed pass rate
    and tau the batch's common logit shift fitted without row i. Under "paper":
    ``b_i = V_i sum_j V_j r_j / s2_j / sum_j V_j^2 / s2_j`` over the other active prompts (Eq. 6)
    with ``V = sigmoid(logit p + 1/beta)`` and beta by Eq. 5.

    Parameters
    ----------
    pass_rates : PassRates
        Counts and rates make the form for 0/1 rewards, stored rewards the one for real rewards
        (Appendix E). Rates have no n, and need ``smoothing="none"``.
    preset : {"robust", "paper", "paper-literal"}
        Defaults of the next three. "robust": shift, leave-one-out, jeffreys. "paper": unb,
        whole-batch, none. "paper-literal": unb, active-set, none; Eq. 5 as printed, which
        collapses to baseline 0 on real data.
    variant : {"shift", "initial", "unb", "vop", "rvg"}, optional
        The tilted value itself ("shift" with the leave-one-out calibration, "initial" with any),
        or refined by the batch: Prop. 1, Prop. 3, or the ratio of Appendix B.
    calibration : str, optional
        "leave-one-out", "whole-batch", "active-set", "previous-batch" (Appendix D, over the whole
        batch) or "previous-batch-active-set" (Appendix D as printed).
    smoothing : {"none", "jeffreys", "empirical-bayes"}, optional
        Pseudo-counts of the pass rates: 0, 1/2 and 1/2, or the Beta distribution fitted to the
        table. For stored rewards: 0, 1, or a fitted number of pseudo-observations of the
        population's rewards.
    epsilon : float
        Active set ``epsilon < V < 1 - epsilon``; not used by "shift" and "initial".
    betas : sequence of float, optional
        Candidates of the grid; the paper's 230 by default. Not with "leave-one-out".
    missing : {"error", "prior"}
        A prompt outside the table: an error, or the mean pass rate of its source (of the whole
        table where the source is unknown).
    variance_floor : float, optional
        Delta of Appendix E, in squared units of the reward; 1e-6 by default. Stored rewards with
        a beta of the grid only.
    max_unverified : float
        Largest share of NaN rewards accepted.

    Raises
    ------
    ConfigError
        If an option is unknown, out of range, or does not go with another or with the table.

    Notes
    -----
    With ``sources`` in the batch, "leave-one-out" fits one shift per source, shrunk to the common
    one; the table's own sources serve ``missing="prior"`` alone. A restart needs `state_dict`:
    the shifts, or the next batch's beta.

    Examples
    --------
    >>> from basis_rl import Basis, PassRates, RewardBatch
    >>> table = PassRates.from_counts(["a", "b", "c"], successes=[6, 32, 60], n=64)
    >>> estimate = Basis(table).estimate(RewardBatch(["a", "b", "c"], [0.0, 1.0, 1.0]))
    >>> estimate.baselines.round(2).tolist()
    [0.1, 0.5, 0.93]
    """

    name: ClassVar[str] = "basis"

    def __init__(
        self,
        pass_rates: PassRates,
        preset: str = "robust",
        *,
        variant: str | None = None,
        calibration: str | None = None,
        smoothing: str | None = None,
        epsilon: float = 1e-6,
        betas: Sequence[float] | npt.NDArray[np.float64] | None = None,
        missing: str = "error",
        variance_floor: float | None = None,
        max_unverified: float = 0.1,
    ) -> None:
        check_table(pass_rates)
        self.options: BasisOptions = resolve_options(
            preset,
            variant=variant,
            calibration=calibration,
            smoothing=smoothing,
            epsilon=epsilon,
            betas=betas,
            missing=missing,
            variance_floor=variance_floor,
            continuous=pass_rates.is_continuous,
        )
        if pass_rates.is_adaptive and self.options.smoothing == "none":
            warnings.warn(
                "these pass rates were sampled adaptively: prompts stopped early at 0 and 1, and "
                "without smoothing they stay there; use smoothing='jeffreys'",
                stacklevel=2,
            )
        # On the grid of betas values only rise.
        self.follows = self.options.leave_one_out
        self.preset = preset
        self.pass_rates = pass_rates
        self.max_unverified = check_share("max_unverified", max_unverified)
        self._priors = with_priors(pass_rates)
        self._form: _Form
        if pass_rates.is_continuous:
            table = reward_table(pass_rates, self._priors, self.options.smoothing)
            form = ContinuousShift if self.options.leave_one_out else ContinuousGrid
            self._form = form(table, self.options)
        else:
            logits = binary_logits(pass_rates, self._priors, self.options.smoothing)
            self._form = (BinaryShift if self.options.leave_one_out else BinaryGrid)(
                logits, self.options
            )

    def weights(self, batch: RewardBatch) -> FloatArray:
        """Matrix W of Fig. 1: ``baselines = W @ rewards`` at the beta that `estimate` would use.

        The estimator's state stays as it is. Memory is B^2 floats.

        Parameters
        ----------
        batch : RewardBatch
            Rows without a verdict have weight 0, and their own row is 0.

        Returns
        -------
        array, shape (B, B)
            The diagonal is 0.

        Raises
        ------
        ConfigError
            If the variant is no weighted average ("shift", "initial"), or the calibration is
            "leave-one-out", where every row has a shift of its own.
        """
        if not isinstance(self._form, BinaryGrid | ContinuousGrid) or (
            self.options.variant == "initial"
        ):
            raise ConfigError(
                f"variant {self.options.variant!r} with calibration {self.options.calibration!r} "
                "is no weighted average of rewards: weights need preset='paper', or variant 'unb', "
                "'vop' or 'rvg' with a calibration on the grid"
            )
        verified = ~np.isnan(batch.rewards)
        check_verified(verified, self.max_unverified)
        rollouts, row_of = distinct_rollouts(batch, verified)
        rows, _ = self._rows(rollouts)
        matrix = self._form.weights(rows, rollouts.rewards, rollouts.sources)
        return spread(matrix, row_of, verified)

    def _baselines(self, rollouts: RewardBatch) -> tuple[FloatArray, dict[str, float]]:
        rows, known = self._rows(rollouts)
        baselines, metrics = self._form.baselines(rows, rollouts.rewards, rollouts.sources)
        metrics["coverage"] = known
        return baselines, metrics

    def _rows(self, rollouts: RewardBatch) -> tuple[IntArray, float]:
        return rows_of(self.pass_rates, self._priors, rollouts, self.options.missing)

    def _state(self) -> State:
        return self._signature() | self._form.state()

    def _load(self, state: Mapping[str, Any]) -> None:
        for name, value in self._signature().items():
            if state[name] != value:
                raise StateError(
                    f"the saved state has {name}={state[name]!r} and this run {value!r}: resume "
                    "with the same options and the same kind of pass rates"
                )
        self._form.load(state)

    def _signature(self) -> dict[str, Any]:
        """What a saved state must share with the estimator that takes it over."""
        return {
            "calibration": self.options.calibration,
            "continuous": self.pass_rates.is_continuous,
        }
