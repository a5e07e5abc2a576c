"""The rows of verl's training data: their columns, and the keys of their prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from basis_rl.adapters.rows import RowNames
from basis_rl.errors import ConfigError
from basis_rl.verl.option_names import VERL
from basis_rl.verl.options import Config, section

# Columns that verl puts into prompts.
_MEDIA = {"image_key": "images", "video_key": "videos", "audio_key": "audios"}


def media_columns(config: Config) -> dict[str, str]:
    """Columns that verl puts into prompts if the data have them, by verl's option."""
    data = section(config, "data")
    return {option: str(data.get(option) or column) for option, column in _MEDIA.items()}


def check_media(config: Config, names: RowNames, rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse pictures, films and sounds in prompts whose key is a hash of their content.

    Raises
    ------
    ConfigError
    """
    if names.key_column is not None or not len(rows):
        return
    columns = column_names(rows)
    for option, column in media_columns(config).items():
        if column in columns:
            raise ConfigError(
                f"the training data have the column {column!r} (data.{option}), and the key of a "
                f"prompt is a hash of its text alone: name a column with keys ({VERL.key_column})"
            )


def training_keys(names: RowNames, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Key of every row of the training data.

    Raises
    ------
    ConfigError
        If there are no rows or a column is missing, or different prompts have one key.
    BatchError
        If a row has no key or source.
    """
    if not len(rows):
        raise ConfigError(
            "the training data are empty (after data.filter_overlong_prompts): name a file with "
            "prompts in data.train_files, or raise data.max_prompt_length"
        )
    names.check(column_names(rows))
    keys = [names.name(row)[0] for row in with_columns(rows, names.needed)]
    if names.key_column is not None:
        names.check_distinct(keys, _Prompts(rows, names.prompt_column))
    return keys


def whole_columns(paths: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Columns that hold these columns or fields, which a column's own name may look like."""
    return sorted({path if path in columns else path.partition(".")[0] for path in paths})


def column_names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Columns of a table, or of the first row."""
    return getattr(rows, "column_names", None) or list(rows[0])


def with_columns(rows: Sequence[Mapping[str, Any]], paths: list[str]) -> Any:
    """The same rows, to go through; of a `datasets.Dataset` only the columns that are read."""
    if not hasattr(rows, "select_columns"):
        return _InOrder(rows)
    columns = column_names(rows)
    return rows.select_columns([name for name in whole_columns(paths, columns) if name in columns])


class _InOrder:
    """Rows one after the other; a data set of torch may know no end but its length."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return (self._rows[row] for row in range(len(self._rows)))


class _Prompts(Sequence[Any]):
    """The prompts of rows, read one at a time."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], column: str) -> None:
        self._rows, self._column = rows, column

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: Any) -> Any:
        return self._rows[row][self._column]
