"""A verifier with a name, a version, and a count of its failures."""

from __future__ import annotations

import math
import numbers
import os
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from basis_rl.errors import BasisError, ConfigError
from basis_rl.prompts.columns import column_paths, column_value, columns_there_are

Columns = Mapping[str, Any]
Verifier = Callable[[str, Columns], float]
Score = Callable[[str, Columns], "float | None"]
MAX_FAILURES = 0.5
_ENOUGH_CALLS = 64  # before the share of failures means anything


@dataclass(frozen=True)
class Verdict:
    """What a verifier says of one completion.

    Attributes
    ----------
    reward : float or None
        None where there is no verdict.
    failure : str or None
        Why the verifier failed on it (then the reward is 0), as `NamedVerifier.failures` counts.
    """

    reward: float | None
    failure: str | None = None


class NamedVerifier:
    """Gives the reward of a completion; what `create` returns.

    Attributes
    ----------
    name : str
        As given to `create`; part of a table's provenance.
    version : str
        Of the package or the code that judges.
    answer_column : str or None
        Column with the right answer; None where the code that judges names its columns itself.
    calls : int
        Completions judged so far.
    failures : Counter of str
        Exceptions of the verifier by type; each gave reward 0.
    first_failure : str or None
        The first exception: its type, its text and the line that raised it.
    """

    def __init__(
        self, name: str, version: str, score: Score, *, answer_column: str | None = None
    ) -> None:
        self.name = name
        self.version = version
        self.answer_column = answer_column
        self.calls = 0
        self.failures: Counter[str] = Counter()
        self.first_failure: str | None = None
        self._score = score

    def check(self, columns: Columns) -> None:
        """Look at a prompt's row before any completion of it is sampled.

        Raises
        ------
        BasisError
            If the row lacks a column that the verifier needs, or its answer has a wrong type.
        """
        check = getattr(self._score, "check", None)
        if check is not None:
            check(columns)

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
            If the row lacks a column that the verifier needs, the verifier returns something else
            than a finite number, or more than half of 64 or more calls failed: faults of the
            set-up, not of the answer.
        """
        self.calls += 1
        try:
            value = self._score(completion, columns)
        except (BasisError, KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # math-verify's time-out is no Exception
            self.failures[failure_name(error)] += 1
            self.first_failure = self.first_failure or _told(error)
            self._check_failures()
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

    def submit(self, completions: Sequence[str], columns: Columns) -> Future[list[Verdict]]:
        """Judge completions of one prompt, in other processes where the verifier has some.

        Returns
        -------
        Future
            Of one verdict a completion, in order; it raises what `__call__` raises.
        """
        future: Future[list[Verdict]] = Future()
        try:
            future.set_result([self._verdict(text, columns) for text in completions])
        except BasisError as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        """End the processes that the verifier has started."""
        close = getattr(self._score, "close", None)
        if close is not None:
            close()

    def _verdict(self, completion: str, columns: Columns) -> Verdict:
        failed = Counter(self.failures)
        reward = self(completion, columns)
        cause = next(iter(self.failures - failed), None)
        return Verdict(None if math.isnan(reward) else reward, cause)

    def _check_failures(self) -> None:
        failed = self.failures.total()
        if self.calls >= _ENOUGH_CALLS and failed > MAX_FAILURES * self.calls:
            raise BasisError(too_many_failures(self, failed, self.calls))

    def __repr__(self) -> str:
        return f"NamedVerifier({self.name!r}, version={self.version!r})"


class VerifierProcessError(Exception):
    """A failure that happened in another process; its text is the exception's type there."""


def failure_name(error: BaseException) -> str:
    """Name under which `NamedVerifier.failures` counts an exception."""
    return str(error) if isinstance(error, VerifierProcessError) else type(error).__name__


def too_many_failures(verifier: NamedVerifier, failed: int, calls: int) -> str:
    """Error text for a verifier that raises where it should judge."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in verifier.failures.items())
    return (
        f"verifier {verifier.name!r} failed on {failed} of {calls} completions (first: "
        f"{verifier.first_failure or kinds}): mend it, or let it return 0.0 for an answer that it "
        "cannot read"
    )


def _told(error: BaseException) -> str:
    """Type, text and place of an exception, in one line."""
    if isinstance(error, VerifierProcessError):
        return str(error)
    text = " ".join(str(error).split())[:200]
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(last.filename)}, line {last.lineno}"
    return f"{type(error).__name__}{': ' if text else ''}{text} in {place}"


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


def required_answer(columns: Columns, column: str, verifier: str) -> str | float | None:
    """Right answer of a row: a text, a number, or None where there is none.

    Raises
    ------
    ConfigError
        If the row has no such column, or it holds something else (a dict or a list, say).
    """
    answer = required_column(columns, column, verifier)
    is_number = isinstance(answer, numbers.Real | Decimal) and not isinstance(answer, bool)
    if answer is None or isinstance(answer, str) or is_number:
        usable: str | float | None = answer
        return usable
    paths = column_paths({column: answer})[1:]
    remedy = f"name a column inside it ({', '.join(paths)})" if paths else "name another column"
    raise ConfigError(
        f"verifier {verifier!r} compares with a text or a number, and column {column!r} is "
        f"{answer!r:.80} ({type(answer).__name__}): {remedy}"
    )
