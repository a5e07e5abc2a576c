"""Columns of a row by (dotted) name, and what to say when there is none of that name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from basis_rl.errors import PromptsError

_SHOWN = 12
_CLOSE = 0.7  # below it, names are alike by chance


def column_value(columns: Mapping[str, Any], path: str) -> Any:
    """Value of a column, or of a field or item inside one.

    ``reward_model.ground_truth`` is a field, ``options.0`` the first item of a list. A column whose
    own name contains the dots is preferred.

    Raises
    ------
    KeyError
        If there is no such column, field or item.
    """
    if path in columns:
        return columns[path]
    head, _, rest = path.partition(".")
    value = columns.get(head)
    if isinstance(value, list):
        value = {str(number): item for number, item in enumerate(value)}
    if not rest or not isinstance(value, Mapping):
        raise KeyError(path)
    return column_value(value, rest)


def required_value(columns: Mapping[str, Any], path: str, *, where: str) -> Any:
    """`column_value`, with an error that lists the columns there are.

    Raises
    ------
    PromptsError
        If there is no such column or field.
    """
    try:
        return column_value(columns, path)
    except KeyError:
        raise PromptsError(
            f"{where} has no column {path!r}{columns_there_are(columns, path)}"
        ) from (None)


def columns_there_are(columns: Mapping[str, Any], wanted: str) -> str:
    """End of an error message: the closest column and all the others, fields included."""
    known = column_paths(columns)
    close = difflib.get_close_matches(wanted, known, n=1, cutoff=_CLOSE)
    hint = f": did you mean {close[0]!r}?" if close else ":"
    listed = ", ".join(known[:_SHOWN]) + (", …" if len(known) > _SHOWN else "")
    return f"{hint} the columns are {listed}"


def column_paths(columns: Mapping[str, Any]) -> list[str]:
    """All names that `column_value` knows, in order."""
    paths: list[str] = []
    for name, value in columns.items():
        paths.append(str(name))
        if isinstance(value, Mapping):
            paths += [f"{name}.{inner}" for inner in column_paths(value)]
    return paths
