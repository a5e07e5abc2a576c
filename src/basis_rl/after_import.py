"""Does something to a module when it is imported, whoever imports it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def after_import(name: str, use: Callable[[ModuleType], None]) -> None:
    """Call ``use`` with a module: now if it is imported already, else right after its import.

    Nothing is imported for it: a module that nobody needs costs nothing. ``use`` is called again
    when the module is made again (`importlib.reload`).
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
        if fullname != self._name:
            return None
        spec = self._found(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            if module.__name__ == fullname:  # the loader of an archive loads others too
                self._use(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _found(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        """What the finders behind this one find, one of this kind perhaps."""
        finders = list(sys.meta_path)
        for finder in finders[finders.index(self) + 1 :] if self in finders else []:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(fullname, path, target)
            if spec is not None:
                return spec
        return None
