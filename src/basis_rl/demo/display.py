"""What the terminal shows during a demo run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_SECONDS_BETWEEN_LINES = 10.0  # where there is no terminal to draw a bar on
Update = Callable[[int, str], None]


class Display:
    """Numbered stages with a bar each; plain lines where the output is no terminal.

    Parameters
    ----------
    stages : int
        How many stages there will be.
    console : Console, optional
        By default one on stderr.
    """

    def __init__(self, stages: int, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._stages = stages
        self._number = 0
        self._start = time.perf_counter()

    def say(self, line: str) -> None:
        """Print a line."""
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def stage(self, title: str) -> None:
        """Announce the next stage and the time since the start."""
        self._number += 1
        elapsed = time.perf_counter() - self._start
        self.say(f"[{self._number}/{self._stages}] {title}  ({as_minutes(elapsed)} so far)")

    @contextmanager
    def bar(self, total: int, unit: str) -> Iterator[Update]:
        """Bar of one stage; yields ``update(done, note)``."""
        if self.console.is_terminal:
            with Progress(
                TextColumn("     "),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn(unit + "{task.fields[note]}"),
                TimeRemainingColumn(),
                console=self.console,
                transient=True,
            ) as progress:
                task = progress.add_task("", total=total, note="")
                yield lambda done, note: progress.update(task, completed=done, note=", " + note)
        else:
            yield _Lines(self, total, unit)


class _Lines:
    """Progress as a line now and then."""

    def __init__(self, display: Display, total: int, unit: str) -> None:
        self._display, self._total, self._unit = display, total, unit
        self._start = self._last = time.perf_counter()
        self._first: int | None = None

    def __call__(self, done: int, note: str) -> None:
        now = time.perf_counter()
        if self._first is None:  # what an earlier run had done tells nothing about the speed
            self._first, self._start = done, now
        elif now - self._last < _SECONDS_BETWEEN_LINES and done < self._total:
            return
        self._last = now
        line = f"      {done}/{self._total} {self._unit}, {note}"
        if done > self._first:
            seconds = (now - self._start) / (done - self._first) * (self._total - done)
            line += f", {as_minutes(seconds)} left"
        self._display.say(line)


def as_minutes(seconds: float) -> str:
    """Seconds as m:ss."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
