"""Doing something to a module once it is imported, by whom ever."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import zipfile
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
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in ("some_package", "some_package.inner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "some_package"


def double(module: Any) -> None:
    module.value *= 2


def test_a_module_is_used_after_its_import_and_not_before(package: str) -> None:
    after_import(f"{package}.inner", double)
    after_import(f"{package}.inner", double)
    assert f"{package}.inner" not in sys.modules
    assert importlib.import_module(f"{package}.inner").value == 4
    assert importlib.reload(sys.modules[f"{package}.inner"]).value == 4


def test_who_only_looks_for_a_module_does_not_use_it_up(package: str) -> None:
    after_import(f"{package}.inner", double)
    assert importlib.util.find_spec(f"{package}.inner") is not None
    assert importlib.import_module(f"{package}.inner").value == 2


def test_a_loader_that_other_modules_share_uses_none_of_them(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name in ("__init__", "first", "second"):
            archive.writestr(f"zipped/{name}.py", "value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path / "all.zip"))
    after_import("zipped.first", double)
    values = [importlib.import_module(f"zipped.{name}").value for name in ("first", "second")]
    assert values == [2, 1]


def test_an_imported_module_is_used_at_once(package: str) -> None:
    module = importlib.import_module(f"{package}.inner")
    after_import(f"{package}.inner", double)
    assert module.value == 2


def test_a_module_that_is_not_there_or_fails_does_so_as_ever(package: str) -> None:
    for name, kind in (("missing", ModuleNotFoundError), ("broken", ValueError)):
        after_import(f"{package}.{name}", double)
        with pytest.raises(kind):
            importlib.import_module(f"{package}.{name}")
