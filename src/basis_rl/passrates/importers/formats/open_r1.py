"""open-r1: what ``compute_pass_rate.py`` adds to a data set, a list of rewards a prompt.

The script puts the prompt's own text back, so its keys are those of the data set, as texts.
"""

from __future__ import annotations

from collections.abc import Iterator

from basis_rl.passrates.importers.format import COMMON, Format, Rows, has, identity, source_of
from basis_rl.passrates.importers.record import Notes, Options, Record
from basis_rl.passrates.importers.values import rewards_of, value_of


def _rows(rows: Rows, options: Options, notes: Notes) -> Iterator[Record]:
    for row in rows:
        columns, place = row.columns, row.place
        rewards = value_of(columns, "pass_rate_rewards", place)
        yield Record(
            place,
            **identity(columns, options, place, value_of(columns, "prompt", place)),
            rewards=rewards_of(rewards or [None], place, "pass_rate_rewards"),
            source=source_of(columns, options),
            extra={"completion": columns.get("pass_rate_generations")},
        )


FORMAT = Format(
    "open-r1",
    has("pass_rate_generations", "pass_rate_rewards"),
    _rows,
    takes=COMMON - {"reward_column"},
)
