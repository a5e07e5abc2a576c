"""An estimator's state as one file: `state_dict` may hold JSON types and NumPy arrays."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from basis_rl.errors import StateError
from basis_rl.files import write_atomically

# What reading a damaged file raises; RuntimeError is of the zip format's flags.
_DAMAGE = (EOFError, KeyError, MemoryError, OSError, RuntimeError, SyntaxError, ValueError)
# Stands in the JSON text for the array of that number.
_ARRAY = "\0array"


def write_state(state: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a `state_dict` to a file, whole or not at all.

    JSON text, or an uncompressed ``.npz`` archive where the state holds arrays.

    Raises
    ------
    BasisError
        If the file cannot be written.
    """
    arrays: list[np.ndarray[Any, Any]] = []
    text = json.dumps(_without_arrays(state, arrays))
    if not arrays:
        write_atomically(Path(path), text.encode())
        return
    buffer = io.BytesIO()
    named = {str(number): array for number, array in enumerate(arrays)}
    np.savez(buffer, text=np.frombuffer(text.encode(), dtype=np.uint8), **named)  # type: ignore[arg-type]
    write_atomically(Path(path), buffer.getbuffer())


def read_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what `write_state` wrote.

    Raises
    ------
    StateError
        If the file is damaged.
    """
    try:
        with Path(path).open("rb") as stream:
            archive = stream.read(2) == b"PK"
            stream.seek(0)
            state = _read_archive(stream) if archive else json.load(stream)
    except (*_DAMAGE, zipfile.BadZipFile) as error:
        raise StateError(
            f"{path} cannot be read ({error}): resume from an earlier checkpoint"
        ) from error
    if not isinstance(state, dict):
        raise StateError(f"{path} holds no state: resume from an earlier checkpoint")
    return state


def _read_archive(stream: IO[bytes]) -> Any:
    with np.load(stream, allow_pickle=False) as saved:
        text = saved["text"].tobytes().decode()
        return _with_arrays(json.loads(text), saved)


def has_arrays(state: Any) -> bool:
    """Whether a state holds NumPy arrays, so that `write_state` makes an archive of it."""
    arrays: list[np.ndarray[Any, Any]] = []
    _without_arrays(state, arrays)
    return bool(arrays)


def _without_arrays(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {_ARRAY: len(arrays) - 1}
    if isinstance(value, Mapping):
        return {name: _without_arrays(entry, arrays) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_arrays(entry, arrays) for entry in value]
    return value


def _with_arrays(value: Any, saved: Any) -> Any:
    if isinstance(value, dict):
        number = value.get(_ARRAY)
        if len(value) == 1 and isinstance(number, int):
            return saved[str(number)]
        return {name: _with_arrays(entry, saved) for name, entry in value.items()}
    if isinstance(value, list):
        return [_with_arrays(entry, saved) for entry in value]
    return value
