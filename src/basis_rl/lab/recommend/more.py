"""What larger and smaller caches and batches would bring."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from basis_rl.lab.contenders import Contender
from basis_rl.lab.recommend.cache_sizes import thinned
from basis_rl.lab.recommend.choice import TOLERANCE, Option
from basis_rl.lab.recommend.judge import Judge
from basis_rl.lab.recommend.noise import Shown, exceeding, interval_of
from basis_rl.lab.record import RewardRecord
from basis_rl.passrates.table import PassRates

Progress = Callable[[int, int], None]
SIZES = (2, 4, 8, 16, 32, 64)


@dataclasses.dataclass(frozen=True)
class CacheSize:
    """The best baseline with a cache of so many reference rollouts of each prompt.

    Attributes
    ----------
    rollouts : int
        0 for the best baseline that takes no pass rates.
    label : str
        Of the baseline.
    noise : float
    behind, behind_low, behind_high : float
        Share by which the noise exceeds that with the whole cache, with 95% interval.
    cost : float
        Reference rollouts of all prompts as a share of the record's training rollouts.
    total : float
        Rollouts of the cache and of a training run that leaves as much noise, as a share of the
        training rollouts with the whole cache at hand: ``noise / noise_whole + cost``.
    """

    rollouts: int
    label: str
    noise: float
    behind: float
    behind_low: float
    behind_high: float
    cost: float
    total: float


@dataclasses.dataclass(frozen=True)
class BatchSize:
    """The chosen baseline at another number of prompts in a batch.

    Attributes
    ----------
    prompts : int
    noise : float
        Of one rollout's part; that of the whole step falls with its rollouts besides.
    behind : float
        Share by which the noise exceeds that at the record's batch size.
    """

    prompts: int
    noise: float
    behind: float


def cache_sizes(
    judge: Judge,
    record: RewardRecord,
    using: Sequence[Option],
    without: Option | None,
    contenders: Mapping[str, Contender],
    progress: Progress | None,
) -> list[CacheSize]:
    """The best of the baselines that use pass rates, at smaller caches; none first."""
    table = record.pass_rates
    if not using or table is None or table.kind == "rates":
        return []
    largest = int(np.median(table.n))
    tries = _tries(record, table, largest, using, without)
    shown = _noise(judge, [(each, contenders[o.name]) for _, o, each in tries], progress)
    sizes = [size for size, _, _ in tries]
    means = shown.means.tolist()
    best = {
        size: min((i for i, each in enumerate(sizes) if each == size), key=lambda i: means[i])
        for size in dict.fromkeys(sizes)
    }
    whole = best[largest]
    behind = interval_of(exceeding(shown.drawn, shown.drawn[:, whole : whole + 1]))
    ahead = exceeding(shown.means, shown.means[whole]).tolist()
    visited = [record.keys[i] for i in np.unique(record.prompt)]
    prompts = int((table.rows(visited) >= 0).sum())
    cost = {size: size * prompts / (judge.rollouts * len(record)) for size in best}
    return [
        CacheSize(
            size,
            tries[i][1].label,
            means[i],
            ahead[i],
            float(behind[i, 0]),
            float(behind[i, 1]),
            cost[size],
            1.0 + ahead[i] + cost[size],
        )
        for size, i in best.items()
    ]


def _tries(
    record: RewardRecord,
    table: PassRates,
    largest: int,
    using: Sequence[Option],
    without: Option | None,
) -> list[tuple[int, Option, RewardRecord]]:
    """Each size of a cache with each baseline, and the record with a cache of that size."""
    bare = dataclasses.replace(record, pass_rates=None)
    tries = [] if without is None else [(0, without, bare)]
    for size in (*(size for size in SIZES if size < largest), largest):
        smaller = thinned(table, size) if size < largest else table
        at_size = dataclasses.replace(record, pass_rates=smaller)
        tries += [(size, option, at_size) for option in using]
    return tries


def batch_sizes(
    judge: Judge, record: RewardRecord, contender: Contender, progress: Progress | None
) -> list[BatchSize]:
    """The chosen baseline at a quarter of the batch size and at four times it.

    Nothing if rewards are judged as they were logged: other batches would mix policies or part
    what one policy did.
    """
    prompts = len(np.unique(record.prompt))
    own = judge.batch_size
    sizes = sorted({max(own // 4, 2), own, min(4 * own, max(prompts, own))})
    if judge.as_logged or len(sizes) < 2:
        return []
    found = []
    for place, size in enumerate(sizes):
        part = None if progress is None else _part(progress, place, len(sizes))
        shown, _ = dataclasses.replace(judge, batch_size=size).shown(record, [contender], part)
        found.append(float(shown.means[0]))
    reference = np.array(found[sizes.index(own)])
    return [
        BatchSize(size, noise, float(behind))
        for size, noise, behind in zip(
            sizes, found, exceeding(np.array(found), reference), strict=True
        )
    ]


def catch_up(shown: Shown, options: list[Option], *, tolerance: float = TOLERANCE) -> int | None:
    """Visit of a prompt, from 1, from which on no cache does as well as one; None if never.

    That is where the noise of the best baseline without pass rates, over all later visits, exceeds
    that of the best with them by no more than the tolerance.
    """
    best = {}
    for uses in (True, False):
        places = [i for i, option in enumerate(options) if option.uses_cache is uses]
        if not places:
            return None
        best[uses] = min(places, key=lambda i: float(shown.means[i]))
    last = int(np.quantile(shown.visit, 0.9))
    for visit in range(last + 1):
        rows = shown.visit >= visit
        with_cache, without = (shown.noise[best[uses]][rows].mean() for uses in (True, False))
        if without <= with_cache * (1.0 + tolerance):
            return visit + 1
    return None


def _noise(
    judge: Judge, tries: list[tuple[RewardRecord, Contender]], progress: Progress | None
) -> Shown:
    """Noise of several pairs of a record and a contender on the same rows."""
    parts = []
    for place, (record, contender) in enumerate(tries):
        part = None if progress is None else _part(progress, place, len(tries))
        parts.append(judge.shown(record, [contender], part)[0])
    noise = np.concatenate([part.noise for part in parts])
    names = [str(place) for place in range(len(parts))]
    return dataclasses.replace(parts[0], names=names, noise=noise)


def _part(progress: Progress, place: int, parts: int) -> Progress:
    return lambda done, total: progress(place * total + done, parts * total)
