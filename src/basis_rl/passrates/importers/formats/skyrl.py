"""SkyRL: ``<data source>.jsonl`` of an evaluation's dump.

The evaluations of a training run are in folders ``global_step_<n>_evals``, each of another policy.
``score`` is one number, or one a token, whose sum is the reward.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from basis_rl.passrates.importers.format import Format, Rows, has, identity, source_of
from basis_rl.passrates.importers.record import Notes, Options, Record
from basis_rl.passrates.importers.values import number, rewards_of, value_of

_FOLDER = re.compile(r"global_step_(\d+)_evals")


def _step_of(path: Path) -> int | None:
    folder = _FOLDER.fullmatch(path.parent.name)
    return int(folder.group(1)) if folder else None


def _rows(rows: Rows, options: Options, notes: Notes) -> Iterator[Record]:
    for row in rows:
        columns, place = row.columns, row.place
        yield Record(
            place,
            **identity(columns, options, place, value_of(columns, "input_prompt", place)),
            rewards=[_score(value_of(columns, options.reward_column or "score", place), place)],
            step=row.step,
            source=source_of(columns, options, "data_source"),
            extra={"completion": columns.get("output_response")},
        )


def _score(value: Any, place: str) -> float | None:
    if not isinstance(value, list):
        return number(value, place, "score")
    parts = [part for part in rewards_of(value, place, "score") if part is not None]
    return sum(parts) if len(parts) == len(value) and parts else None


FORMAT = Format("skyrl", has("input_prompt", "output_response", "score"), _rows, _step_of)
