"""Doing something to a module once it is imported, by whom ever."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from basis_rl.after_import import after_import


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "some_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "inner.py").write_text("value = 1\n")
    (folder / "broken.py").write_text("raise ValueError('broken')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("some_package", "some_package.inner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "some_package"


def double(module: Any) -> None:
    module.value *= 2


def test_a_module_is_used_after_its_import_and_not_before(package: str) -> None:
    finders = len(sys.meta_path)
    after_import(f"{package}.inner", double)
    after_import(f"{package}.inner", double)
    assert f"{package}.inner" not in sys.modules
    assert importlib.import_module(f"{package}.inner").value == 4
    assert len(sys.meta_path) == finders
    assert importlib.reload(sys.modules[f"{package}.inner"]).value == 1


def test_an_imported_module_is_used_at_once(package: str) -> None:
    module = importlib.import_module(f"{package}.inner")
    after_import(f"{package}.inner", double)
    assert module.value == 2


def test_a_module_that_is_not_there_or_fails_does_so_as_ever(package: str) -> None:
    for name, kind in (("missing", ModuleNotFoundError), ("broken", ValueError)):
        after_import(f"{package}.{name}", double)
        with pytest.raises(kind):
            importlib.import_module(f"{package}.{name}")
