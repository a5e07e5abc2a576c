"""Fig. 5: BASIS with one setting changed at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from basis_rl.batch import BoolArray
from basis_rl.estimators import Basis, BatchMean, Estimator
from basis_rl.lab.figures.compared import Compared, basis_paper
from basis_rl.lab.figures.draws import Progress, draw, mean_where
from basis_rl.lab.figures.numbers import interval
from basis_rl.lab.record import RecordError, Stage
from basis_rl.passrates.table import PassRates
from basis_rl.values import beta_grid

EPSILONS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
CACHE_ROLLOUTS = (4, 8, 16, 32, 64)
BATCH_SIZES = (8, 16, 32, 64, 128, 256, 512)
GRID_SIZES = (2, 4, 8, 16, 32, 64, 128, 230)
PANELS = ("epsilon", "n", "B", "grid")


@dataclass(frozen=True)
class SensitivityPoint:
    """MSE with one setting changed, as in `Accuracy`.

    Attributes
    ----------
    panel : str
        "epsilon", "n", "B" or "grid".
    setting : float
    ends : float
        Share of the drawn rows whose pass rate, in the table in use, is exactly 0 or 1.
    zeros : float
        Share of the baselines that are exactly 0.
    mse_between : float
        MSE of the rows whose pass rate is neither 0 nor 1.
    """

    stage: str
    panel: str
    estimator: str
    setting: float
    mse: float
    low: float
    high: float
    mse_uncorrected: float
    ends: float
    zeros: float
    mse_between: float


def sensitivity(
    stage: Stage,
    *,
    repeats: int,
    batch_size: int = 64,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[SensitivityPoint]:
    """Fig. 5 of one stage: the paper's preset, each panel in the same batches.

    The cache is thinned to n of its rollouts without replacement. A grid of k betas is every
    (230 / k)-th of the paper's, both ends kept. Batch sizes stop at the number of prompts.
    """
    panels: dict[str, dict[float, Callable[[Stage], Estimator]]] = {
        "epsilon": {value: _Option(epsilon=value) for value in EPSILONS},
        "n": {value: _Thinned(value) for value in sizes_of_cache(stage)},
        "grid": {value: _Option(betas=thinned_grid(value)) for value in GRID_SIZES},
    }
    points = []
    for panel, settings in panels.items():
        makers = [Compared("basis-paper", panel, make) for make in settings.values()]
        points += _measure(
            stage, panel, makers, list(settings), batch_size, repeats, seed, progress
        )
    both = [
        Compared("basis-paper", "BASIS", basis_paper),
        Compared("batch-mean", "REINFORCE++", lambda _: BatchMean()),
    ]
    for size in (size for size in BATCH_SIZES if size <= len(stage.keys)):
        points += _measure(stage, "B", both, [size] * 2, size, repeats, seed, progress)
    return points


def draws_of(stage: Stage) -> int:
    """Times that `sensitivity` draws ``repeats`` batches of a stage."""
    return 3 + sum(size <= len(stage.keys) for size in BATCH_SIZES)


def sizes_of_cache(stage: Stage) -> list[int]:
    """Numbers of cached rollouts that the stage's table can be thinned to."""
    table = stage.pass_rates
    if table.successes is None:
        return []
    least = int(table.n[table.rows(stage.keys)].min())
    return [n for n in CACHE_ROLLOUTS if n <= least]


def thinned_grid(size: int) -> list[float]:
    """``size`` betas of the paper's 230, at even distances in their list."""
    betas = beta_grid()
    return betas[np.rint(np.linspace(0, len(betas) - 1, size)).astype(int)].tolist()  # type: ignore[no-any-return]


def thin(table: PassRates, n: int, *, seed: int = 0) -> PassRates:
    """A table that holds n of each prompt's rollouts, drawn without replacement.

    Raises
    ------
    RecordError
        If a prompt has fewer, or the table holds no counts.
    """
    if table.successes is None or int(table.n.min()) < n:
        raise RecordError(f"the table of pass rates has not {n} rollouts of 0 and 1 of each prompt")
    rng = np.random.default_rng([seed, n])
    kept = rng.hypergeometric(table.successes, table.n - table.successes, n)
    return PassRates.from_counts(list(table.keys), kept, n)


@dataclass(frozen=True)
class _Option:
    """Makes the paper's estimator with an option."""

    epsilon: float = 1e-6
    betas: Sequence[float] | None = None

    def __call__(self, stage: Stage) -> Estimator:
        return Basis(stage.pass_rates, preset="paper", epsilon=self.epsilon, betas=self.betas)


@dataclass(frozen=True)
class _Thinned:
    """Makes the paper's estimator with a thinned cache."""

    n: int

    def __call__(self, stage: Stage) -> Estimator:
        rows = stage.pass_rates.rows(stage.keys)
        assert stage.pass_rates.successes is not None
        own = PassRates.from_counts(
            stage.keys, stage.pass_rates.successes[rows], stage.pass_rates.n[rows]
        )
        return Basis(thin(own, self.n), preset="paper")


def _measure(
    stage: Stage,
    panel: str,
    compared: list[Compared],
    settings: Sequence[float],
    batch_size: int,
    repeats: int,
    seed: int,
    progress: Progress | None,
) -> list[SensitivityPoint]:
    if not compared:
        return []
    draws = draw(
        stage,
        compared,
        batches=repeats,
        batch_size=batch_size,
        seed=seed,
        warm_up=0,
        progress=progress,
    )
    corrected, raw = draws.errors(), draws.squared_errors(stage.oracle)
    points = []
    for e, (c, setting) in enumerate(zip(compared, settings, strict=True)):
        inside = ~_at_ends(c.make(stage), stage)[draws.rows]
        points.append(
            SensitivityPoint(
                stage.name,
                panel,
                c.name,
                float(setting),
                *interval(corrected[e], draws.rows, draws.batch_of),
                float(raw[e].mean()),
                float(1.0 - inside.mean()),
                float(draws.zeros[e].mean()),
                mean_where(corrected[e], inside),
            )
        )
    return points


def _at_ends(estimator: Estimator, stage: Stage) -> BoolArray:
    """Prompts of a stage whose pass rate is exactly 0 or 1 in an estimator's table, shape (P,)."""
    table = estimator.pass_rates if isinstance(estimator, Basis) else stage.pass_rates
    rates = table.means[table.rows(stage.keys)]
    return np.asarray((rates == 0.0) | (rates == 1.0))
