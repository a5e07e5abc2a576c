"""The transformers engine beside the model's own probabilities, as a measure of the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from exact_texts import ALPHA, SETTINGS, agreement, check_that_differences_show, drawn

from basis_rl.rollouts.create import open_engine
from basis_rl.rollouts.engine import Engine


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    with open_engine("transformers", str(folder), dtype="float32") as engine:
        yield engine


@pytest.mark.parametrize("name", SETTINGS)
def test_texts_have_the_models_probabilities(engine: Engine, model: Any, name: str) -> None:
    assert agreement(model, drawn(engine, SETTINGS[name]), SETTINGS[name]) > ALPHA


def test_differences_show(engine: Engine, model: Any) -> None:
    check_that_differences_show(engine, model)
