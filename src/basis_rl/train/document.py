"""A YAML file as a plain dictionary, and dotted overrides on top of it."""

from __future__ import annotations

import copy
import re
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import yaml

from basis_rl.errors import ConfigError
from basis_rl.files import refuse_device

Document = dict[str, Any]


class _Loader(yaml.SafeLoader):
    """YAML with three traps removed.

    ``1e-6`` is a number, ``no`` is a text, and a key given twice is an error.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise ConfigError(
                    f"line {key_node.start_mark.line + 1}: key {key!r} is not a text: quote it"
                )
            if key in seen:
                raise ConfigError(
                    f"line {key_node.start_mark.line + 1}: {key!r} is given twice: remove one"
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


# YAML 1.1, which PyYAML follows, reads on, off, yes and no as truth values.
_BOOL = "tag:yaml.org,2002:bool"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _BOOL]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    _BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
# It reads 1e-6 and 1.e6 as texts.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)[eE][-+]?[0-9]+$"),
    list("-+0123456789."),
)


def parse_yaml(text: str, *, where: str) -> Any:
    """YAML as Python objects.

    Raises
    ------
    ConfigError
        Naming line and column of what cannot be parsed, or a key that is given twice.
    """
    try:
        value = yaml.load(text, Loader=_Loader)
        _refuse_cycles(value)
        return value
    except ConfigError as error:
        raise ConfigError(f"{where}, {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = error.problem or error.context or "it"
        raise ConfigError(f"{where}{place} is not YAML ({problem}): mend that line") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not YAML ({error}): mend it") from None


def _refuse_cycles(value: Any, around: tuple[int, ...] = ()) -> None:
    if isinstance(value, dict | list):
        if id(value) in around:
            raise ValueError("an alias stands inside its own anchor")
        for inner in value.values() if isinstance(value, dict) else value:
            _refuse_cycles(inner, (*around, id(value)))


def read_document(path: str | Path) -> Document:
    """Top-level mapping of a YAML file.

    Raises
    ------
    ConfigError
        If the file is missing, empty, no text, no YAML, or no mapping.
    """
    path = Path(path)
    if path.is_dir():
        raise ConfigError(f"{path} is a folder: name a YAML file in it")
    try:
        refuse_device(path, shown=path)
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}: check the path of the configuration") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text: name a YAML file") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}): check the file") from None
    document = parse_yaml(text, where=str(path))
    if document is None:
        raise ConfigError(f"{path} is empty: start from a file in examples/")
    if not isinstance(document, dict):
        raise ConfigError(
            f"{path} holds a {type(document).__name__}: a configuration is made of key: value lines"
        )
    return document


def apply_overrides(document: Document, overrides: Sequence[str]) -> Document:
    """Copy of a document with ``section.key=value`` settings, the values in YAML.

    Raises
    ------
    ConfigError
        If an override has no ``=``, an empty key, or goes through something that is no section.
    """
    result: Document = copy.deepcopy(document)
    for override in overrides:
        path, equals, text = override.partition("=")
        names = path.strip().split(".")
        if not equals or not all(names):
            raise ConfigError(f"--set {override}: write it as section.key=value")
        section = result
        for depth, name in enumerate(names[:-1]):
            inner = section.get(name)
            if inner is None:
                inner = section[name] = {}
            if not isinstance(inner, dict):
                raise ConfigError(
                    f"--set {override}: {'.'.join(names[: depth + 1])} is {inner!r}, not a "
                    "section: set it as a whole"
                )
            section = inner
        section[names[-1]] = parse_yaml(text, where=f"--set {override}")
    return result


def flatten(document: Document, prefix: str = "") -> Document:
    """Dotted key to value; an empty section is a value itself."""
    flat: Document = {}
    for key, value in document.items():
        if isinstance(value, dict) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def dump(document: Document) -> str:
    """YAML text in the document's order."""
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
