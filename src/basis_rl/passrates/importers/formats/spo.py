"""SPO: ``offline_values.json``, one object of prompt text to a list of scores."""

from __future__ import annotations

import re
from collections.abc import Iterator

from basis_rl.errors import PassRatesError
from basis_rl.passrates.importers.format import Columns, Format, Rows
from basis_rl.passrates.importers.record import Notes, Options, Record
from basis_rl.passrates.importers.values import rewards_of

_NAME = re.compile(r"[\w./@-]*")


def _detect(columns: Columns) -> bool:
    if all(_NAME.fullmatch(name) for name in columns):
        return False  # names, as of a table's columns or of metrics, and not a prompt among them
    return all(
        isinstance(value, list)
        and all(score is None or isinstance(score, int | float) for score in value)
        for value in columns.values()
    )


def _rows(rows: Rows, options: Options, notes: Notes) -> Iterator[Record]:
    for row in rows:
        for prompt, scores in row.columns.items():
            place = f"{row.place}, prompt {prompt!r:.40}"
            if not isinstance(scores, list):
                raise PassRatesError(f"{place} has {scores!r:.40}: it should be a list of scores")
            yield Record(place, prompt=prompt, rewards=rewards_of(scores, place, "a score"))


FORMAT = Format("spo", _detect, _rows, takes=frozenset(), suffixes=(".json", ".json.gz"))
