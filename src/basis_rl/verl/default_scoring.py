"""Which data sources verl's own scoring knows, read from its source text."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable
from pathlib import Path

from basis_rl.errors import ConfigError
from basis_rl.verifiers.verl_names import overrides

_FUNCTION = "default_compute_score"


def check_sources(sources: Iterable[str]) -> None:
    """Refuse a data source that verl's own scoring has no function for.

    verl itself raises that in a reward worker, after the first generation, and goes on without the
    rollout.

    Raises
    ------
    ConfigError
        Naming the source, and what to add.
    """
    known = known_sources()
    if known is None:
        return
    names, starts = known
    for source in dict.fromkeys(sources):
        if source not in names and not source.startswith(starts):
            raise ConfigError(
                f"verl's own scoring knows no data_source {source!r}: choose a reward function, as "
                f"with {' '.join(overrides('math'))}"
            )


def known_sources() -> tuple[frozenset[str], tuple[str, ...]] | None:
    """Names that `default_compute_score` compares with, and starts of names; None without verl."""
    spec = importlib.util.find_spec("verl")
    if spec is None or not spec.origin:
        return None
    file = Path(spec.origin).parent / "utils" / "reward_score" / "__init__.py"
    try:
        body = ast.parse(file.read_text(encoding="utf-8")).body
    except (OSError, ValueError, SyntaxError):
        return None
    found = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == _FUNCTION]
    if not found:
        return None
    tests = [node.test for node in ast.walk(found[0]) if isinstance(node, ast.If)]
    calls = [node for test in tests for node in ast.walk(test) if isinstance(node, ast.Call)]
    starts = {text for call in calls for text in _texts(call)}
    names = {text for test in tests for text in _texts(test)} - starts
    return (frozenset(names), tuple(sorted(starts))) if names else None


def _texts(node: ast.AST) -> list[str]:
    inside = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
    return [value for value in inside if isinstance(value, str)]
