"""Numbers as dumps write them: missing values, fractions, rates in several units."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from basis_rl.errors import PassRatesError, nearest
from basis_rl.prompts.columns import column_value

UNITS = ("rate", "percent", "percent-failures", "count", "failures", "fraction")
_MISSING = {"", "n/a", "na", "nan", "none", "null", "<na>"}
_TRUTH = {"true": 1.0, "false": 0.0}
# How far rate · n may lie from a whole number: rates are stored rounded.
_ROUNDING = 0.05


class Measured(NamedTuple):
    """Successes of n rollouts, or a bare rate; all None where it is missing."""

    successes: int | None = None
    n: int | None = None
    rate: float | None = None


def is_missing(value: Any) -> bool:
    """Whether a value stands for "not measured": None, NaN, "", "n/a" and the like."""
    if value is None:
        return True
    if isinstance(value, str):
        return value.strip().lower().lstrip("+-") in _MISSING
    return isinstance(value, float | Decimal) and math.isnan(value)


def number(value: Any, place: str, what: str) -> float | None:
    """A number, also one written as a text or a truth value; None where it is missing.

    Raises
    ------
    PassRatesError
        If it is something else, or infinite.
    """
    if is_missing(value):
        return None
    found = math.inf
    try:
        if isinstance(value, str):
            value = _TRUTH.get(value.strip().lower(), value)
        if not isinstance(value, bytes):  # b"1" is a list of codes elsewhere: not guessed at
            found = float(value)
    except (TypeError, ValueError):
        pass
    if math.isinf(found):
        is_percent = isinstance(value, str) and value.strip().endswith("%")
        should = "drop the sign, or read it with --rate-column and --unit percent"
        raise PassRatesError(
            f"{place}: {what} is {value!r:.60}: "
            + (should if is_percent else "it should be a number (or empty where missing)")
        )
    return found


def whole(value: Any, place: str, what: str) -> int | None:
    """A whole number that is not negative; None where it is missing.

    Raises
    ------
    PassRatesError
    """
    found = number(value, place, what)
    if found is None:
        return None
    if found != int(found) or found < 0:
        raise PassRatesError(f"{place}: {what} is {value!r}: it should be a whole number from 0 on")
    return int(found)


def measured(value: Any, unit: str, n: int | None, place: str, what: str) -> Measured:
    """Read a pass rate in some unit.

    Parameters
    ----------
    value : object
    unit : str
        ``rate`` (0 to 1), ``percent``, ``percent-failures``, ``count`` (successes of n),
        ``failures`` (of n) or ``fraction`` ("k/n").
    n : int, optional
        Rollouts of the prompt; without it a rate stays a bare rate.
    place, what : str
        How an error names the row and the column.

    Raises
    ------
    PassRatesError
        If the value is out of range or no whole number of n rollouts, or n is needed and unknown.
    """
    check_unit(unit)
    if is_missing(value):
        return Measured()
    if unit == "fraction":
        return _fraction(value, n, place, what)
    found = number(_without_sign(value, unit, place, what), place, what)
    if found is None:
        return Measured()
    if n == 0:
        if found:
            raise PassRatesError(f"{place}: {what} is {value!r:.60} of n = 0: n is at least 1")
        return Measured()
    if unit in ("count", "failures"):
        return _count(found, unit, n, place, what)
    rate = found / 100 if unit.startswith("percent") else found
    if not -1e-9 <= rate <= 1 + 1e-9:
        raise PassRatesError(
            f"{place}: {what} is {value!r}, no {unit} (0 to {1 if unit == 'rate' else 100}): say "
            f"what it is with --unit ({', '.join(UNITS)})"
        )
    rate = min(max(1 - rate if unit == "percent-failures" else rate, 0.0), 1.0)
    if n is None:
        return Measured(rate=rate)
    successes = round(rate * n)
    if abs(rate * n - successes) > _ROUNDING:
        raise PassRatesError(
            f"{place}: {what} is {value!r}, which is {rate * n:.4g} of {n} rollouts, no whole "
            "number: give the right --n, or none if it is unknown"
        )
    return Measured(successes, n)


def _without_sign(value: Any, unit: str, place: str, what: str) -> Any:
    """A percentage without its sign."""
    if not isinstance(value, str) or not value.strip().endswith("%"):
        return value
    if unit.startswith("percent"):
        return value.strip()[:-1]
    raise PassRatesError(
        f"{place}: {what} is {value!r:.60}, in percent: say --unit percent (of passes) or "
        "percent-failures"
    )


def check_unit(unit: str) -> None:
    """Refuse an unknown unit.

    Raises
    ------
    PassRatesError
    """
    if unit not in UNITS:
        raise PassRatesError(f"--unit is {unit!r}{nearest(unit, list(UNITS))}")


def _fraction(value: Any, n: int | None, place: str, what: str) -> Measured:
    top, slash, bottom = str(value).partition("/")
    try:
        successes, tried = int(top), int(bottom)
    except ValueError:
        successes, tried = -1, 0
    if not slash or not 0 <= successes <= tried or tried < 1:
        raise PassRatesError(f"{place}: {what} is {value!r:.60}: it should be a fraction k/n")
    if n is not None and n != tried:
        raise PassRatesError(
            f"{place}: {what} is {value!r:.60} and --n is given as {n}: leave it out"
        )
    return Measured(successes, tried)


def _count(found: float, unit: str, n: int | None, place: str, what: str) -> Measured:
    if n is None:
        raise PassRatesError(f"{place}: {what} is a count and n is unknown: give --n or --n-column")
    if found != int(found) or not 0 <= found <= n:
        raise PassRatesError(f"{place}: {what} is {found:g} of n = {n}: it should be 0 to {n}")
    return Measured(n - int(found) if unit == "failures" else int(found), n)


def value_of(columns: Mapping[str, Any], path: str, place: str) -> Any:
    """Value of a column or a dotted field.

    Raises
    ------
    PromptsError
        Naming the columns that there are.
    """
    from basis_rl.prompts.columns import required_value

    return required_value(columns, path, where=place)


def optional(columns: Mapping[str, Any], path: str) -> Any:
    """Value of a column or a dotted field; None where there is none."""
    try:
        return column_value(columns, path)
    except KeyError:
        return None


def rewards_of(values: Any, place: str, what: str) -> list[float | None]:
    """Rewards of one prompt's rollouts; one number is a list of one.

    Raises
    ------
    PassRatesError
    """
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return [number(value, place, what) for value in values]
    return [number(values, place, what)]
