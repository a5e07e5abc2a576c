"""Matrices of rewards: a row a prompt, its rollouts in a row."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from basis_rl.errors import BasisError
from basis_rl.lab.reading.visits import Visits
from basis_rl.lab.record import RecordError
from basis_rl.passrates.importers.detect import detect as importer_of
from basis_rl.passrates.importers.read import rows_of
from basis_rl.passrates.importers.values import is_missing, number
from basis_rl.passrates.keys import prompt_key

KEYS = ("key", "prompt_id", "prompt_key", "id")
PROMPTS = ("prompt", "question", "problem")
LISTS = ("rewards", "reward", "scores", "score", "correct")
_RANKS = (2, 3)
# Heads of a matrix's columns, such as r1, rollout_2 or 3; "step" or "length" is no rollout.
_ROLLOUT = re.compile(r"[a-z_ .-]*\d+", re.IGNORECASE)


def detect(row: Mapping[str, Any], path: Path) -> bool:
    """Whether a file is a matrix by its first row (empty: a CSV without a header)."""
    if path.name.endswith(".csv"):
        cells = next(_cells(path), ("", []))[1]
        return bool(cells) and (
            all(map(_is_number, cells))
            or (_is_headed(path) and importer_of(row, path.name) is None)
        )
    if importer_of(row, path.name) is not None:
        return False
    return _key_of(row) is not None and _list_of(row) is not None


def is_table(path: Path) -> bool:
    """Whether a Parquet file is a table of pass rates."""
    import pyarrow.parquet as pq

    from basis_rl.passrates.storage.file import METADATA_KEY

    try:
        return METADATA_KEY in (pq.read_schema(path).metadata or {})
    except (OSError, ValueError):
        return False


def read(path: Path, visits: Visits) -> None:
    """Add a matrix: .npy, .npz, .csv, a table of pass rates, or rows with a key and a list.

    Raises
    ------
    BasisError
        If it has another shape, or a value is no number; with the place.
    """
    if path.name.endswith((".npy", ".npz")):
        _add_numpy(visits, path)
    elif path.name.endswith(".csv"):
        _add_csv(visits, path)
    elif path.name.endswith(".parquet") and is_table(path):
        _add_table(visits, path)
    else:
        _add_lists(visits, path)


def add_array(
    visits: Visits,
    rewards: npt.NDArray[Any],
    *,
    keys: list[str] | None = None,
    steps: list[int] | None = None,
    place: str = "the array",
) -> None:
    """Add an array of rewards; NaN is a rollout without a verdict (or padding).

    Parameters
    ----------
    visits : Visits
    rewards : array, shape (P, N) or (P, V, G)
        One visit of N rollouts a prompt, or V visits of G.
    keys : list of str, length P, optional
        "0", "1", … by default.
    steps : list of int, length V, optional
        0, 1, … by default.
    place : str

    Raises
    ------
    RecordError
        If the shape is another one, or the values are no numbers.
    """
    if rewards.ndim not in _RANKS or rewards.dtype.kind not in "biuf":
        raise RecordError(
            f"{place} has shape {rewards.shape} and type {rewards.dtype}: pass numbers, prompts x "
            "rollouts or prompts x visits x rollouts"
        )
    cube = rewards[:, None, :] if rewards.ndim == min(_RANKS) else rewards
    names = [str(row) for row in range(len(cube))] if keys is None else keys
    numbers = list(range(cube.shape[1])) if steps is None else steps
    if len(names) != len(cube) or len(numbers) != cube.shape[1]:
        raise RecordError(
            f"{place}: {len(names)} keys and {len(numbers)} steps for {cube.shape[:2]} prompts x "
            "visits: give one each"
        )
    if len(set(names)) != len(names):
        raise RecordError(f"{place}: two rows have one key: give every prompt its own")
    for key, of_prompt in zip(names, cube, strict=True):
        for step, values in zip(numbers, of_prompt, strict=True):
            visits.add(f"{place}, prompt {key!r}", key, values.astype(float).tolist(), step=step)


def _add_numpy(visits: Visits, path: Path) -> None:
    try:
        loaded = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = " ".join(str(error).split())[:150]
        raise RecordError(
            f"{path} cannot be read as an array ({reason}): save it with np.save or np.savez"
        ) from None
    if isinstance(loaded, np.ndarray):
        add_array(visits, loaded, place=str(path))
        return
    with loaded:
        arrays = {name: loaded[name] for name in loaded.files}
    name = "rewards" if "rewards" in arrays else next(iter(arrays), None)
    if name is None or ("rewards" not in arrays and len(arrays) > 1):
        raise RecordError(f"{path} holds {', '.join(arrays) or 'nothing'}: name one array rewards")
    keys = [str(key) for key in arrays["keys"].tolist()] if "keys" in arrays else None
    steps = [int(step) for step in arrays["steps"].tolist()] if "steps" in arrays else None
    add_array(visits, arrays[name], keys=keys, steps=steps, place=str(path))


def _add_csv(visits: Visits, path: Path) -> None:
    keyed, width, of_prompts = _is_headed(path), 0, False
    for place, cells in _cells(path):
        if not width:
            width = len(cells)
            if keyed:
                of_prompts = cells[0].strip().lower() in PROMPTS
                continue
        if len(cells) != width:
            raise RecordError(f"{place} has {len(cells)} cells, the first line {width}: mend it")
        line = place.rsplit(" ", 1)[1]
        key = cells[0] if keyed else str(int(line) - 1)
        values = cells[1:] if keyed else cells
        rewards = [number(value, place, "a reward") for value in values]
        visits.add(place, prompt_key(key) if of_prompts else key, rewards)


def _is_headed(path: Path) -> bool:
    """Whether the first line is a header with a key and rollouts, and all else numbers."""
    lines = [cells for _, (_, cells) in zip(range(2), _cells(path), strict=False)]
    if len(lines) < 2 or len(lines[0]) < 2:
        return False
    header, row = lines
    return (
        header[0].strip().lower() in (*KEYS, *PROMPTS)
        and all(_ROLLOUT.fullmatch(cell.strip()) for cell in header[1:])
        and all(map(_is_number, row[1:]))
    )


def _cells(path: Path) -> Iterator[tuple[str, list[str]]]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.reader(stream, strict=True)
        try:
            for cells in reader:
                if cells:
                    yield f"{path}, line {reader.line_num}", cells
        except (csv.Error, UnicodeDecodeError) as error:
            raise RecordError(f"{path}, line {reader.line_num + 1}: {error}: mend it") from None


def _add_table(visits: Visits, path: Path) -> None:
    from basis_rl.passrates.table import PassRates

    table = PassRates.load(path)
    if table.kind == "rates":
        raise RecordError(
            f"{path} holds rates of an unknown number of rollouts: a replay needs the rewards"
        )
    rng = np.random.default_rng(0)
    sources: Sequence[str | None] = table.sources or [None] * len(table)
    for row, (key, source) in enumerate(zip(table.keys, sources, strict=True)):
        if table.successes is not None:
            rewards = (rng.permutation(int(table.n[row])) < table.successes[row]).astype(float)
        else:
            assert table.reward_values is not None
            assert table.reward_offsets is not None
            low, high = table.reward_offsets[row : row + 2]
            rewards = table.reward_values[low:high]
        visits.add(str(path), key, rewards.tolist(), source=source)


def _add_lists(visits: Visits, path: Path) -> None:
    for place, row in rows_of(path):
        key, rewards = _key_of(row), _list_of(row)
        if key is None or rewards is None:
            raise RecordError(
                f"{place} has no key ({', '.join([*KEYS, *PROMPTS])}) or no list of rewards "
                f"({', '.join(LISTS)}): the columns are {', '.join(row)}"
            )
        values = [number(value, place, "a reward") for value in rewards]
        step, source = row.get("step"), row.get("source")
        if step is not None and (isinstance(step, bool) or not isinstance(step, int)):
            raise RecordError(f"{place}: step is {step!r}: steps are whole numbers")
        text = None if source is None else str(source)
        visits.add(place, key, values, step=step or 0, source=text)


def _key_of(row: Mapping[str, Any]) -> str | None:
    """Key of a row; of a prompt's text it is the hash."""
    for name in KEYS:
        value = row.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool):
            return str(value)
    for name in PROMPTS:
        value = row.get(name)
        if value and isinstance(value, str | list):
            return prompt_key(value)
    return None


def _list_of(row: Mapping[str, Any]) -> list[Any] | None:
    for name in LISTS:
        value = row.get(name)
        if isinstance(value, list) and not any(isinstance(item, list | dict) for item in value):
            return value
    return None


def _is_number(cell: str) -> bool:
    if is_missing(cell):
        return True
    try:
        number(cell, "", "")
    except BasisError:
        return False
    return True
