"""Errors that name the value, the place and the remedy."""

from __future__ import annotations

import difflib


class BasisError(ValueError):
    """Any input that basis-rl refuses; its text is one line that says what to change."""


class BatchError(BasisError):
    """A reward batch that no baseline can be computed from."""


class PassRatesError(BasisError):
    """A table of pass rates that is malformed, or does not fit what it is used for."""


class MissingPassRateError(PassRatesError, KeyError):
    """Prompts of a batch that the table of pass rates does not know."""

    # KeyError.__str__ would print the repr of the message.
    __str__ = ValueError.__str__


class ConfigError(BasisError):
    """A configuration (file, command line or keyword) with an unknown name or a bad value."""


class StateError(BasisError):
    """A saved estimator state that belongs to another estimator or is damaged."""


class PromptsError(BasisError):
    """Prompts that cannot be read: a missing or damaged file, a missing column, a bad row."""


_SHORT = 5  # letters; another word of the same length often shares half of them by chance


def nearest(word: str, known: list[str]) -> str:
    """End of an error message: the closest known word, or all of them.

    Upper case counts as lower case. A short word is only close to one with its first letter.
    """
    lower = word.lower()
    names = {name.lower(): name for name in known}
    if len(lower) <= _SHORT:
        names = {name: own for name, own in names.items() if name[:1] == lower[:1]}
    close = difflib.get_close_matches(lower, names, n=1)
    if close:
        return f": did you mean {names[close[0]]!r}?"
    return f": known are {', '.join(known)}" if known else ": it takes none"
