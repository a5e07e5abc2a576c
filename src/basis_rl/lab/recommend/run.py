"""`recommend`: everything from a record to a piece of advice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from basis_rl.errors import ConfigError
from basis_rl.lab.contenders import Contender
from basis_rl.lab.recommend.cache_sizes import with_cache_of_first_rollouts
from basis_rl.lab.recommend.choice import TOLERANCE, Choice, Option, choose
from basis_rl.lab.recommend.curves import Curves, curves_of
from basis_rl.lab.recommend.facts import Facts, facts_of
from basis_rl.lab.recommend.judge import Judge, option_of, usable, without_pass_rates
from basis_rl.lab.recommend.more import BatchSize, CacheSize, batch_sizes, cache_sizes, catch_up
from basis_rl.lab.recommend.noise import Shown
from basis_rl.lab.recommend.warn import doubt_of, warnings_of
from basis_rl.lab.record import RewardRecord
from basis_rl.lab.replaying.plan import ORACLE

Progress = Callable[[str, int, int], None]
DEFAULT_BATCH = 64
MOST_ROWS = 300_000  # a record of so many visits needs no repetitions


@dataclasses.dataclass(frozen=True)
class Recommendation:
    """Which baseline to use on the data of a record.

    Attributes
    ----------
    name : str
        Of the record.
    facts : Facts
    choice : Choice
        All baselines that were compared, and the one to use.
    settings : dict
        Name and options of the estimator to use, as a training configuration takes them.
    judge : Judge
        How they were compared.
    cache_made : bool
        Whether the pass rates are the record's own first rollouts, for want of a table.
    caches : list of CacheSize
        What smaller caches would do, none first; empty if there is none to make smaller.
    catch_up : int or None
        From this visit of a prompt on (the first is 1), the best baseline without pass rates is
        within the tolerance of the noise of the best with them; None if never.
    batches : list of BatchSize
        The chosen baseline at other batch sizes.
    curves : Curves
        The best few baselines in the course of the record.
    warnings : list of str
    left_out : dict of str to str
        Estimators that could not be compared, and why.
    """

    name: str
    facts: Facts
    choice: Choice
    settings: dict[str, Any]
    judge: Judge
    cache_made: bool
    caches: list[CacheSize]
    catch_up: int | None
    batches: list[BatchSize]
    curves: Curves
    warnings: list[str]
    left_out: dict[str, str]

    @property
    def estimator(self) -> str:
        """Name of the contender to use."""
        return self.choice.chosen.option.name

    @property
    def doubt(self) -> str:
        """Why the record cannot tell which baseline is best; empty where it can."""
        return doubt_of(self.facts, self.choice)

    def to_dict(self) -> dict[str, Any]:
        """JSON types; numbers that are not finite are null."""
        found = dataclasses.asdict(self)
        found |= {"estimator": self.estimator, "doubt": self.doubt}
        plain: dict[str, Any] = _plain(found)
        return plain


def recommend(
    record: RewardRecord,
    *,
    batch_size: int | None = None,
    rollouts: int = 1,
    cache_rollouts: int = 32,
    seeds: int = 3,
    contenders: Sequence[Contender] | None = None,
    tolerance: float = TOLERANCE,
    progress: Progress | None = None,
) -> Recommendation:
    """Compare all baselines on a record and say which to use.

    Parameters
    ----------
    record : RewardRecord
        Without pass rates, its prompts' first rollouts are made the cache.
    batch_size : int, optional
        Prompts in a training step; by default those of the record's steps, 64 where each step
        holds every prompt.
    rollouts : int
        Rollouts of a prompt in a training step.
    cache_rollouts : int
        Rollouts of each prompt for a cache, if the record has no pass rates.
    seeds : int
        Repetitions, with other batches and other shown rollouts; fewer for large records.
    contenders : sequence of Contender, optional
        All registered estimators by default.
    tolerance : float
        Baselines whose noise differs by less than this share are as good as each other.
    progress : callable, optional
        Called with what is being done, how much of it is done, and of how much.

    Raises
    ------
    ConfigError
        If a number is out of range.
    RecordError
        If nothing in the record can be judged.
    """
    _check(batch_size, rollouts, cache_rollouts, seeds, tolerance)
    cache_made = record.pass_rates is None and cache_rollouts > 0
    if cache_made:
        record = with_cache_of_first_rollouts(record, cache_rollouts)
        cache_made = record.pass_rates is not None
    facts = facts_of(record)
    judge = Judge(
        batch_size or _own_batch_size(record),
        rollouts,
        max(min(seeds, MOST_ROWS // len(record)), 1),
        as_logged=bool(np.median(record.counts) < rollouts + ORACLE),
    )
    entrants = (
        usable(rollouts, continuous=not facts.is_binary) if contenders is None else [*contenders]
    )
    tell = _Telling(progress)
    shown, left_out = _compared(judge, record, entrants, tell)
    by_name = {each.name: each for each in [*entrants, *without_pass_rates(entrants)]}
    options = [option_of(by_name[name], record) for name in shown.names]
    choice = choose(shown, options, tolerance=tolerance)
    caches = cache_sizes(judge, record, *_for_caches(choice), by_name, tell("smaller caches"))
    batches = batch_sizes(judge, record, by_name[choice.chosen.option.name], tell("batch sizes"))
    return Recommendation(
        record.name,
        facts,
        choice,
        _settings(by_name[choice.chosen.option.name]),
        judge,
        cache_made,
        caches,
        catch_up(shown, options, tolerance=tolerance),
        batches,
        curves_of(shown, choice),
        warnings_of(facts, choice, judge, shown, cache_made=cache_made),
        left_out,
    )


def _compared(
    judge: Judge, record: RewardRecord, entrants: list[Contender], tell: _Telling
) -> tuple[Shown, dict[str, str]]:
    """Noise of each, and again without pass rates of those that can do without."""
    shown, left_out = judge.shown(record, entrants, tell("comparing baselines"))
    others = without_pass_rates(entrants)
    if record.pass_rates is None or not others:
        return shown, left_out
    bare = dataclasses.replace(record, pass_rates=None)
    more, more_left = judge.shown(bare, others, tell("without pass rates"))
    return _joined(shown, more), {**left_out, **more_left}


class _Telling:
    """Puts a name to each part's progress."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress

    def __call__(self, doing: str) -> Callable[[int, int], None] | None:
        progress = self._progress
        if progress is None:
            return None
        return lambda done, total: progress(doing, done, total)


