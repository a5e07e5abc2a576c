"""AReaL: ``<version>/<task id>.jsonl`` of ``rollout.dump_to_file``.

The task id is a counter of the run and names no prompt: rollouts belong together by their prompt's
text. A rollout that spans weight updates has a first and a last version (head and tail); a range of
steps takes those that lie in it whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from basis_rl.passrates.importers.format import Format, Rows, has, identity, source_of
from basis_rl.passrates.importers.record import Notes, Options, Record
from basis_rl.passrates.importers.values import number, value_of, whole


def _step_of(path: Path) -> int | None:
    return int(path.parent.name) if path.parent.name.isdecimal() else None


def _rows(rows: Rows, options: Options, notes: Notes) -> Iterator[Record]:
    column = options.reward_column or "reward"
    for row in rows:
        columns, place = row.columns, row.place
        yield Record(
            place,
            **identity(columns, options, place, value_of(columns, "prompt", place)),
            rewards=[number(value_of(columns, column, place), place, column)],
            step=whole(value_of(columns, "tail_version", place), place, "tail_version"),
            first_step=whole(value_of(columns, "head_version", place), place, "head_version"),
            source=source_of(columns, options),
            extra={"completion": columns.get("completion")},
        )


FORMAT = Format("areal", has("task_id", "sample_idx", "tail_version"), _rows, _step_of)
