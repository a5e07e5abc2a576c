"""What an estimator (or a prompt sampler) goes on from, in a checkpoint folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

from basis_rl.adapters.option_names import OptionNames
from basis_rl.errors import BasisError, StateError
from basis_rl.files import cannot_write
from basis_rl.state_files import has_arrays, read_state, write_state

ESTIMATOR = "basis_state"
SAMPLER = "basis_sampler"
SUFFIXES = (".json", ".npz")


class HasState(Protocol):
    """An estimator or a sampler."""

    name: ClassVar[str]

    def state_dict(self) -> dict[str, Any]:
        """What a restart needs."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""


def save_state(of: HasState, folder: str | Path, stem: str = ESTIMATOR) -> None:
    """Write ``basis_state.json`` into a checkpoint folder, or ``.npz`` where it holds arrays.

    Raises
    ------
    BasisError
        If it cannot be written.
    """
    path = Path(folder)
    state = of.state_dict()
    used, other = SUFFIXES[::-1] if has_arrays(state) else SUFFIXES
    try:
        path.mkdir(parents=True, exist_ok=True)
        write_state(state, path / (stem + used))
        (path / (stem + other)).unlink(missing_ok=True)
    except OSError as error:
        raise BasisError(cannot_write(path, error)) from error


def load_state(
    of: HasState, folder: str | Path, stem: str = ESTIMATOR, *, names: OptionNames
) -> None:
    """Read the state in a checkpoint folder.

    A missing file is accepted for an estimator without state.

    Raises
    ------
    StateError
        If the file is missing, damaged or of another estimator.
    """
    found = [path for end in SUFFIXES if (path := Path(folder) / (stem + end)).is_file()]
    if not found:
        state = of.state_dict()
        if len(state) > 1:  # more than the name
            missing = stem + SUFFIXES[has_arrays(state)]
            raise StateError(
                f"{Path(folder) / missing} is missing, and {of.name!r} goes on from its state: "
                f"resume from {names.checkpoint}"
            )
        return
    saved = read_state(found[0])
    try:
        of.load_state_dict(saved)
    except StateError as error:
        raise StateError(f"{found[0]}: {error}") from error
