"""The journal of an unfinished build: what was sampled so far, one JSON object a line.

The first line holds the build's settings, each further line the rewards of one batch. A line that
a crash cut short is dropped, and its batch sampled again.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from basis_rl.errors import PassRatesError
from basis_rl.files import cannot_write

FORMAT = 1


@dataclass(frozen=True)
class Batch:
    """Rewards of one batch of prompts.

    Attributes
    ----------
    rewards : list of lists of float or None
        One list a prompt; None where there was no verdict.
    failures : dict of str to int
        Failures of the verifier by type.
    """

    rewards: list[list[float | None]]
    failures: dict[str, int] = field(default_factory=dict)


class Journal:
    """An open journal; a context manager.

    Parameters
    ----------
    path : path
        Continued if it is there, else made.
    settings : mapping
        All that the rollouts depend on; JSON types.
    created : str
        Time for a new journal.
    batch_sizes : sequence of int
        Prompts of each batch.
    n : int
        Rollouts of each prompt.

    Attributes
    ----------
    created : str
        When the build was first started.
    batches : dict of int to Batch

    Raises
    ------
    PassRatesError
        If the file has batches of other settings, is no journal, is damaged before its last line,
        has a line that no build wrote, is in use by another process, or cannot be written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings: Mapping[str, Any],
        *,
        created: str,
        batch_sizes: Sequence[int],
        n: int,
    ) -> None:
        self.path = Path(path)
        self.created = created
        self._batch_sizes = batch_sizes
        self._n = n
        self.batches: dict[int, Batch] = {}
        try:
            self._stream: IO[bytes] = self.path.open("a+b")
        except OSError as error:
            raise PassRatesError(cannot_write(self.path, error)) from error
        try:
            self._lock()
            self._continue(json.loads(json.dumps(settings)))
        except BaseException:
            self._stream.close()
            raise

    def append(self, number: int, batch: Batch) -> None:
        """Add a batch; it is on the disk when this returns.

        Raises
        ------
        PassRatesError
            If it cannot be written.
        """
        self._write({"batch": number, "rewards": batch.rewards, "failures": batch.failures})
        self.batches[number] = batch

    def remove(self) -> None:
        """Delete the file, once the table is in place."""
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.close()

    def _lock(self) -> None:
        try:
            import fcntl
        except ModuleNotFoundError:  # Windows
            return
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PassRatesError(
                f"{self.path} is in use by another process: wait for it, or choose another output"
            ) from None

    def _continue(self, settings: dict[str, Any]) -> None:
        self._stream.seek(0)
        content = self._stream.read()
        lines, end = _complete_lines(content, self.path)
        if end < len(content):
            self._stream.truncate(end)
        header = _checked_header(lines[0], self.path) if lines else {}
        if len(lines) <= 1 and header.get("settings") != settings:  # nothing is lost
            self._stream.truncate(0)
            self._write({"journal": FORMAT, "created": self.created, "settings": settings})
            return
        refuse_other_settings(header["settings"], settings, self.path)
        self.created = str(header["created"])
        for number, line in enumerate(lines[1:]):
            self.batches[number] = self._checked_batch(number, line)

    def _checked_batch(self, number: int, line: Mapping[str, Any]) -> Batch:
        rewards, failures = line.get("rewards"), line.get("failures")
        size = self._batch_sizes[number] if number < len(self._batch_sizes) else None
        if size is None or line.get("batch") != number:
            wrong = f"batch {line.get('batch')!r} where batch {number} belongs"
            if size is None:
                wrong = f"a batch more than the {len(self._batch_sizes)} of the build"
        elif not isinstance(rewards, list) or len(rewards) != size:
            wrong = f"not the rewards of {size} prompts"
        elif not all(isinstance(row, list) and len(row) == self._n for row in rewards):
            wrong = f"a prompt without a list of {self._n} rewards"
        elif not all(_is_reward(reward) for row in rewards for reward in row):
            wrong = "a reward that is neither a finite number nor null"
        elif not isinstance(failures, dict) or not all(map(_is_count, failures.values())):
            wrong = "failures that are no counts"
        else:
            return Batch(rewards, failures)
        raise PassRatesError(
            f"{self.path}, line {number + 2}, has {wrong}: delete this line and those after it, or "
            "the file, and what is missing is sampled again"
        )

    def _write(self, entry: Mapping[str, Any]) -> None:
        try:
            self._stream.write(json.dumps(entry, allow_nan=False).encode() + b"\n")
            self._stream.flush()
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise PassRatesError(cannot_write(self.path, error)) from error


def refuse_other_settings(
    before: Mapping[str, Any], now: Mapping[str, Any], path: str | os.PathLike[str]
) -> None:
    """Refuse to go on with other settings than a build was started with.

    Raises
    ------
    PassRatesError
        Naming each setting that differs, with both values.
    """
    differences = [
        f"{name} was {before.get(name)!r} and is now {now.get(name)!r}"
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    ]
    if differences:
        raise PassRatesError(
            f"{os.fspath(path)} was made with other settings ({'; '.join(differences)}): use the "
            "same ones, choose another output, or delete it"
        )


def started_settings(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Settings of a journal that has batches; None if there is none."""
    try:
        content = Path(path).read_bytes()
    except OSError:
        return None
    lines, _ = _complete_lines(content, Path(path))
    if len(lines) <= 1:
        return None
    settings: dict[str, Any] = _checked_header(lines[0], Path(path))["settings"]
    return settings


def _checked_header(header: dict[str, Any], path: Path) -> dict[str, Any]:
    known = header.get("journal") == FORMAT and isinstance(header.get("created"), str)
    if not known or not isinstance(header.get("settings"), dict):
        raise PassRatesError(
            f"{path} is not a journal of this version: delete it or choose another output"
        )
    return header


def _is_reward(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _complete_lines(content: bytes, path: Path) -> tuple[list[dict[str, Any]], int]:
    """Parsed lines up to one that was cut short, and where they end."""
    lines: list[dict[str, Any]] = []
    end = 0
    while end < len(content):
        line, newline, _ = content[end:].partition(b"\n")
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not newline or not isinstance(entry, dict):
            if newline and end + len(line) + 1 < len(content):
                raise _damaged(path)
            break
        lines.append(entry)
        end += len(line) + 1
    return lines, end


def _damaged(path: Path) -> PassRatesError:
    return PassRatesError(f"{path} is damaged: delete it to sample again from the start")
