"""Stages of training from one record per checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np

from basis_rl.lab.record import RecordError, RewardRecord, Stage
from basis_rl.lab.stage_parts import check_known, stage_from
from basis_rl.passrates.table import PassRates


def checkpoint_stages(
    records: Sequence[RewardRecord],
    table: PassRates | None,
    stages: Sequence[str],
    shown: int,
    oracle: int,
) -> list[Stage]:
    """One stage per record, of the prompts that all of them hold (see `stages_of`)."""
    _check_order(records)
    _check_different(records)
    names = _names(records, stages)
    visits = [_only_visits(record, shown + oracle) for record in records]
    if table is None:
        raise RecordError(
            f"{records[0].name} has one visit per prompt and no pass rates, so nothing can be "
            "cached: name a table (--pass-rates)"
        )
    keys = [key for key in visits[0] if all(key in others for others in visits)]
    if len(keys) < 2:
        raise RecordError(
            f"{', '.join(record.name for record in records)} share {len(keys)} prompts with "
            f"{shown + oracle} rollouts: record the same prompts at every checkpoint"
        )
    check_known(table, keys, records[0].name)
    made = []
    for record, of_key, name in zip(records, visits, names, strict=True):
        rewards = [record.of_visit(of_key[key]) for key in keys]
        sources = None
        if record.sources is not None:
            sources = [record.sources[record.prompt[of_key[key]]] for key in keys]
        made.append(stage_from(name, keys, rewards, shown, table, sources))
    return made


def _last_step(record: RewardRecord) -> int:
    return int(record.step[-1])


def _check_order(records: Sequence[RewardRecord]) -> None:
    for before, after in pairwise(records):
        if _last_step(after) < _last_step(before):
            raise RecordError(
                f"{after.name} is of step {_last_step(after)} and comes after {before.name} of "
                f"step {_last_step(before)}: name checkpoints in the order of training"
            )


def _check_different(records: Sequence[RewardRecord]) -> None:
    """Refuse a checkpoint that comes twice: one policy would pass for two moments of training."""
    for first, second in combinations(records, 2):
        if (
            np.array_equal(first.step, second.step)
            and np.array_equal(first.starts, second.starts)
            and np.array_equal(first.rewards, second.rewards)
            and _keys(first) == _keys(second)
        ):
            raise RecordError(
                f"{second.name} holds the same steps and rewards as {first.name}: name each "
                "checkpoint once"
            )


def _keys(record: RewardRecord) -> list[str]:
    return [record.keys[prompt] for prompt in record.prompt.tolist()]


def _names(records: Sequence[RewardRecord], stages: Sequence[str]) -> list[str]:
    """Names of stages where the steps say that the order is right, else those of the records."""
    rise = all(_last_step(a) < _last_step(b) for a, b in pairwise(records))
    if len(stages) == len(records) and rise:
        return list(stages)
    names = [record.name for record in records]
    for name in names:
        if names.count(name) > 1:
            raise RecordError(
                f"{names.count(name)} records are called {name!r}, and figures tell stages apart "
                "by name: give each its own (read_record(..., name=...))"
            )
    return names


def _only_visits(record: RewardRecord, rollouts: int) -> dict[str, int]:
    """The visit of each prompt with rollouts enough."""
    if len(np.unique(record.prompt)) < len(record):
        raise RecordError(
            f"{record.name}: a prompt comes twice, so this is no checkpoint but a run: pass it "
            "alone, or one record per checkpoint"
        )
    enough = np.flatnonzero(record.counts >= rollouts)
    if len(enough) < 2:
        raise RecordError(
            f"{record.name}: {len(enough)} prompts have {rollouts} rollouts (the most is "
            f"{int(record.counts.max())}): record more, or ask for a smaller oracle (--oracle)"
        )
    return {record.keys[record.prompt[v]]: int(v) for v in enough}
