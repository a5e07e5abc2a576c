"""Dictionaries into dataclasses: unknown keys, missing keys and wrong types are errors."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union

from basis_rl.errors import ConfigError, nearest

T = TypeVar("T")

_NAMES = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
    dict: "a section of key: value",
    list: "a list",
}


def build(cls: type[T], values: Any, *, path: str = "") -> T:
    """Make a dataclass from a dictionary, nested dataclasses included.

    A field's metadata may hold the bounds ``minimum`` and ``maximum``, both inclusive.

    Parameters
    ----------
    cls : type
        A dataclass whose annotations are built from str, int, float, bool, None, list, dict,
        Literal and other dataclasses.
    values : mapping
    path : str
        Dotted place of ``values`` in the document, for errors.

    Raises
    ------
    ConfigError
        Naming the key and the remedy.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"{_at(path)} is {_shown(values)}: use a section of key: value lines")
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    check_names(values, list(fields), path=path)
    hints = typing.get_type_hints(cls)
    arguments = {}
    for name, field in fields.items():
        place = f"{path}.{name}" if path else name
        if name in values:
            arguments[name] = convert(values[name], hints[name], path=place)
            _check_bounds(arguments[name], field.metadata, path=place)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ConfigError(f"{place} is missing: give {expected(hints[name])}")
    return cls(**arguments)


def check_names(values: Mapping[str, Any], known: list[str], *, path: str) -> None:
    """Refuse the first unknown key, naming the nearest known one.

    Raises
    ------
    ConfigError
    """
    for name in values:
        if name not in known:
            inside = f" in {path}" if path else ""
            raise ConfigError(f"unknown key {str(name)!r}{inside}{nearest(str(name), known)}")


def convert(value: Any, hint: Any, *, path: str) -> Any:
    """Value as the annotated type, or an error that says what is expected.

    Raises
    ------
    ConfigError
    """
    options = _options(hint)
    if value is None and type(None) in options:
        return None
    sections = [option for option in options if dataclasses.is_dataclass(option)]
    if sections and (isinstance(value, Mapping) or len(options) == len(sections)):
        return build(typing.cast("type[Any]", sections[0]), value, path=path)
    for option in options:
        origin = typing.get_origin(option) or option
        arguments = typing.get_args(option)
        if origin is list and isinstance(value, list):
            inner = arguments[0] if arguments else Any
            return [convert(v, inner, path=f"{path}[{i}]") for i, v in enumerate(value)]
        if origin is dict and isinstance(value, Mapping):
            return dict(value)
        if option is Any or _fits(value, option):
            return float(value) if option is float else value
    raise ConfigError(f"{path} is {_shown(value)}: use {expected(hint)}")


def expected(hint: Any) -> str:
    """Words for an annotated type: ``a whole number or null``."""
    words: list[str] = []
    for option in _options(hint):
        origin = typing.get_origin(option) or option
        if origin is Literal:
            words += [repr(choice) for choice in typing.get_args(option)]
        elif dataclasses.is_dataclass(option):
            words.append("a section of key: value")
        elif origin is list and typing.get_args(option):
            words.append(f"a list, each {expected(typing.get_args(option)[0])}")
        else:
            words.append(_NAMES.get(origin, getattr(origin, "__name__", str(origin))))
    unique = list(dict.fromkeys(words))
    return " or ".join(unique) if len(unique) < 4 else ", ".join(unique[:-1]) + f" or {unique[-1]}"


def _options(hint: Any) -> list[Any]:
    if typing.get_origin(hint) in (Union, types.UnionType):
        return list(typing.get_args(hint))
    return [hint]


def _fits(value: Any, option: Any) -> bool:
    if typing.get_origin(option) is Literal:
        # 1 == True, so the types are compared too
        return any(value == c and type(value) is type(c) for c in typing.get_args(option))
    if option is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if option is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(option, type) and isinstance(value, option)


def _check_bounds(value: Any, metadata: Mapping[str, Any], *, path: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if not math.isfinite(value):
        raise ConfigError(f"{path} is {value}: use a finite number")
    minimum, maximum = metadata.get("minimum"), metadata.get("maximum")
    if minimum is not None and value < minimum:
        raise ConfigError(f"{path} is {value}: use {minimum} or more")
    if maximum is not None and value > maximum:
        raise ConfigError(f"{path} is {value}: use {maximum} or less")


def _at(path: str) -> str:
    return path or "the configuration"


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, Mapping | list):
        return _NAMES[dict if isinstance(value, Mapping) else list]
    return f"{value!r:.80} ({_NAMES.get(type(value), type(value).__name__)})"
