"""Tests that need vLLM's environment; see `make test-vllm`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from random_qwen3 import save_model

collect_ignore_glob = [] if importlib.util.find_spec("vllm") else ["test_*.py"]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose next token is neither certain nor anything; vLLM on a CPU takes its heads."""
    return save_model(tmp_path_factory.mktemp("model"), seed=1, head_dim=32, sharpness=11.0)


@pytest.fixture(scope="session")
def model(folder: Path) -> Any:
    from exact_texts import network

    return network(folder)
