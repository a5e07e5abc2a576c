"""Key and source of each row of a batch, from the columns of the training data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from basis_rl.adapters.option_names import OptionNames
from basis_rl.errors import BatchError, ConfigError, PassRatesError
from basis_rl.passrates.keys import canonical, prompt_key
from basis_rl.prompts.columns import column_value


@dataclass(frozen=True)
class RowNames:
    """Where a row's key and source are found.

    Attributes
    ----------
    key_column : str, optional
        A column, or a field inside one (``extra_info.index``). None takes the hash of the prompt's
        content.
    source_column : str, optional
        As the key's.
    prompt_column : str
    words : OptionNames
        The trainer's, for errors.
    """

    key_column: str | None
    source_column: str | None
    prompt_column: str = "prompt"
    words: OptionNames = field(kw_only=True)

    @property
    def needed(self) -> list[str]:
        """Columns that `name` reads, whole ones."""
        paths = [self.key_column or self.prompt_column, self.source_column]
        return sorted({path for path in paths if path is not None})

    def check(self, columns: Sequence[str]) -> None:
        """Refuse training data without a column that is needed, and pictures without keys.

        Raises
        ------
        ConfigError
        """
        for option, column in (
            (self.words.key_column, self.key_column),
            (self.words.source_column, self.source_column),
        ):
            if column is not None and not _has(columns, column):
                raise ConfigError(
                    f"{option} is {column!r}, and the training data have the columns "
                    f"{', '.join(columns)}: name one of them"
                )
        if self.prompt_column not in columns:
            raise ConfigError(
                f"the training data have no column {self.prompt_column!r}, only "
                f"{', '.join(columns)}: {self.words.prompt_column}"
            )
        pictures = [column for column in columns if column in ("image", "images")]
        if pictures and self.key_column is None:
            raise ConfigError(
                f"the training data have the column {pictures[0]!r}, and the key of a prompt is a "
                f"hash of its text alone: name a column with keys ({self.words.key_column})"
            )

    def key(self, row: Mapping[str, Any]) -> str:
        """Key of a row's prompt.

        Raises
        ------
        BatchError
            If the column is missing or its value is neither a string nor an integer.
        """
        if self.key_column is None:
            if self.prompt_column not in row:
                raise BatchError(
                    f"a row has no {self.prompt_column}, only {', '.join(row)}: name a column with "
                    f"keys ({self.words.key_column})"
                )
            return prompt_key(row[self.prompt_column])
        return self._entry(row, self.key_column)

    def name(self, row: Mapping[str, Any]) -> tuple[str, str | None]:
        """Key and source of a row's prompt; no source without a source column.

        Raises
        ------
        BatchError
            As `key`.
        """
        source = None if self.source_column is None else self._entry(row, self.source_column)
        return self.key(row), source

    def check_distinct(self, keys: Sequence[str], prompts: Sequence[Any]) -> None:
        """Refuse a key column that gives different prompts one key.

        Parameters
        ----------
        keys : sequence of str
            Of all training data, as `key` gives them.
        prompts : sequence
            The prompts of the same rows; read only where a key comes again.

        Raises
        ------
        ConfigError
        """
        first: dict[str, int] = {}
        for row, key in enumerate(keys):
            before = first.setdefault(key, row)
            if before != row and _text(prompts[before]) != _text(prompts[row]):
                shared = "all" if len(set(keys)) == 1 else "both"
                raise ConfigError(
                    f"{self.words.key_column} is {self.key_column!r}, whose value is {key!r} for "
                    f"{shared} of these prompts: {shorten(prompts[before])} and "
                    f"{shorten(prompts[row])} (rows {before} and {row} of {len(keys)}): name a "
                    "column with an id of its own for each prompt, or leave the option out (the "
                    "key is then a hash of the prompt)"
                )

    def _entry(self, row: Mapping[str, Any], path: str) -> str:
        try:
            value = column_value(row, path)
        except KeyError:
            value = None
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise BatchError(
                f"column {path!r} is {value!r} for the prompt "
                f"{shorten(row.get(self.prompt_column))}: it needs a non-empty string or an "
                "integer in every row"
            )
        return str(value)


def shorten(prompt: Any, width: int = 60) -> str:
    """Show a prompt in one short line, for an error message; of a chat, the last message."""
    messages = isinstance(prompt, list | tuple | np.ndarray)
    if messages and len(prompt) and isinstance(prompt[-1], Mapping):
        prompt = prompt[-1].get("content")
    text = " ".join(str(prompt).split())
    return repr(text if len(text) <= width else text[: width - 1] + "…")


def _has(columns: Sequence[str], path: str) -> bool:
    """Whether there is a column of that name, or one that could hold such a field."""
    return path in columns or ("." in path and path.partition(".")[0] in columns)


def _text(prompt: Any) -> str:
    try:
        return canonical(prompt)
    except PassRatesError:
        return repr(prompt)
