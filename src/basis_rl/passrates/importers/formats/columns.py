"""Any CSV, JSONL, JSON or Parquet file or hub data set, by the names of its columns."""

from __future__ import annotations

from collections.abc import Iterator

from basis_rl.errors import PassRatesError
from basis_rl.passrates.importers.format import COMMON, Columns, Format, Rows, identity, source_of
from basis_rl.passrates.importers.record import Notes, Options, Prompt, Record, Row
from basis_rl.passrates.importers.values import (
    Measured,
    measured,
    optional,
    rewards_of,
    value_of,
    whole,
)

REWARD_COLUMNS = ("reward", "rewards", "score", "scores")  # told, never taken unasked
PROMPT_COLUMNS = ("prompt", "problem", "question", "messages")


def _rows(rows: Rows, options: Options, notes: Notes) -> Iterator[Record]:
    chosen = [
        f"--{kind}-column"
        for kind in ("reward", "successes", "rate")
        if getattr(options, f"{kind}_column") is not None
    ]
    if options.n is not None and options.n_column is not None:
        raise PassRatesError("--n and --n-column are both given: leave one out")
    for row in rows:
        if len(chosen) > 1:
            raise PassRatesError(f"{' and '.join(chosen)} are both given: leave one out")
        if not chosen:
            raise PassRatesError(
                f"{row.place} is of no known format: name the column with the rewards "
                f"(--reward-column{_usual(row.columns)}), or let `basis-rl cache import` take "
                "counts (--successes-column with --n or --n-column) or rates (--rate-column with "
                f"--unit); the columns are {', '.join(row.columns)}{_public(row.columns)}"
            )
        yield _record(row, options)


def _usual(columns: Columns) -> str:
    """Column of a usual name for rewards, to put behind ``--reward-column``."""
    return next((f" {name}" for name in REWARD_COLUMNS if name in columns), "")


def _public(columns: Columns) -> str:
    """End of an error: public data sets that a file with these columns may be of."""
    from basis_rl.passrates.importers.public import sets_with

    names = " or ".join(sets_with(columns)[:3])
    return f"; a file of a public data set takes its hub id, --format {names}" if names else ""


def _record(row: Row, options: Options) -> Record:
    columns, place = row.columns, row.place
    key, prompt = key_and_prompt(columns, options, place)
    rewards = None
    found = Measured()
    if options.reward_column is not None:
        value = value_of(columns, options.reward_column, place)
        rewards = rewards_of(value, place, options.reward_column)
    else:
        found = _measured(columns, options, place)
    return Record(
        place,
        key=key,
        prompt=prompt,
        rewards=rewards,
        successes=found.successes,
        n=found.n,
        rate=found.rate,
        step=_step(columns, options, place),
        source=source_of(columns, options),
    )


def _step(columns: Columns, options: Options, place: str) -> int | None:
    """Training step of the column ``step``; another kind of step counts as none."""
    try:
        return whole(columns.get("step"), place, "step")
    except PassRatesError:
        if options.steps is not None:
            raise
        return None


def _measured(columns: Columns, options: Options, place: str) -> Measured:
    n = options.n
    if options.n_column is not None:
        n = whole(value_of(columns, options.n_column, place), place, options.n_column)
    if options.successes_column is not None:
        value = value_of(columns, options.successes_column, place)
        return measured(value, options.unit or "count", n, place, options.successes_column)
    assert options.rate_column is not None
    value = value_of(columns, options.rate_column, place)
    return measured(value, options.unit or "rate", n, place, options.rate_column)


def key_and_prompt(
    columns: Columns, options: Options, place: str, names: tuple[str, ...] = PROMPT_COLUMNS
) -> tuple[str | None, Prompt | None]:
    """Key of the named key column, and prompt of the named column or the first usual one.

    Raises
    ------
    BasisError
        If there is neither a key nor a prompt.
    """
    about = identity(columns, options, place, None)
    key: str | None = about["key"]
    if about["prompt"] is not None:
        return key, about["prompt"]
    for name in names:
        prompt = optional(columns, name)
        if prompt is not None:
            return key, prompt
    if key is None:
        raise PassRatesError(
            f"{place} has none of the columns {', '.join(names)}: name the one with the prompt "
            f"(--prompt-column) or with a key (--key-column); there are {', '.join(columns)}"
        )
    return key, None


FORMAT = Format(
    "columns",
    lambda columns: False,
    _rows,
    takes=COMMON | {"successes_column", "n_column", "n", "rate_column", "unit"},
)
