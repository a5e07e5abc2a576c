"""What the options of an engine may be, looked at before anything is loaded."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from basis_rl.errors import ConfigError, nearest


@dataclass(frozen=True)
class Values:
    """Values of one option.

    Attributes
    ----------
    wanted : str
        In words, for the error: "at least 1".
    has : callable
        Whether a value is one of them.
    """

    wanted: str
    has: Callable[[Any], bool]


TEXT = Values("a text", lambda value: isinstance(value, str) and value != "")
YES_NO = Values("true or false", lambda value: isinstance(value, bool))
FIELDS = Values(
    "a mapping of names to values, as {name: value}",
    lambda value: isinstance(value, Mapping) and all(isinstance(name, str) for name in value),
)
URL = Values("an address as http://127.0.0.1:8000/v1", lambda value: _is_url(value))


def whole(least: int) -> Values:
    """Whole numbers from ``least`` on."""
    return Values(f"a whole number, at least {least}", lambda value: _is_whole(value, least))


def real(*, above: float | None = None, least: float = 0, most: float = math.inf) -> Values:
    """Finite numbers above ``above``, where given, else from ``least`` on; up to ``most``."""
    start = f"at least {least:g}" if above is None else f"above {above:g}"
    end = "" if most == math.inf else f" and at most {most:g}"

    def has(value: Any) -> bool:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or value > most:
            return False
        return bool(value >= least if above is None else value > above)

    return Values(f"a number {start}{end}", has)


def check_options(
    engine: str,
    opens: Callable[..., Any],
    values: Mapping[str, Values],
    given: Mapping[str, Any],
) -> None:
    """Refuse options that an engine's ``open`` does not have, misses, or cannot use.

    A default is always good.

    Parameters
    ----------
    engine : str
    opens : callable
        Its keywords, besides revision and dtype, are the options.
    values : mapping
        Of option to what it may be.
    given : mapping

    Raises
    ------
    ConfigError
        Naming the option, and what it may be or the nearest one.
    """
    parameters = inspect.signature(opens).parameters.values()
    known = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for option, value in given.items():
        if option not in known and not takes_all:
            raise ConfigError(
                f"engine {engine!r} has no option {option!r}{nearest(option, sorted(known))}"
            )
        if option in values and not _is_default(value, known.get(option, inspect.Parameter.empty)):
            _check_value(option, value, values[option])
    for option, default in known.items():
        if default is inspect.Parameter.empty and option not in given:
            raise ConfigError(_missing(engine, option, values.get(option)))


def _check_value(option: str, value: Any, values: Values) -> None:
    if not values.has(value):
        shown = "no text" if option == "api_key" else repr(value)[:80]
        raise ConfigError(f"{option} is {shown}: use {values.wanted}")


def _missing(engine: str, option: str, values: Values | None) -> str:
    if option == "base_url":
        return (
            f"engine {engine!r} needs the address of a server: give --base-url http://…/v1 "
            "(with engine ray: base_url in engine_options)"
        )
    wanted = f", {values.wanted}" if values else ""
    return f"engine {engine!r} needs the option {option!r}{wanted}: give it"


def _is_default(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_url(value: Any) -> bool:
    try:
        parts = urlsplit(value) if isinstance(value, str) else None
    except ValueError:
        return False
    return parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)
