"""Key, source and length of each row of a generation batch, on all processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from basis_rl.errors import BatchError, ConfigError
from basis_rl.passrates import prompt_key


@dataclass(frozen=True)
class RowNames:
    """Where a row's key and source are found.

    Attributes
    ----------
    key_column : str, optional
        None takes the hash of the prompt's content.
    source_column : str, optional
    """

    key_column: str | None
    source_column: str | None

    def check(self, columns: Sequence[str]) -> None:
        """Refuse training data without a column that is needed, and pictures without keys.

        Raises
        ------
        ConfigError
        """
        for option, column in (
            ("prompt_key_column", self.key_column),
            ("prompt_source_column", self.source_column),
        ):
            if column is not None and column not in columns:
                raise ConfigError(
                    f"{option} is {column!r}, and the training data have the columns "
                    f"{', '.join(columns)}: name one of them"
                )
        if "prompt" not in columns:
            raise ConfigError(
                f"the training data have no column 'prompt', only {', '.join(columns)}: rename the "
                "one with the prompts, dataset.rename_column(..., 'prompt')"
            )
        pictures = [column for column in columns if column in ("image", "images")]
        if pictures and self.key_column is None:
            raise ConfigError(
                f"the training data have the column {pictures[0]!r}, and the key of a prompt is a "
                "hash of its text alone: name a column with keys (prompt_key_column)"
            )

    def key(self, row: Mapping[str, Any]) -> str:
        """Key of a row's prompt.

        Raises
        ------
        BatchError
            If the column is missing or its value is neither a string nor an integer.
        """
        if self.key_column is None:
            if "prompt" not in row:
                raise BatchError(
                    f"a row has no prompt, only {', '.join(row)}: name a column with keys "
                    "(prompt_key_column)"
                )
            return prompt_key(row["prompt"])
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

    def _entry(self, row: Mapping[str, Any], column: str) -> str:
        value = row.get(column)
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise BatchError(
                f"column {column!r} is {value!r} for the prompt {shorten(row.get('prompt'))}: it "
                "needs a non-empty string or an integer in every row"
            )
        return str(value)


def shorten(prompt: Any, width: int = 60) -> str:
    """Show a prompt in one short line, for an error message; of a chat, the last message."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[-1], Mapping):
        prompt = prompt[-1].get("content")
    text = " ".join(str(prompt).split())
    return repr(text if len(text) <= width else text[: width - 1] + "…")
