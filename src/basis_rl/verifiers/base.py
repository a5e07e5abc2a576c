"""A verifier with a name, a version, and a count of its failures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from basis_rl.errors import BasisError, ConfigError
from basis_rl.prompts.columns import column_value, columns_there_are

Columns = Mapping[str, Any]
Verifier = Callable[[str, Columns], float]
Score = Callable[[str, Columns], "float | None"]


class NamedVerifier:
    """Gives the reward of a completion; what `create` returns.

    Attributes
    ----------
    name : str
        As given to `create`; part of a table's provenance.
    version : str
        Of the package or the code that judges.
    failures : Counter of str
        Exceptions of the verifier by type; each gave reward 0.
    """

    def __init__(self, name: str, version: str, score: Score) -> None:
        self.name = name
        self.version = version
        self.failures: Counter[str] = Counter()
        self._score = score

    def __call__(self, completion: str, columns: Columns) -> float:
        """Reward of one completion.

        An answer that makes the verifier fail or time out has reward 0: it is the answer's
        doing, and no verdict would let the policy hide there.

        Parameters
        ----------
        completion : str
            What the model wrote.
        columns : mapping
            The prompt's row: answer, metadata, ….

        Returns
        -------
        float
            NaN where there is no verdict (the verifier returned None or NaN).

        Raises
        ------
        BasisError
            If the row lacks a column that the verifier needs, or the verifier returns something
            else than a finite number: faults of the set-up, not of the answer.
        """
        try:
            value = self._score(completion, columns)
        except (BasisError, KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # math-verify's time-out is no Exception
            self.failures[failure_name(error)] += 1
            return 0.0
        if value is None:
            return math.nan
        try:
            reward = float(value)
        except (TypeError, ValueError):
            reward = math.inf
        if math.isinf(reward):
            raise ConfigError(
                f"verifier {self.name!r} returned {value!r:.80}: return a finite number, or None "
                "for no verdict"
            )
        return reward

    def __repr__(self) -> str:
        return f"NamedVerifier({self.name!r}, version={self.version!r})"


class VerifierProcessError(Exception):
    """A failure that happened in another process; its text is the exception's type there."""


def failure_name(error: BaseException) -> str:
    """Name under which `NamedVerifier.failures` counts an exception."""
    return str(error) if isinstance(error, VerifierProcessError) else type(error).__name__


def required_column(columns: Columns, column: str, verifier: str) -> Any:
    """Entry of a row that a verifier needs; dots go into nested entries.

    Raises
    ------
    ConfigError
        If the row has no such column.
    """
    try:
        return column_value(columns, column)
    except KeyError:
        raise ConfigError(
            f"verifier {verifier!r} needs column {column!r} of the prompts"
            f"{columns_there_are(columns, column)}"
        ) from None
