"""All figures of the paper's value estimation, or some of them, from stages of training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from basis_rl.errors import nearest
from basis_rl.lab.figures import sensitivity as fig5
from basis_rl.lab.figures.accuracy import Accuracy, ErrorPart, accuracy, error_parts
from basis_rl.lab.figures.beta_curves import BetaPoint, beta_curves
from basis_rl.lab.figures.beta_steps import (
    BetaStage,
    BetaStep,
    batches_of,
    beta_stage,
    beta_steps,
)
from basis_rl.lab.figures.compared import Compared, compared, named
from basis_rl.lab.figures.difficulty import DifficultyBin, difficulty
from basis_rl.lab.figures.draws import WARM_UP, draw
from basis_rl.lab.figures.heterogeneity import HeterogeneityBin, heterogeneity
from basis_rl.lab.record import RecordError, RewardRecord, Stage

FIGURES = ("2", "3a", "3b", "3c", "3d", "4", "5", "8")
_FROM_REPEATS = {"3a", "3c", "3d", "4"}
# Told how much is done, and how much there is to do.
Report = Callable[[int, int], None]
# A batch of figure 2 is for 460 estimators.
_CURVE_WORK = 40


@dataclass(frozen=True)
class Settings:
    """Appendix A's numbers.

    Attributes
    ----------
    repeats : int
        Batches of Fig. 2, 3 a, c, d, 4 and 5. The paper has 10, which leave some of its
        statements to chance.
    batches : int
        Batches of Fig. 3 b.
    batch_size : int
    cache_rollouts : int
        Where a record's first visits are the cache.
    seed : int
    """

    repeats: int = 100
    batches: int = 500
    batch_size: int = 64
    cache_rollouts: int = 32
    seed: int = 0


@dataclass(frozen=True)
class Results:
    """Numbers of the figures; a list is empty where a figure was not asked for.

    Rows belong to their stage by its name, here as in the CSV files.

    Raises
    ------
    RecordError
        If two stages have one name.
    """

    stages: list[Stage]
    settings: Settings
    figures: tuple[str, ...]
    record: RewardRecord | None = None
    beta_curves: list[BetaPoint] = field(default_factory=list)
    accuracy: list[Accuracy] = field(default_factory=list)
    parts: list[ErrorPart] = field(default_factory=list)
    heterogeneity: list[HeterogeneityBin] = field(default_factory=list)
    difficulty: list[DifficultyBin] = field(default_factory=list)
    sensitivity: list[fig5.SensitivityPoint] = field(default_factory=list)
    beta_steps: list[BetaStep] = field(default_factory=list)
    beta_stages: list[BetaStage] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = [stage.name for stage in self.stages]
        for name in names:
            if names.count(name) > 1:
                raise RecordError(
                    f"{names.count(name)} stages are called {name!r}, and their numbers would be "
                    "mixed: give each its own name"
                )

    @property
    def main_stage(self) -> str:
        """Stage of Fig. 3 and 4: the middle one, as in the paper."""
        return self.stages[len(self.stages) // 2].name

    def tables(self) -> dict[str, Sequence[Any]]:
        """Rows of every figure's CSV file, by the file's name."""
        of_figure: dict[str, tuple[str, Sequence[Any]]] = {
            "2": ("figure-2", self.beta_curves),
            "3a": ("figure-3a", self.accuracy),
            "3b": ("figure-3b", self.heterogeneity),
            "3c": ("figure-3c", self.difficulty),
            "3d": ("figure-3d", self.difficulty),
            "4": ("figure-4", [row for row in self.difficulty if not _is_grpo(row.estimator)]),
            "5": ("figure-5", self.sensitivity),
            "8": ("figure-8", self.beta_steps or self.beta_stages),
        }
        tables = dict(of_figure[name] for name in self.figures)
        if self.parts:
            tables["figure-3a-parts"] = self.parts
        return {name: rows for name, rows in tables.items() if rows}


def paper_figures(
    stages: Sequence[Stage],
    record: RewardRecord | None = None,
    *,
    figures: Sequence[str] = FIGURES,
    settings: Settings | None = None,
    extra: Compared | None = None,
    report: Report | None = None,
) -> Results:
    """Numbers of the figures.

    Parameters
    ----------
    stages : sequence of Stage
        What `stages_of` gave.
    record : RewardRecord, optional
        The run that Fig. 8 follows; without it Fig. 8 shows the betas chosen in each stage.
    figures : sequence of str
        Some of `FIGURES`.
    settings : Settings, optional
    extra : Compared, optional
        One more estimator of Fig. 3 and 4 (see `with_history`).
    report : callable, optional
        Told how much of the work is done, and how much there is.

    Raises
    ------
    RecordError
        If a figure's name is unknown, two stages have one name, or the stages do not suffice
        (see `draw`).
    """
    settings = settings or Settings()
    for name in figures:
        if name not in FIGURES:
            raise RecordError(f"no figure is called {name!r}{nearest(name, list(FIGURES))}")
    wanted = tuple(name for name in FIGURES if name in figures)
    results = Results(list(stages), settings, wanted, record)
    work = _Work(report, results)
    for stage in stages:
        _of_stage(results, stage, extra, work)
    if "8" in wanted and record is not None:
        steps = beta_steps(
            record,
            record.pass_rates,
            batch_size=settings.batch_size,
            cache_rollouts=settings.cache_rollouts,
            seed=settings.seed,
            progress=work.ticks(),
        )
        results.beta_steps.extend(steps)
    return results


def _of_stage(results: Results, stage: Stage, extra: Compared | None, work: _Work) -> None:
    settings, wanted = results.settings, set(results.figures)
    common: dict[str, Any] = {"batch_size": settings.batch_size, "seed": settings.seed}
    everyone = compared(stage) + ([extra] if extra is not None else [])
    if "2" in wanted:
        ticks = work.ticks(_CURVE_WORK)
        results.beta_curves.extend(
            beta_curves(stage, batches=settings.repeats, progress=ticks, **common)
        )
    if wanted & _FROM_REPEATS or ("8" in wanted and results.record is None):
        draws = draw(stage, everyone, batches=settings.repeats, progress=work.ticks(), **common)
        if "3a" in wanted:
            results.accuracy.extend(accuracy(draws))
        if wanted & _FROM_REPEATS:
            results.parts.extend(error_parts(draws))
        if wanted & {"3c", "3d", "4"}:
            results.difficulty.extend(difficulty(draws))
        if "8" in wanted:
            results.beta_stages.extend(beta_stage(draws))
    if "3b" in wanted:
        some = named(
            everyone,
            *("basis-paper", "batch-mean", "group-mean-8", "leave-one-out-8", "basis-robust"),
            *([extra.name] if extra is not None else []),
        )
        draws = draw(stage, some, batches=settings.batches, progress=work.ticks(), **common)
        results.heterogeneity.extend(heterogeneity(draws))
    if "5" in wanted:
        repeats = settings.repeats
        results.sensitivity.extend(
            fig5.sensitivity(stage, repeats=repeats, progress=work.ticks(), **common)
        )


class _Work:
    """Counts batches, figure 2's as many."""

    def __init__(self, report: Report | None, results: Results) -> None:
        self._report = report
        self._done = 0
        wanted, settings = set(results.figures), results.settings
        by_record = results.record is not None
        for_stage = {
            "2": _CURVE_WORK * settings.repeats,
            "3b": settings.batches + WARM_UP,
            "5": settings.repeats * max(map(fig5.draws_of, results.stages)),
        }
        self._total = sum(amount for name, amount in for_stage.items() if name in wanted)
        if wanted & _FROM_REPEATS or ("8" in wanted and not by_record):
            self._total += settings.repeats + WARM_UP
        self._total *= len(results.stages)
        if "8" in wanted and results.record is not None:
            self._total += batches_of(results.record, settings.batch_size)

    def ticks(self, amount: int = 1) -> Callable[[], None] | None:
        """Something to call after every batch."""
        report = self._report
        if report is None:
            return None

        def tick() -> None:
            self._done = min(self._done + amount, self._total)
            report(self._done, self._total)

        return tick


def _is_grpo(estimator: str) -> bool:
    return estimator.startswith("group-mean")
