"""TRL: ``completions/completions_<step>.parquet`` of ``log_completions=True``.

TRL keeps the last generation and logs it at every logging step, so that a file repeats rows of the
one before it where there was no new generation. These repeats are left out: the longest end of the
previous file that is the start of this one. A file is written anew when a resumed run logs its step
again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from basis_rl.errors import PassRatesError
from basis_rl.passrates.importers.format import (
    Columns,
    Format,
    Rows,
    file_number,
    identity,
    source_of,
)
from basis_rl.passrates.importers.record import Notes, Options, Record, Row
from basis_rl.passrates.importers.values import number, value_of, whole

_FIXED = ("step", "prompt", "completion", "advantage")
SUM = "sum"


def _detect(columns: Columns) -> bool:
    return all(name in columns for name in _FIXED)


def _rows(rows: Rows, options: Options, notes: Notes) -> Iterator[Record]:
    names: list[str] | None = None
    for row in _without_repeats(rows, notes):
        columns, place = row.columns, row.place
        if names is None:
            names = _reward_columns(columns, options, place)
        yield Record(
            place,
            **identity(columns, options, place, value_of(columns, "prompt", place)),
            rewards=[_reward(columns, names, place)],
            step=whole(value_of(columns, "step", place), place, "step"),
            source=source_of(columns, options),
            extra={"completion": columns.get("completion")},
        )


def _reward_columns(columns: Columns, options: Options, place: str) -> list[str]:
    """Columns whose sum is the reward."""
    candidates = [
        name
        for name, value in columns.items()
        if name not in _FIXED and not isinstance(value, str | list | dict)
    ]
    wanted = options.reward_column
    if wanted == SUM and SUM not in columns:
        return candidates
    if wanted is not None:
        return [name.strip() for name in wanted.split(",")]
    if len(candidates) != 1:
        raise PassRatesError(
            f"{place} has {len(candidates)} columns that can be the reward "
            f"({', '.join(candidates)}): name one with --reward-column, several with a comma, or "
            "sum for all of them"
        )
    return candidates


def _reward(columns: Columns, names: list[str], place: str) -> float | None:
    """Sum of the rewards given, as TRL adds them; None where no function gave one."""
    values = [number(value_of(columns, name, place), place, name) for name in names]
    given = [value for value in values if value is not None]
    return sum(given) if given else None


def _without_repeats(rows: Rows, notes: Notes) -> Iterator[Row]:
    before: list[int] = []
    for _, group in groupby(rows, key=lambda row: row.file):
        some = list(group)
        now = [_fingerprint(row.columns) for row in some]
        repeated = _overlap(before, now)
        if repeated:
            notes.dropped["logged again in the next step's file"] += repeated
        yield from some[repeated:]
        before = now


def _fingerprint(columns: Columns) -> int:
    values: dict[str, Any] = {name: v for name, v in columns.items() if name != "step"}
    return hash(json.dumps(values, sort_keys=True, default=str))


def _overlap(before: list[int], now: list[int]) -> int:
    """Length of the longest end of ``before`` that is a start of ``now``."""
    lengths: Iterable[int] = range(min(len(before), len(now)), 0, -1)
    return next((n for n in lengths if before[-n:] == now[:n]), 0)


FORMAT = Format("trl", _detect, _rows, lambda path: file_number(path, "completions_"))
