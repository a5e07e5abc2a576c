"""A verifier that the user writes: `module:function`."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from basis_rl.errors import ConfigError, nearest
from basis_rl.prompts.columns import columns_there_are
from basis_rl.verifiers.base import Columns

EXAMPLE = "def reward(completion, answer, **columns): return float(answer in completion)"


class Function:
    """Calls ``function(completion, **columns)``.

    The function gets the columns that it names, or all of them if it takes ``**columns``.

    Raises
    ------
    ConfigError
        If the module or the function does not exist, or it cannot be called like that.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.function = load_function(name)
        self.version = source_version(self.function)
        parameters = self._parameters()
        self._first, *rest = (p.name for p in parameters if p.kind is not p.VAR_KEYWORD)
        self._takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self._names = rest
        self._required = [p.name for p in parameters[1:] if _is_required(p)]

    def __call__(self, completion: str, columns: Columns) -> float | None:
        """Reward of one completion, None for no verdict."""
        self.check(columns)
        arguments = {name: v for name, v in self.needed(columns).items() if name != self._first}
        reward: float | None = self.function(completion, **arguments)
        return reward

    def __reduce__(self) -> tuple[type[Function], tuple[str]]:
        return Function, (self.name,)  # another process imports it by its name

    def needed(self, columns: Columns) -> Columns:
        """Columns that the function takes."""
        if self._takes_all:
            return columns
        return {name: columns[name] for name in self._names if name in columns}

    def check(self, columns: Columns) -> None:
        """Refuse a row without a column that the function names."""
        for name in self._required:
            if name not in columns:
                raise ConfigError(
                    f"verifier {self.name!r} needs column {name!r} of the prompts (or give the "
                    f"parameter a default){columns_there_are(columns, name)}"
                )

    def _parameters(self) -> list[inspect.Parameter]:
        try:
            parameters = list(inspect.signature(self.function).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if not parameters or parameters[0].kind not in positional:
            raise ConfigError(f"verifier {self.name!r} takes no completion: write {EXAMPLE}")
        if parameters[0].name == "completions":
            raise ConfigError(
                f"verifier {self.name!r} takes a list of completions; a verifier judges one "
                f"completion at a time: write {EXAMPLE}"
            )
        kinds = {p.kind for p in parameters[1:]}
        if inspect.Parameter.VAR_POSITIONAL in kinds or inspect.Parameter.POSITIONAL_ONLY in kinds:
            raise ConfigError(
                f"verifier {self.name!r} has columns that cannot be passed by name: write {EXAMPLE}"
            )
        return parameters


def load_function(name: str) -> Callable[..., Any]:
    """Import ``module:function``; modules in the current folder are found too.

    Raises
    ------
    ConfigError
        If it cannot be imported or is not callable.
    """
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise ConfigError(f"{name!r} names no function: write module:function")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())  # a console script does not look there
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        raise ConfigError(
            f"{name!r}: cannot import module {module_name!r} ({type(error).__name__}: {error}): "
            "correct it, or start the command in the module's folder"
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            known = [name for name in dir(found) if not name.startswith("_")]
            raise ConfigError(f"{name!r}: {module_name} has no {part!r}{nearest(part, known)}")
        found = getattr(found, part)
    if not callable(found):
        raise ConfigError(f"{name!r} is a {type(found).__name__}: name a function")
    function: Callable[..., Any] = found
    return function


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD


def source_version(function: Callable[..., Any]) -> str:
    """Version of code that has none: the start of its source's SHA-256."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return "unknown"
    return "sha256:" + hashlib.sha256(source.encode()).hexdigest()[:12]
