"""Dumps of trainers and evaluators, read as `basis-rl cache import` reads them."""

from __future__ import annotations

from typing import Any

from basis_rl.errors import PassRatesError
from basis_rl.lab.reading.visits import Visits
from basis_rl.lab.record import RecordError
from basis_rl.passrates.importers import Record, read_records
from basis_rl.passrates.importers.record import Options
from basis_rl.passrates.keys import prompt_key


def read_dump(
    source: str,
    visits: Visits,
    form: str | None,
    steps: tuple[int, int] | None,
    options: Options | None,
) -> None:
    """Add a dump; rollouts of a prompt in one training step are a visit.

    Raises
    ------
    BasisError
        As `read_records`; if a row is a rate of an unknown number of rollouts.
    """
    keys = _Keys()
    lists: set[tuple[str, int, tuple[float | None, ...]]] = set()
    for record in read_records(
        source, format=form, steps=steps, options=options, notes=visits.notes
    ):
        step = 0 if record.step is None else record.step
        key, rewards = keys.of(record), _rewards(record)
        if len(rewards) > 1:
            # A row written twice would be shown to an estimator and be its oracle too.
            if (key, step, tuple(rewards)) in lists:
                visits.notes.dropped["rows that repeat a prompt and its result"] += 1
                continue
            lists.add((key, step, tuple(rewards)))
        visits.add(
            record.place,
            key,
            rewards,
            step=step,
            source=record.source,
            rollout=record.rollout if len(record.rewards or ()) == 1 else None,
        )


class _Keys:
    """Keys of records; rollouts of one prompt mostly follow each other."""

    def __init__(self) -> None:
        self._last: tuple[Any, str] | None = None

    def of(self, record: Record) -> str:
        if record.key is not None:
            return record.key
        if record.prompt is None:
            raise RecordError(f"{record.place} has neither a prompt nor a key")
        if self._last is None or self._last[0] != record.prompt:
            try:
                self._last = (record.prompt, prompt_key(record.prompt))
            except PassRatesError as error:
                raise RecordError(f"{record.place}: {error}") from None
        return self._last[1]


def _rewards(record: Record) -> list[float | None]:
    if record.rewards is not None:
        return list(record.rewards)
    if record.successes is not None and record.n is not None:
        return [float(place < record.successes) for place in range(record.n)]
    if record.rate is not None:
        raise RecordError(
            f"{record.place} is a rate of an unknown number of rollouts: a replay needs the "
            "rewards of single rollouts"
        )
    return [None]
