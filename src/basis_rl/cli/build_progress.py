"""How a build shows its progress: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from basis_rl.passrates.build import BuildProgress

_BAR_WIDTH = 8
_SECONDS_TO_FIRST_LINE = 15.0
_SECONDS_BETWEEN_LINES = 30.0
_SECONDS_BETWEEN_LOOKS = 1.0


class Report:
    """Draws each `BuildProgress` but the first, which comes before the model is loaded.

    Attributes
    ----------
    last : BuildProgress or None
        None where there was nothing to do.
    """

    def __init__(self, draw: Callable[[BuildProgress], None], *, doing: str) -> None:
        self.last: BuildProgress | None = None
        self._draw, self._doing = draw, doing

    def __call__(self, now: BuildProgress) -> None:
        """Draw it; the first time, say what is there already."""
        is_first, self.last = self.last is None, now
        if not is_first:
            self._draw(now)
        elif now.completions and self._doing == "sampling":
            # An adaptive build may have more than its first stage wants.
            known = now.completions <= now.completions_wanted
            of = f" of {now.completions_wanted}" if known else ""
            click.echo(f"going on: {now.completions}{of} completions are in the journal", err=True)


@contextmanager
def shown_progress(doing: str) -> Iterator[Report]:
    """Progress on the standard error.

    Parameters
    ----------
    doing : str
        "sampling" or "judging".
    """
    from rich.console import Console

    console = Console(stderr=True)
    with _bar(console, doing) if console.is_terminal else _lines(doing) as draw:
        yield Report(draw, doing=doing)


@contextmanager
def _bar(console: Console, doing: str) -> Iterator[Callable[[BuildProgress], None]]:
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    with Progress(
        TextColumn(doing),
        BarColumn(bar_width=_BAR_WIDTH),
        TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True)),
        console=console,
    ) as bar:
        task = bar.add_task(doing, total=None, note="", visible=False)

        def draw(now: BuildProgress) -> None:
            done, wanted = _counts(now, doing)
            note = note_within(now, doing, console.width - len(doing) - _BAR_WIDTH - 2)
            bar.update(task, completed=done, total=wanted, note=note, visible=True)

        yield draw


@contextmanager
def _lines(doing: str) -> Iterator[Callable[[BuildProgress], None]]:
    lines, ended = _Lines(doing), threading.Event()

    def look() -> None:  # a batch can take minutes, and says nothing before its end
        while not ended.wait(_SECONDS_BETWEEN_LOOKS):
            with suppress(OSError):
                lines.show_if_due()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield lines
    finally:
        ended.set()
        thread.join()
        lines.end()


class _Lines:
    """A line after the first batch or 15 seconds, then every 30 seconds, and the last one."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._now: BuildProgress | None = None
        self._due = math.inf
        self._moved = False
        self._shown: BuildProgress | None = None
        self._lock = threading.Lock()

    def __call__(self, now: BuildProgress) -> None:
        if self._now is None:
            self._due = time.monotonic() + _SECONDS_TO_FIRST_LINE
        if not self._moved and (now.judged if self._doing == "judging" else now.sampled_here):
            self._moved, self._due = True, 0.0
        self._now = now
        self.show_if_due()

    def show_if_due(self) -> None:
        """Print a line if it is time."""
        with self._lock:
            if time.monotonic() >= self._due:
                self._due = time.monotonic() + _SECONDS_BETWEEN_LINES
                self._show()

    def end(self) -> None:
        """Print how far it came."""
        if self._now is not self._shown:
            self._show()

    def _show(self) -> None:
        assert self._now is not None
        self._shown = self._now
        click.echo(f"{self._doing} {', '.join(_parts(self._now, self._doing))}", err=True)


def note_within(now: BuildProgress, doing: str, width: int) -> str:
    """What stands beside a bar; in a narrow terminal shorter, and without its last parts."""
    whole = ", ".join(_parts(now, doing))
    if len(whole) <= width:
        return whole
    done, wanted = _counts(now, doing)
    note = f"{done}/{wanted}"
    for part in _parts(now, doing)[1:]:
        if len(note) + len(part) + 2 > width:
            break
        note = f"{note}, {part}"
    return note


def _parts(now: BuildProgress, doing: str) -> list[str]:
    """The most important first."""
    done, wanted = _counts(now, doing)
    parts = [f"{done}/{wanted} completions"]
    if now.tokens_here:
        parts.append(f"{_duration(now.seconds_left)} left")
        parts.append(f"{now.tokens_per_second:,.0f} tokens/s")
    if not math.isnan(now.mean):
        parts.append(f"mean {now.mean:.3f}")
    parts.append(f"{now.prompts_done}/{now.prompts} prompts")
    if now.queue and doing == "sampling":
        parts.append(f"{now.queue} wait for the verifier")
    return parts


def _counts(now: BuildProgress, doing: str) -> tuple[int, int]:
    if doing == "judging":
        return now.judged, now.completions
    return now.completions, now.completions_wanted


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
