"""Which rollouts of a record make the cache, and which visits are replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from basis_rl.batch import BoolArray, IntArray
from basis_rl.lab.contenders import Contender
from basis_rl.lab.record import RecordError, RewardRecord

ORACLE = 2  # an oracle of fewer rollouts has no sampling variance to take off
COVERED = 0.9  # share of the visits that must be large enough for a contender with groups


@dataclass(frozen=True)
class Shown:
    """What one contender is given of each visit.

    Attributes
    ----------
    contender : Contender
    rollouts : int
        0 where the record's visits are smaller than its groups, and its error is computed.
    variance : float
        Then its squared error in units of the variance of one reward.
    """

    contender: Contender
    rollouts: int
    variance: float = float("nan")


@dataclass(frozen=True)
class Plan:
    """What is replayed of a record.

    Attributes
    ----------
    record : RewardRecord
    cached : int array, shape (V,)
        Rollouts of each visit of the record that the cache is made of, of a random order of them.
    cache_rollouts : int
        Most rollouts of a prompt in the cache; of more, a random part.
    visits : int array, shape (K,)
        Visits that are replayed, in time order.
    reserved : int array, shape (K,)
        Rollouts of a visit, its last, that are in no oracle: they tell how difficult a prompt
        without another visit is (see `levels`). 0 for all other prompts.
    contenders : list of Shown
        At least one is shown something.
    left_out : dict of str to str
        Contenders that cannot take part, and why.
    dropped : int
        Visits after the cache with too few rollouts.
    """

    record: RewardRecord
    cached: IntArray
    cache_rollouts: int
    visits: IntArray
    reserved: IntArray
    contenders: list[Shown]
    left_out: dict[str, str]
    dropped: int

    @property
    def largest(self) -> int:
        """Most rollouts of a visit that any contender is given."""
        return max(1, *(shown.rollouts for shown in self.contenders))


def make_plan(
    record: RewardRecord,
    contenders: Sequence[Contender],
    *,
    rollouts: int,
    cache_rollouts: int,
    start: int | None = None,
) -> Plan:
    """Plan of a replay.

    Raises
    ------
    RecordError
        If no visit is left with ``rollouts`` to show and two for the oracle, no step lies before
        ``start`` for a cache, or no contender is left.
    """
    if start is not None:
        cached, taken = _before(record, start, cache_rollouts)
    elif record.pass_rates is not None:
        cached, taken = np.zeros(len(record), dtype=np.int64), np.zeros(len(record), dtype=bool)
    else:
        cached, taken = _cache_of(record, cache_rollouts)
    left = np.where(taken, 0, record.counts - cached)
    if not (left >= rollouts + ORACLE).any():
        raise RecordError(
            _too_small(record, rollouts, 0 if start is not None else cache_rollouts, left)
        )
    usable = np.sort(left[left >= rollouts + ORACLE])
    size = int(usable[int((1.0 - COVERED) * len(usable))])
    has_table = record.pass_rates is not None or bool(cached.any())
    shown, left_out = _shown(record, contenders, rollouts, size, has_table)
    if not shown:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise RecordError(f"{record.name}: no estimator can be replayed ({reasons})")
    most = max(rollouts, *(each.rollouts for each in shown))
    visits = np.flatnonzero(left >= most + ORACLE)
    dropped = int((left > 0).sum()) - len(visits)
    reserved = _reserved(record.prompt[visits], left[visits] - most)
    return Plan(record, cached, cache_rollouts, visits, reserved, shown, left_out, dropped)


def _reserved(prompt: IntArray, unseen: IntArray) -> IntArray:
    """A third of a lonely visit's unseen rollouts, two or more, if two are left for the oracle."""
    alone = np.bincount(prompt)[prompt] == 1
    return np.where(alone & (unseen >= 2 * ORACLE), np.maximum(unseen // 3, ORACLE), 0)


def _before(record: RewardRecord, start: int, cache_rollouts: int) -> tuple[IntArray, BoolArray]:
    """As `_cache_of`, with all visits before a step for the cache, whatever its size."""
    taken = record.step < start
    first, last = record.step[0], record.step[-1]
    if taken.all():
        raise RecordError(
            f"{record.name}: the replay starts at step {start}, and the last step is {last}: start "
            "earlier"
        )
    has_cache = cache_rollouts > 0 and record.pass_rates is None
    if has_cache and not taken.any():
        raise RecordError(
            f"{record.name}: no step lies before step {start} for a cache, the first is {first}: "
            "start later, or replay without a cache (0)"
        )
    return np.where(taken & has_cache, record.counts, 0), taken


def _cache_of(record: RewardRecord, rollouts: int) -> tuple[IntArray, BoolArray]:
    """Rollouts of each visit that the cache takes, and whether the visit is then used up.

    Visits are taken whole until a prompt has its rollouts. Of a prompt with one visit, the rest of
    that visit stays.
    """
    cached = np.zeros(len(record), dtype=np.int64)
    taken = np.zeros(len(record), dtype=bool)
    if rollouts == 0:
        return cached, taken
    order = np.argsort(record.prompt, kind="stable")
    counts, prompt = record.counts[order], record.prompt[order]
    before = np.cumsum(counts) - counts
    first = np.flatnonzero(np.diff(prompt, prepend=-1))
    before -= np.repeat(before[first], np.diff(first, append=len(prompt)))
    cached[order] = np.clip(rollouts - before, 0, counts)
    single = np.bincount(record.prompt)[record.prompt] == 1
    taken[:] = (cached > 0) & ~single
    return cached, taken


def _shown(
    record: RewardRecord,
    contenders: Sequence[Contender],
    rollouts: int,
    size: int,
    has_table: bool,
) -> tuple[list[Shown], dict[str, str]]:
    """What each contender is given of visits of ``size`` rollouts; who is left out, and why."""
    shown: list[Shown] = []
    left_out: dict[str, str] = {}
    has = {"lengths"} if record.lengths is not None else set()
    for contender in contenders:
        missing = sorted(contender.needs - has)
        group = contender.rollouts if contender.rollouts > 1 else rollouts
        if missing:
            left_out[contender.name] = f"the record has no {' and '.join(missing)}"
        elif contender.needs_pass_rates and not has_table:
            left_out[contender.name] = "it needs pass rates, and there is no cache"
        elif group + ORACLE <= size:
            shown.append(Shown(contender, group))
        elif contender.variance is not None:
            shown.append(Shown(contender, 0, contender.variance(group)))
        else:
            left_out[contender.name] = (
                f"it needs {group} rollouts of a visit and {ORACLE} for the oracle, visits have "
                f"{size}"
            )
    return shown, left_out


def _too_small(record: RewardRecord, rollouts: int, cache_rollouts: int, left: IntArray) -> str:
    wanted = f"{rollouts} to show and {ORACLE} for the oracle"
    uncached = record.pass_rates is not None or cache_rollouts == 0
    most = int(left.max() if uncached else record.counts.max())
    if uncached or most < rollouts + ORACLE:
        other = "`basis-rl lab recommend` takes such a record, or "
        return (
            f"{record.name}: the largest visit has {most} rollout{'' if most == 1 else 's'}, and a "
            f"replay needs {wanted}: {'' if rollouts > 1 else other}sample more rollouts of each "
            "prompt"
        )
    return (
        f"{record.name}: the cache of {cache_rollouts} rollouts leaves at most {left.max()} of a "
        f"visit, and a replay needs {wanted}: choose a cache of "
        f"{_fitting(record, rollouts, cache_rollouts)}, or name pass rates (--pass-rates)"
    )


def _fitting(record: RewardRecord, rollouts: int, cache_rollouts: int) -> str:
    """A cache, a power of two, that leaves nine in ten prompts a visit to replay."""
    size = 1 << max((cache_rollouts - 1).bit_length() - 1, 0)
    prompts = len(np.unique(record.prompt))
    while size:
        cached, taken = _cache_of(record, size)
        left = np.where(taken, 0, record.counts - cached)
        if len(np.unique(record.prompt[left >= rollouts + ORACLE])) >= COVERED * prompts:
            return f"{size} (--cache {size})"
        size //= 2
    return "none (--cache 0)"
