"""Fig. 2: MSE of the initial and the refined value at every beta."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from basis_rl.estimators import Basis, Estimator
from basis_rl.lab.figures.compared import Compared
from basis_rl.lab.figures.draws import Draws, Progress, draw, mean_where
from basis_rl.lab.figures.numbers import interval
from basis_rl.lab.record import Stage
from basis_rl.values import beta_grid

VALUES = {"initial": "initial", "refined": "unb"}


@dataclass(frozen=True)
class BetaPoint:
    """MSE of the initial or the refined value at one beta, as in `Accuracy`.

    `mse_between` is that of the prompts whose reference pass rate is neither 0 nor 1.
    """

    stage: str
    value: str
    beta: float
    mse: float
    low: float
    high: float
    mse_uncorrected: float
    mse_between: float


def beta_curves(
    stage: Stage,
    *,
    batches: int,
    batch_size: int = 64,
    betas: Sequence[float] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[BetaPoint]:
    """Fig. 2 of one stage: the paper's preset held at each beta of its grid, in the same batches.

    Without smoothing, as published: a pass rate of 0 or 1 keeps its initial value at every beta,
    and its refined value is the zero baseline.
    """
    betas = beta_grid().tolist() if betas is None else list(betas)
    points = [(value, beta) for value in VALUES for beta in betas]
    held = [Compared(f"{value}-{beta}", value, _Held(value, beta)) for value, beta in points]
    draws = draw(
        stage,
        held,
        batches=batches,
        batch_size=batch_size,
        seed=seed,
        warm_up=0,
        progress=progress,
    )
    return [_point(draws, e, value, beta) for e, (value, beta) in enumerate(points)]


@dataclass(frozen=True)
class _Held:
    """Makes the paper's estimator with one beta to choose from."""

    value: str
    beta: float

    def __call__(self, stage: Stage) -> Estimator:
        return Basis(
            stage.pass_rates, preset="paper", variant=VALUES[self.value], betas=[self.beta]
        )


def _point(draws: Draws, e: int, value: str, beta: float) -> BetaPoint:
    raw = draws.second[e] - 2.0 * (v := draws.stage.oracle[draws.rows]) * draws.first[e] + v**2
    errors = raw - draws.stage.oracle_variance[draws.rows]
    mse = interval(errors, draws.rows, draws.batch_of)
    between = mean_where(errors, draws.between)
    return BetaPoint(draws.stage.name, value, beta, *mse, float(raw.mean()), between)
