"""A verifier with a name, a version, and a count of its failures."""

from __future__ import annotations

import math
import numbers
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from basis_rl.errors import BasisError, ConfigError
from basis_rl.prompts.columns import column_paths, column_value, columns_there_are
from basis_rl.verifiers.replies import Reply, failure_name, failure_text, gathered, reply_to

if TYPE_CHECKING:
    from basis_rl.verifiers.pool import Pool

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
        Causes: ``time-out``, ``memory``, ``process died (...)``, or an exception's type; each gave
        reward 0.
    first_failure : str or None
        The first cause; of an exception its type, its text and the line that raised it.
    """

    def __init__(
        self,
        name: str,
        version: str,
        score: Score,
        *,
        answer_column: str | None = None,
        pool: Pool | None = None,
    ) -> None:
        self.name = name
        self.version = version
        self.answer_column = answer_column
        self.calls = 0
        self.failures: Counter[str] = Counter()
        self.first_failure: str | None = None
        self._score = score
        self._pool = pool
        self._lock = threading.Lock()

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

    def needed(self, columns: Columns) -> dict[str, Any]:
        """Columns of a row that the verifier reads; all of them where that is not known.

        Raises
        ------
        BasisError
            As `check`.
        """
        needed = getattr(self._score, "needed", None)
        return dict(columns) if needed is None else dict(needed(columns))

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
            than a finite number, no worker process starts, or more than half of 64 or more calls
            failed: faults of the set-up, not of the answer.
        """
        [verdict] = self.submit([completion], columns).result()
        return math.nan if verdict.reward is None else verdict.reward

    def submit(self, completions: Sequence[str], columns: Columns) -> Future[list[Verdict]]:
        """Judge completions of one prompt, in other processes where the verifier has some.

        Without processes the verdicts are made before this returns.

        Returns
        -------
        Future
            Of one verdict a completion, in order; it raises what `__call__` raises.
        """
        future, take = gathered(len(completions), self._finish)
        if self._pool is not None:
            try:
                self.check(columns)
                columns = self.needed(columns)
                for number, text in enumerate(completions):
                    self._pool.put(text, columns, partial(take, number))
            except BasisError as error:
                return _failed(error)
        else:
            for number, text in enumerate(completions):
                take(number, self._reply_here(text, columns))
        return future

    def close(self) -> None:
        """End the processes that the verifier has started."""
        if self._pool is not None:
            self._pool.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.Lock()

    def _reply_here(self, completion: str, columns: Columns) -> Reply | Exception:
        try:
            return reply_to(self._score(completion, columns))
        except BasisError as error:
            return error
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # math-verify's time-out is no Exception
            return {"failure": failure_name(error), "told": failure_text(error)}

    def _finish(self, replies: Sequence[Reply | Exception]) -> list[Verdict]:
        """Count the replies and make verdicts of them."""
        with self._lock:
            self.calls += len(replies)
            for reply in replies:
                if isinstance(reply, dict) and "failure" in reply:
                    self.failures[reply["failure"]] += 1
                    told = reply.get("told") or reply["failure"]
                    self.first_failure = self.first_failure or told
        verdicts = [self._verdict(reply) for reply in replies]
        if any(verdict.failure for verdict in verdicts):
            self._check_failures()
        return verdicts

    def _verdict(self, reply: Reply | Exception) -> Verdict:
        if isinstance(reply, Exception):
            raise reply
        if "refused" in reply:
            raise ConfigError(reply["refused"])
        if "returned" in reply:
            raise ConfigError(
                f"verifier {self.name!r} returned {reply['returned']}: return a finite number, or "
                "None for no verdict"
            )
        if "failure" in reply:
            return Verdict(float(reply.get("reward", 0.0)), str(reply["failure"]))
        reward = reply["reward"]
        return Verdict(None if reward is None else float(reward))

    def _check_failures(self) -> None:
        failed = self.failures.total()
        if self.calls >= _ENOUGH_CALLS and failed > MAX_FAILURES * self.calls:
            raise BasisError(too_many_failures(self, failed, self.calls))

    def __repr__(self) -> str:
        return f"NamedVerifier({self.name!r}, version={self.version!r})"


def _failed(error: Exception) -> Future[list[Verdict]]:
    future: Future[list[Verdict]] = Future()
    future.set_exception(error)
    return future


def too_many_failures(verifier: NamedVerifier, failed: int, calls: int) -> str:
    """Error text for a verifier that raises where it should judge."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in verifier.failures.items())
    return (
        f"verifier {verifier.name!r} failed on {failed} of {calls} completions (first: "
        f"{verifier.first_failure or kinds}): mend it, or let it return 0.0 for an answer that it "
        "cannot read"
    )


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
