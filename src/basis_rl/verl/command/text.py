"""Pieces of a shell script in which every setting has its source beside it."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Sequence

from basis_rl.verl.paper.setting import Group, Setting

_WIDTH = 100
_SOURCES_AT = 58  # column; longer words push their source further right


def comment(text: str) -> list[str]:
    """A paragraph as comment lines."""
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH - 2, break_on_hyphens=False)]


def heading(number: int, text: str) -> list[str]:
    """Start of a stage."""
    return ["", f"# {number}. {text}"]


def array(name: str, groups: Sequence[Group]) -> list[str]:
    """A bash array of settings, one a line."""
    lines = [f"{name}=("]
    for group in groups:
        if group.title:
            lines.append(f"  # {group.title}")
        lines += [_line(each) for each in group.settings]
    return [*lines, ")"]


def _line(setting: Setting) -> str:
    return f"  {setting.word():<{_SOURCES_AT - 2}}  # {setting.source}"


def assignments(values: Iterable[tuple[str, str]]) -> list[str]:
    """Variables that the environment may set: MODEL sets ``model``."""
    return [f'{name}="${{{name.upper()}:-{value}}}"' for name, value in values]


def quoted(words: Sequence[str]) -> str:
    """A command as a line of a script."""
    return shlex.join(words)
