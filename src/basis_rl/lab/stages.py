"""Stages of training: three windows of one record, or one record per checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from basis_rl.batch import FloatArray, IntArray
from basis_rl.lab.checkpoints import checkpoint_stages
from basis_rl.lab.record import RecordError, RewardRecord, Stage
from basis_rl.lab.stage_parts import check_known, stage_from, variance_of_mean
from basis_rl.passrates.table import PassRates

STAGES = ("early", "middle", "late")
# Each half of an oracle needs two rollouts for its variance.
_LEAST_ORACLE = 4


def stages_of(
    records: RewardRecord | Sequence[RewardRecord],
    pass_rates: PassRates | None = None,
    *,
    stages: Sequence[str] = STAGES,
    shown: int = 8,
    oracle: int = 24,
    cache_rollouts: int = 32,
    seed: int = 0,
) -> list[Stage]:
    """Rewards to show and oracle values at several moments of training.

    One record in which prompts come back gives ``len(stages)`` windows of each prompt's own
    visits: the first, the middle and the last ones after the cache. As many neighbouring visits
    are pooled as make ``shown + oracle`` rollouts; they are shuffled, the first ``shown`` are
    shown and the rest is the oracle. Several records, or one without a second visit, are
    checkpoints: the first ``shown`` rollouts are shown, all others are the oracle.

    Parameters
    ----------
    records : RewardRecord or sequence of RewardRecord
    pass_rates : PassRates, optional
        Rollouts under the reference policy; by default the record's own table. A trace without
        one gets a cache of each prompt's first visits, which enter no stage.
    stages : sequence of str
        Names. Checkpoints of another number, or whose steps do not rise from each to the next,
        are called as their records are.
    shown : int
        Rollouts that estimators may be shown.
    oracle : int
        Least rollouts of an oracle, 4 or more; of a trace as many as needed are pooled.
    cache_rollouts : int
        Least rollouts of a cache made of first visits.
    seed : int
        Of the shuffling.

    Returns
    -------
    list of Stage
        All with the same prompts and the same table, no two with the same name.

    Raises
    ------
    RecordError
        If no prompt has rollouts enough, or a prompt is not in the table; if the steps of
        checkpoints fall, or two of them have the same rewards or the same name.

    Notes
    -----
    Pooling costs exactness in time: the value of a stage is the mean over its visits. `Stage.drift`
    measures it, the variance of a prompt's value between the pooled visits with the sampling
    variance taken off.
    """
    records = [records] if isinstance(records, RewardRecord) else list(records)
    if not records:
        raise RecordError("no record was given: name at least one")
    if shown < 1 or oracle < _LEAST_ORACLE or cache_rollouts < 1 or not stages:
        raise RecordError(
            f"shown={shown}, oracle={oracle}, cache_rollouts={cache_rollouts}, "
            f"{len(stages)} stages: the least are 1, {_LEAST_ORACLE}, 1 and 1"
        )
    tables = (record.pass_rates for record in records if record.pass_rates is not None)
    table = pass_rates if pass_rates is not None else next(tables, None)
    if len(records) == 1 and len(np.unique(records[0].prompt)) < len(records[0]):
        windows = _Windows(records[0], table, len(stages), shown + oracle, cache_rollouts)
        return windows.stages(stages, shown, np.random.default_rng(seed))
    return checkpoint_stages(records, table, stages, shown, oracle)


def first_visits(record: RewardRecord, rollouts: int) -> tuple[PassRates, IntArray]:
    """A table of each prompt's first visits, with at least ``rollouts`` rollouts, and the rest.

    Returns
    -------
    table : PassRates
        Counts, or rewards where they are not all 0 and 1.
    rest : int array
        Visits that are not in the table, in time order. A prompt with too few rollouts has none.
    """
    numbers = np.flatnonzero(np.bincount(record.prompt, minlength=len(record.keys)))
    cached: list[IntArray] = []
    for visits in _visits_by_prompt(record, numbers):
        total = np.cumsum(record.counts[visits])
        cached.append(visits[: int(np.searchsorted(total, rollouts)) + 1])
    rewards = [_rewards(record, visits) for visits in cached]
    keys = [record.keys[i] for i in numbers]
    rest = np.setdiff1d(np.arange(len(record)), np.concatenate(cached))
    if not record.is_binary:
        return PassRates.from_rewards(keys, rewards), rest
    successes, n = [int(r.sum()) for r in rewards], [len(r) for r in rewards]
    return PassRates.from_counts(keys, successes, n), rest


def _visits_by_prompt(
    record: RewardRecord, prompts: IntArray, visits: IntArray | None = None
) -> list[IntArray]:
    """Visits of each of some prompts, in time order, out of all or some visits."""
    visits = np.arange(len(record)) if visits is None else visits
    order = visits[np.argsort(record.prompt[visits], kind="stable")]
    places = np.searchsorted(record.prompt[order], [prompts, prompts + 1])
    return [order[a:b] for a, b in places.T]


class _Windows:
    """Visits of each prompt that make every window of a trace."""

    def __init__(
        self,
        record: RewardRecord,
        table: PassRates | None,
        stages: int,
        rollouts: int,
        cache_rollouts: int,
    ) -> None:
        self.record = record
        self.windows: dict[int, list[IntArray]] = {}
        self.visits_of: dict[int, IntArray] = {}
        self.visits = 0
        rest = np.arange(len(record))
        without = table is None
        if table is None:
            table, rest = first_visits(record, cache_rollouts)
        self.table = table
        everyone = np.arange(len(record.keys))
        for prompt, visits in enumerate(_visits_by_prompt(record, everyone, rest)):
            pooled = -(-rollouts // int(record.counts[visits].min(initial=rollouts)))
            if len(visits) >= stages * pooled:
                self.visits = max(self.visits, pooled)
                self.windows[prompt] = _spread(visits, pooled, stages)
                self.visits_of[prompt] = visits
        if len(self.windows) < 2:
            counts = np.bincount(record.prompt, minlength=len(record.keys))
            raise RecordError(
                f"{record.name}: {len(self.windows)} of {len(record.keys)} prompts have visits "
                f"enough for {stages} stages of {rollouts} rollouts"
                + (f" after a cache of {cache_rollouts}" if without else "")
                + f" (the median prompt has {int(np.median(counts))} visits of "
                f"{int(np.median(record.counts))}), and two are needed: ask for a smaller oracle "
                "(--oracle) or cache (--cache-rollouts), or record more visits"
            )
        check_known(self.table, [record.keys[i] for i in self.windows], record.name)

    def stages(self, names: Sequence[str], shown: int, rng: np.random.Generator) -> list[Stage]:
        """Every window as a stage."""
        made = []
        for number, name in enumerate(names):
            windows = [windows[number] for windows in self.windows.values()]
            rewards = [rng.permutation(_rewards(self.record, visits)) for visits in windows]
            keys = [self.record.keys[i] for i in self.windows]
            sources = self.record.sources
            named = None if sources is None else [sources[i] for i in self.windows]
            before = [
                of_prompt[of_prompt < window[0]]
                for of_prompt, window in zip(self.visits_of.values(), windows, strict=True)
            ]
            made.append(
                dataclasses.replace(
                    stage_from(name, keys, rewards, shown, self.table, named),
                    visits=self.visits,
                    drift=float(np.mean([_drift(self.record, window) for window in windows])),
                    history=np.sort(np.concatenate(before)),
                )
            )
        return made


def _spread(visits: IntArray, pooled: int, stages: int) -> list[IntArray]:
    """Windows of ``pooled`` visits at even distances; a single one lies in the middle."""
    last = len(visits) - pooled
    starts = np.linspace(0, last, stages) if stages > 1 else np.array([last / 2])
    return [visits[s : s + pooled] for s in np.rint(starts).astype(int)]


def _rewards(record: RewardRecord, visits: IntArray) -> FloatArray:
    return np.concatenate([record.of_visit(int(v)) for v in visits])


def _drift(record: RewardRecord, visits: IntArray) -> float:
    """Variance of the value between visits, unbiased; visits of one rollout tell nothing."""
    rewards = [record.of_visit(int(v)) for v in visits]
    rewards = [r for r in rewards if len(r) > 1]
    if len(rewards) < 2:
        return 0.0
    between = float(np.var([r.mean() for r in rewards], ddof=1))
    return between - float(np.mean([variance_of_mean(r) for r in rewards]))
