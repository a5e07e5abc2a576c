"""Rows that a condition keeps, and the values there are where it keeps none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from basis_rl.prompts.columns import required_value

_SHOWN = 8


class Where:
    """Conditions on the columns of a row.

    Parameters
    ----------
    wanted : mapping
        Each column's value, or a list of the values that it may have.
    """

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self._wanted = wanted
        # Texts, for values need not be hashable; one more than is shown.
        self._seen: dict[str, dict[str, None]] = {column: {} for column in wanted}

    def keeps(self, row: Mapping[str, Any], place: str) -> bool:
        """Whether all conditions hold.

        Raises
        ------
        PromptsError
            If a column is missing.
        """
        for column, wanted in self._wanted.items():
            value = required_value(row, column, where=place)
            seen = self._seen[column]
            if len(seen) <= _SHOWN:
                seen[f"{value!r:.40}"] = None
            if value not in (wanted if isinstance(wanted, list) else [wanted]):
                return False
        return True

    def __str__(self) -> str:
        """Conditions, and some values of their columns."""
        seen = "; ".join(f"{column} has {_listed(v)}" for column, v in self._seen.items() if v)
        return f"{dict(self._wanted)} ({seen})" if seen else str(dict(self._wanted))


def _listed(values: Mapping[str, None]) -> str:
    shown = sorted(list(values)[:_SHOWN])
    return ", ".join([*shown, "…"] if len(values) > _SHOWN else shown)
