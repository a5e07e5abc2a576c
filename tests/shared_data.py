"""Real data that tests read: not part of the project, so tests skip where it is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def shared_data(name: str) -> Path:
    """Path of a file of the data folder; skips the test without it."""
    root = Path(os.environ.get("BASIS_RL_DATA") or Path(__file__).parents[2] / "shared" / "data")
    path = root / name
    if not path.exists():
        pytest.skip(f"{path} is missing: set BASIS_RL_DATA to the folder with the test data")
    return path
