"""Tests that need verl's environment; see `make test-verl`."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from assets import Assets

os.environ.setdefault("HF_HUB_OFFLINE", "1")
collect_ignore_glob = [] if importlib.util.find_spec("verl") else ["test_*.py"]


@pytest.fixture(scope="session")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Assets:
    """A tiny model, 64 prompts and their pass rates; made once."""
    from assets import make_assets

    return make_assets(tmp_path_factory.mktemp("assets") / "files")
