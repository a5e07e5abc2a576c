"""Does something to a module when it is imported, whoever imports it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def after_import(name: str, use: Callable[[ModuleType], None]) -> None:
    """Call ``use`` with a module: now if it is imported already, else right after its import.

    Nothing is imported for it: a module that nobody needs costs nothing.
    """
    module = sys.modules.get(name)
    if module is None or getattr(module.__spec__, "_initializing", False):
        sys.meta_path.insert(0, _Waiting(name, use))
    else:
        use(module)


class _Waiting(MetaPathFinder):
    def __init__(self, name: str, use: Callable[[ModuleType], None]) -> None:
        self._name, self._use = name, use

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)  # the other finders find it, one of this kind perhaps
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            self._use(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
