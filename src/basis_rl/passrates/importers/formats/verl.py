"""verl: ``<step>.jsonl`` of trainer.rollout_data_dir or trainer.validation_data_dir.

A file is written anew when a resumed run reaches its step again, so no rollout is there twice. The
V1 trainer's uid is drawn anew in every step and names no prompt: rollouts belong together by their
``input``, the decoded prompt without special tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

from basis_rl.passrates.importers.format import Format, Rows, file_number, has, identity, source_of
from basis_rl.passrates.importers.record import Notes, Options, Record
from basis_rl.passrates.importers.values import number, value_of, whole


def _rows(rows: Rows, options: Options, notes: Notes) -> Iterator[Record]:
    column = options.reward_column or "score"
    for row in rows:
        columns, place = row.columns, row.place
        yield Record(
            place,
            **identity(columns, options, place, value_of(columns, "input", place)),
            rewards=[number(value_of(columns, column, place), place, column)],
            step=whole(value_of(columns, "step", place), place, "step"),
            source=source_of(columns, options, "data_source"),
            extra={"completion": columns.get("output"), "ground_truth": columns.get("gts")},
        )


FORMAT = Format("verl", has("input", "output", "score", "step"), _rows, file_number)
