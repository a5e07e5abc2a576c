"""Keys of a run's training prompts, read from `data.train_files`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from basis_rl.adapters.rows import RowNames, shorten
from basis_rl.errors import BasisError, ConfigError, PromptsError
from basis_rl.prompts.files import check_file, read_rows
from basis_rl.verl.option_names import VERL
from basis_rl.verl.options import Config, Options, section, whole_number
from basis_rl.verl.run import row_names

_REMOTE = "://"
_READ = (".parquet", ".json", ".jsonl")  # by verl 0.9's data set


@dataclass(frozen=True)
class TrainingPrompts:
    """The prompts of a run's training data.

    Attributes
    ----------
    keys : list of str
        One a row.
    files : list of str
        As configured.
    prompt : callable
        Prompt in a row; reads the file again.
    rows : callable
        Rows of all files, with only the columns named.
    """

    keys: list[str]
    files: list[str]
    prompt: Callable[[int], Any]
    rows: Callable[[Sequence[str]], Iterator[Mapping[str, Any]]]

    def show(self, row: int) -> str:
        """Show the prompt in a row in one short line."""
        return shorten(self.prompt(row))


def unreadable_here(config: Config) -> str | None:
    """Why the training data cannot be looked at before the job; None where they can."""
    data = section(config, "data")
    remote = [file for file in train_files(config) if _REMOTE in file]
    if remote:
        return f"{remote[0]} is not on this machine"
    if section(data, "custom_cls").get("path"):
        return f"data.custom_cls.path={data['custom_cls']['path']} makes prompts of its own"
    return None


def train_files(config: Config) -> list[str]:
    """Names of the training files."""
    given = section(config, "data").get("train_files")
    if given is None:
        return []
    files = [given] if isinstance(given, str) else [str(file) for file in given]
    return [file for file in files if file]


def read_prompts(config: Config, options: Options) -> TrainingPrompts:
    """Read the keys of all training prompts, and only the columns that they are made of.

    With ``data.train_max_samples`` those of the rows that verl takes, unless it draws them without
    a seed. Prompts longer than ``data.max_prompt_length`` are counted too: only the job tokenizes.

    Raises
    ------
    BasisError
        If a file is missing or damaged, a column is missing, a key is missing or empty, or one key
        is given to different prompts.
    """
    files = train_files(config)
    if not files:
        raise ConfigError("data.train_files is empty: name the Parquet file to train on")
    names = row_names(options, str(section(config, "data").get("prompt_key") or "prompt"))
    parts, keys = [], list[str]()
    for file in files:
        with _in_file(file):
            part = _part(file, names)
            keys += part.row_keys()
        parts.append(part)
    if not keys:
        raise ConfigError(
            f"{', '.join(files)} (data.train_files): no rows, so that there is nothing to train on"
        )
    starts = np.cumsum([0, *(len(part) for part in parts)])

    def prompt(row: int) -> Any:
        part = int(np.searchsorted(starts, row, side="right")) - 1
        return parts[part].prompt(row - int(starts[part]))

    if names.key_column is not None and len(set(keys)) < len(keys):
        _check_distinct(names, keys, [code for part in parts for code in part.codes()], prompt)

    def rows(columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        for part in parts:
            yield from part.rows(columns)

    taken = _taken(config, len(keys))
    if taken is None:
        return TrainingPrompts(keys, files, prompt, rows)
    kept = [keys[row] for row in taken]
    return TrainingPrompts(kept, files, lambda row: prompt(int(taken[row])), rows)


def _taken(config: Config, rows: int) -> Sequence[int] | None:
    """Rows that verl takes, as its data set chooses them; None for all, or if nobody knows."""
    data = section(config, "data")
    most = whole_number(config, "data.train_max_samples") or -1
    if not 0 < most < rows:
        return None
    if not data.get("shuffle"):
        return range(most)
    seed = whole_number(config, "data.seed", 0)
    if seed is None:
        return None
    drawn: list[int] = np.random.default_rng(seed).choice(rows, size=most, replace=False).tolist()
    return drawn


def _check_distinct(
    names: RowNames, keys: list[str], codes: list[str], prompt: Callable[[int], Any]
) -> None:
    """Refuse one key for different prompts; the shared check tells which, from the prompts."""
    first: dict[str, int] = {}
    for row, key in enumerate(keys):
        before = first.setdefault(key, row)
        if codes[before] != codes[row]:
            same = prompt(before)
            few = {earlier: same for earlier in range(row) if keys[earlier] == key}
            few[row] = prompt(row)
            names.check_distinct(keys, _Lookup(few, len(keys), codes))
            return


class _Lookup(Sequence[Any]):
    """Prompts of which only a few are held; the others are told apart by their hashes."""

    def __init__(self, few: dict[int, Any], rows: int, codes: list[str]) -> None:
        self._few, self._rows, self._codes = few, rows, codes

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: Any) -> Any:
        return self._few.get(row, self._codes[row])


class _JsonPart:
    """A JSON or JSONL file, read whole."""

    def __init__(self, path: Path, names: RowNames) -> None:
        self._names = names
        self._rows = [row for _, row in read_rows(str(path))]
        if self._rows:
            names.check(list(self._rows[0]))

    def __len__(self) -> int:
        return len(self._rows)

    def row_keys(self) -> list[str]:
        return [self._names.name(row)[0] for row in self._rows]

    def codes(self) -> list[str]:
        hashed = RowNames(None, None, self._names.prompt_column, words=VERL)
        return [hashed.key(row) for row in self._rows]

    def prompt(self, row: int) -> Any:
        return self._rows[row].get(self._names.prompt_column)

    def rows(self, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        yield from self._rows


def _part(file: str, names: RowNames) -> Any:
    name = os.path.expanduser(file)
    if os.path.isfile(name) and not name.endswith(_READ):
        raise ConfigError(f"verl reads files that end in {', '.join(_READ)}: convert it")
    path: Path = check_file(name)
    if path.suffix != ".parquet":
        return _JsonPart(path, names)
    from basis_rl.verl.parquet import ParquetPart

    return ParquetPart(path, names)


@contextmanager
def _in_file(file: str) -> Iterator[None]:
    """Name the file in an error that does not."""
    try:
        yield
    except PromptsError:
        raise
    except BasisError as error:
        raise type(error)(f"{file} (data.train_files): {error}") from error