def _check(
    batch_size: int | None, rollouts: int, cache_rollouts: int, seeds: int, tolerance: float
) -> None:
    for what, value, least in (
        ("batch_size", 2 if batch_size is None else batch_size, 2),
        ("rollouts", rollouts, 1),
        ("cache_rollouts", cache_rollouts, 0),
        ("seeds", seeds, 1),
    ):
        if value < least:
            raise ConfigError(f"{what} is {value!r}: use a whole number from {least} on")
    if not 0.0 <= tolerance < 1.0:
        raise ConfigError(f"tolerance is {tolerance!r}: give a share of 0 or more, e.g. 0.01")


def _settings(contender: Contender) -> dict[str, Any]:
    # What a comparison does with prompts that the table does not know is no piece of advice.
    options = {key: value for key, value in contender.options.items() if key != "missing"}
    return {"name": contender.estimator, **options}


def _own_batch_size(record: RewardRecord) -> int:
    """Visits of a step; where a step holds every prompt it is an epoch, and no batch is known."""
    visits = int(np.median(np.bincount(np.unique(record.step, return_inverse=True)[1])))
    is_epoch = visits >= len(np.unique(record.prompt))
    return max(min(visits, DEFAULT_BATCH) if is_epoch else visits, 2)


def _for_caches(choice: Choice) -> tuple[list[Option], Option | None]:
    """Baselines to try with smaller caches, and the one to use without any.

    What remembers prompts needs less of a cache than what does not, so the best of those is tried
    beside the chosen one.
    """
    options = [each.option for each in choice.ranked]
    chosen = choice.chosen.option
    using = [option for option in options if option.uses_cache]
    others = [option for option in options if not option.uses_cache]
    tried = [chosen] if chosen.uses_cache else using[:1]
    tried += [option for option in using if option.remembers and option not in tried][:1]
    return tried, chosen if not chosen.uses_cache else next(iter(others), None)


def _joined(first: Shown, second: Shown) -> Shown:
    return dataclasses.replace(
        first,
        names=first.names + second.names,
        noise=np.concatenate([first.noise, second.noise]),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
