"""Verdicts while sampling goes on: completions to the verifier, verdicts back as they come."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any

from basis_rl.errors import BasisError, PassRatesError
from basis_rl.passrates.build.lines import Line, verdicts_line
from basis_rl.verifiers.base import NamedVerifier, Verdict

MAX_WAITING = 4096  # completions whose texts are held for the verifier
_WAIT_S = 0.5  # then look whether Ctrl-C was pressed

Job = tuple[str, int, int, "Future[list[Verdict]]"]  # key, first number, completions


class Judge:
    """Sends completions to a verifier and collects verdicts as lines of a journal.

    Parameters
    ----------
    verifier : NamedVerifier
    columns : mapping of str to mapping
        Row of each prompt by its key.

    Attributes
    ----------
    waiting : int
        Completions without a verdict yet.
    """

    def __init__(self, verifier: NamedVerifier, columns: Mapping[str, Mapping[str, Any]]) -> None:
        self._verifier, self._columns = verifier, columns
        self._done: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self.waiting = 0

    def submit(self, key: str, first: int, texts: Sequence[str]) -> None:
        """Have completions of one prompt judged."""
        future = self._verifier.submit(texts, self._columns[key])
        self.waiting += len(texts)
        future.add_done_callback(lambda done: self._done.put((key, first, len(texts), done)))

    def ready(self) -> list[Line]:
        """Verdicts that have come.

        Raises
        ------
        BasisError
            If the verifier failed where it should have judged.
        """
        return [self._line(job) for job in self._finished()]

    def wait(self, at_most: int) -> list[Line]:
        """Verdicts, once so many completions or fewer wait for theirs, or some have come.

        Raises
        ------
        BasisError
            As `ready`.
        """
        if self.waiting <= at_most:
            return self.ready()
        while True:
            try:
                first = self._done.get(timeout=_WAIT_S)
            except queue.Empty:
                continue
            return [self._line(first), *self.ready()]

    def rescue(self) -> list[Line]:
        """Verdicts that have come, whatever became of the others: for the end after an error."""
        lines = []
        for job in self._finished():
            with suppress(BasisError, CancelledError):
                lines.append(self._line(job))
        return lines

    def _finished(self) -> Iterator[Job]:
        """Jobs that are done by now."""
        with suppress(queue.Empty):
            while True:
                yield self._done.get_nowait()

    def _line(self, job: Job) -> Line:
        key, first, count, future = job
        self.waiting -= count
        verdicts = future.result()
        if len(verdicts) != count:
            raise PassRatesError(
                f"verifier {self._verifier.name!r} gave {len(verdicts)} verdicts on {count} "
                "completions: it must give one each"
            )
        return verdicts_line(key, first, verdicts)
