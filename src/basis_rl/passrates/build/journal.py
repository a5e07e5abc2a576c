"""The journal of a build: every completion and verdict, kept beside the table.

JSON lines in gzip members. The first line names what the completions depend on; further lines are
the prompts, the target (how many rollouts), the engine, completions, verifiers, verdicts, and the
time spent. What a line says holds until a later one of its kind says something else; a verifier's
line voids the verdicts before it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from basis_rl.errors import PassRatesError
from basis_rl.passrates.build.lines import FORMAT, Line, check_line, decoded, encoded
from basis_rl.passrates.build.members import DamagedMemberError, MemberFile, read_members
from basis_rl.passrates.build.record import SAMPLED, Record


class Journal:
    """An open journal; a context manager that deletes it again if nothing was sampled.

    Parameters
    ----------
    path : path
        Continued if it is there, else made.
    samples : mapping
        All that the completions depend on; JSON types.
    created : str
        Time for a new journal.
    check_samples : callable, optional
        Called with the settings of a journal that has completions; refuses other ones.
    must_exist : bool
        Refuse to start a new one.

    Attributes
    ----------
    created : str
        When the build was first started.
    samples, engine, target, verifier : dict
        Settings in force; empty where there are none yet.
    earlier_targets : list of dict
        Those before the one in force.
    record : Record
    is_sampled : bool
        Whether all completions of the target are there.
    is_complete : bool
        Whether a table was written of this target and this verifier.

    Raises
    ------
    PassRatesError
        If the file is no journal, is damaged before its end, has a line that no build wrote, is in
        use by another process, or cannot be written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        samples: Mapping[str, Any],
        *,
        created: str,
        check_samples: Callable[[dict[str, Any]], None] | None = None,
        must_exist: bool = False,
    ) -> None:
        self.path = Path(path)
        if must_exist and not self.path.exists():
            raise self._gone()
        self._check_samples = check_samples
        self._forget()
        self._file = MemberFile(self.path)
        try:
            self._continue()
            if must_exist and not self.record.completions:
                raise self._gone()
            if not self.record.completions:  # nothing is lost
                self._forget()
                self._file.truncate(0)
                header = {"kind": "header", "journal": FORMAT, "created": created}
                self.append([{**header, "samples": dict(samples)}])
        except BaseException:
            if not self._file.end:
                self._file.remove()
            self._file.close()
            raise
        self._session = max(self._sessions, default=0) + 1
        self._started = time.monotonic()

    def append(self, lines: Sequence[Line]) -> None:
        """Add lines as one unit: all of them are in the journal after a crash, or none.

        Raises
        ------
        PassRatesError
            If they cannot be written, or contradict what is there.
        """
        if not lines:
            return
        try:
            for line in lines:
                self._apply(line)
        except ValueError as error:
            raise PassRatesError(f"{error}: report it as a bug") from error
        if self._file.sync_is_due and self._started:
            lines = [*lines, self._session_line()]
        self._file.append(encoded(lines))

    def texts(self) -> Iterator[tuple[str, int, list[str]]]:
        """Completions without a verdict: key, first number and texts; read from the file."""
        waiting = self.record.status == SAMPLED
        for member in read_members(self.path, self._file.end):
            for line in decoded(member.content):
                if line["kind"] != "completions":
                    continue
                row, first, texts = self.record.row(line["key"]), line["first"], line["texts"]
                wanted = waiting[row, first : first + len(texts)]
                if wanted.all():
                    yield line["key"], first, texts
                else:
                    for i in wanted.nonzero()[0].tolist():
                        yield line["key"], first + i, [texts[i]]
                waiting[row, first : first + len(texts)] = False

    @property
    def seconds(self) -> float:
        """Time spent on the build in all sessions; of a killed one, to about a second."""
        before = sum(s for number, s in self._sessions.items() if number != self._session)
        return before + time.monotonic() - self._started

    def remove(self) -> None:
        """Delete the file."""
        self._file.remove()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if not self.record.completions:
                self._file.remove()
            elif error is None:
                self.append([self._session_line()])
            else:
                self._end_session()
        finally:
            self._file.close()

    def _end_session(self) -> None:
        try:
            self.append([self._session_line()])
        except PassRatesError:  # the disk is full: the error on its way says so
            return

    def _session_line(self) -> Line:
        seconds = round(time.monotonic() - self._started, 3)
        line = {"kind": "session", "number": self._session, "seconds": seconds}
        self._apply(line)
        return line

    def _forget(self) -> None:
        self.record = Record()
        self.created = ""
        self.samples: dict[str, Any] = {}
        self.engine: dict[str, Any] = {}
        self.target: dict[str, Any] = {}
        self.earlier_targets: list[dict[str, Any]] = []
        self.verifier: dict[str, Any] = {}
        self.is_sampled = self.is_complete = False
        self._sessions: dict[int, float] = {}
        self._session, self._started = 0, 0.0

    def _continue(self) -> None:
        """Read what is there and drop what a crash cut short."""
        number, end = 0, 0
        try:
            for member in read_members(self.path):
                for line in self._decoded(member.content, number, end):
                    number += 1
                    self._take(line, number, end)
                end = member.end
        except DamagedMemberError:
            raise self._damaged(f"after line {number}", end) from None
        if end < self._file.end:
            self._file.truncate(end)

    def _decoded(self, content: bytes, number: int, start: int) -> list[Line]:
        try:
            return decoded(content)
        except ValueError:
            raise self._damaged(f"after line {number}", start) from None

    def _take(self, line: Line, number: int, start: int) -> None:
        try:
            check_line(line)
            if (number == 1) != (line["kind"] == "header"):
                raise ValueError("no header" if number == 1 else "a second header")
            self._apply(line)
        except ValueError as error:
            if isinstance(error, PassRatesError):
                raise
            if number == 1:
                raise PassRatesError(
                    f"{self.path} is not a journal of this version ({error}): delete it or choose "
                    "another output"
                ) from None
            raise PassRatesError(
                f"{self.path}, line {number}, has {error}: {self._remedy(start)}"
            ) from None

    def _gone(self) -> PassRatesError:
        return PassRatesError(
            f"no journal {self.path} with completions: those of this build are not there any more; "
            "build into another output"
        )

    def _damaged(self, place: str, start: int) -> PassRatesError:
        return PassRatesError(
            f"{self.path} is damaged {place}, at byte {start}: {self._remedy(start)}"
        )

    def _remedy(self, start: int) -> str:
        return (
            f"restore it from a copy, or keep what comes before with `truncate -s {start} "
            f"{self.path}`, and the rest is sampled again"
        )

    def _apply(self, line: Line) -> None:
        """Bring the attributes up to date.

        Raises
        ------
        ValueError
            If the line contradicts those before it.
        """
        kind = line["kind"]
        if kind == "completions":
            self.record.add_completions(
                line["key"], line["first"], line["texts"], line["tokens"], line.get("cut", ())
            )
            if self._check_samples is not None:  # a journal without completions may be replaced
                self._check_samples(self.samples)
                self._check_samples = None
        elif kind == "verdicts":
            failures = line.get("failures", {})
            self.record.add_verdicts(line["key"], line["first"], line["rewards"], failures)
        elif kind == "header":
            self.created, self.samples = line["created"], line["samples"]
        elif kind == "prompts":
            self.record.name_prompts(line["rows"])
        elif kind == "session":
            self._sessions[line["number"]] = line["seconds"]
        elif kind == "sampled":
            self.is_sampled = True
        elif kind == "complete":
            self.is_complete = True
        elif kind == "engine":
            self.engine = line["settings"]
        elif kind == "target":
            self.earlier_targets += [self.target] if self.target else []
            self.target = line["settings"]
            self.is_sampled = self.is_complete = False
        else:
            self.verifier, self.is_complete = line["settings"], False
            self.record.void_verdicts()
