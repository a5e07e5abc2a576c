"""Progress of long computations: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

_SHORT_S = 1.0  # nothing is shown of less
_BETWEEN_LINES_S = 30.0


@contextmanager
def counted(
    doing: str, what: str, *, stopped: str = "nothing was written"
) -> Iterator[Callable[[int, int], None]]:
    """Something to call with what is done and what there is to do, shown on the standard error.

    Parameters
    ----------
    doing, what : str
        "replaying", "batches".
    stopped : str
        What Ctrl-C leaves.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    console = Console(stderr=True)
    bar = Progress(
        *(TextColumn(doing), BarColumn(), MofNCompleteColumn(), TextColumn(what), TimeLeft()),
        console=console,
        transient=True,
    )
    task = bar.add_task(doing, total=None)
    started = time.monotonic()
    due = started + _BETWEEN_LINES_S

    def show(done: int, of: int) -> None:
        nonlocal due
        now = time.monotonic()
        if console.is_terminal:
            bar.update(task, completed=done, total=of)
            if not bar.live.is_started and now - started > _SHORT_S:
                bar.start()
        elif now >= due:
            due = now + _BETWEEN_LINES_S
            click.echo(f"{doing} {done}/{of} {what}", err=True)

    try:
        yield show
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped while {doing}: {stopped}") from None
    finally:
        if bar.live.is_started:
            bar.stop()
