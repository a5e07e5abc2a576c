"""The estimator's state in a checkpoint folder."""

from __future__ import annotations

from pathlib import Path

from basis_rl.errors import StateError
from basis_rl.estimators.base import Estimator
from basis_rl.state_files import read_state, write_state

STATE_NAME = "basis_state.json"


def save_state(estimator: Estimator, folder: str) -> None:
    """Write `basis_state.json` into a checkpoint folder."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    write_state(estimator.state_dict(), path / STATE_NAME)


def load_state(estimator: Estimator, folder: str) -> None:
    """Read `basis_state.json` of a checkpoint folder.

    A missing file is accepted for an estimator without state.

    Raises
    ------
    StateError
        If the file is missing, damaged or of another estimator.
    """
    path = Path(folder) / STATE_NAME
    if not path.is_file():
        if len(estimator.state_dict()) > 1:  # more than the name
            raise StateError(
                f"{path} is missing, and estimator {estimator.name!r} goes on from its state: "
                "resume from a checkpoint that BasisTrainer wrote, without save_only_model"
            )
        return
    state = read_state(path)
    try:
        estimator.load_state_dict(state)
    except StateError as error:
        raise StateError(f"{path}: {error}") from error
