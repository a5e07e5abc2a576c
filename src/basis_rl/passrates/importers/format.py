"""What every format of a dump has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from basis_rl.errors import PassRatesError
from basis_rl.passrates.importers.record import Notes, Options, Prompt, Record, Row
from basis_rl.passrates.importers.values import optional, value_of

Rows = Iterable[Row]
Columns = Mapping[str, Any]
COMMON = frozenset({"reward_column", "prompt_column", "key_column", "source_column"})


@dataclass(frozen=True)
class Format:
    """A kind of dump.

    Attributes
    ----------
    name : str
        As ``--format`` takes it.
    detect : callable
        Whether a file's first row is of this format.
    rows : callable
        Records of a dump's rows, which arrive in the files' order.
    step_of : callable, optional
        Training step that a file's name tells, None if it tells none.
    known : callable, optional
        Notes what the files beside the dump tell of model and sampling.
    takes : frozenset of str
        Fields of `Options` that mean something here.
    suffixes : tuple of str, optional
        Ends of the names of the files it can be in; any where empty.
    """

    name: str
    detect: Callable[[Columns], bool]
    rows: Callable[[Rows, Options, Notes], Iterator[Record]]
    step_of: Callable[[Path], int | None] | None = None
    known: Callable[[Sequence[Path], Notes], None] | None = None
    takes: frozenset[str] = COMMON
    suffixes: tuple[str, ...] = ()


def identity(
    columns: Columns, options: Options, place: str, prompt: Prompt | None
) -> dict[str, Any]:
    """Key and prompt of a record: of the columns that the caller names, else the prompt given.

    Raises
    ------
    BasisError
        If a named column is missing, or a key is neither a text nor an integer.
    """
    if options.prompt_column is not None:
        prompt = value_of(columns, options.prompt_column, place)
    if options.key_column is None:
        return {"key": None, "prompt": prompt}
    value = value_of(columns, options.key_column, place)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise PassRatesError(
            f"{place}: column {options.key_column!r} is {value!r:.60}: keys are texts or integers"
        )
    return {"key": str(value), "prompt": prompt}


def source_of(columns: Columns, options: Options, column: str | None = None) -> str | None:
    """Source of a row: the column that the caller names, or the format's own."""
    column = options.source_column or column
    value = optional(columns, column) if column else None
    if value is None:
        return None
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def has(*names: str) -> Callable[[Columns], bool]:
    """Whether a row has all these columns."""
    return lambda columns: all(name in columns for name in names)


def file_number(path: Path, prefix: str = "") -> int | None:
    """Number in a file name ``<prefix><number>.<suffix>``."""
    name = path.name.split(".")[0]
    digits = name.removeprefix(prefix)
    return int(digits) if name.startswith(prefix) and digits.isdecimal() else None
