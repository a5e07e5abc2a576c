"""Limits of one answer: processor time, time on the clock, memory."""

from __future__ import annotations

import resource
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

TIME_OUT = "time-out"
MEMORY = "memory"
# After an answer's own limit: seconds for Python code to let go before the kernel ends the process.
_LAST_CALL = 1.25
_EVERY_S = 0.05
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True)
class Limits:
    """What one answer may use.

    Attributes
    ----------
    cpu_s : float
        Seconds of processor time: a loaded machine does not change a verdict.
    wall_factor : float
        Seconds of waiting without computing, as a multiple of `cpu_s`.
    memory_bytes : int
        Address space on top of what the loaded code takes.
    answers : int
        A worker judges as many, then makes room for a fresh one.
    growth_bytes : int
        So does one that has grown by as much.
    """

    cpu_s: float = 5.0
    wall_factor: float = 3.0
    memory_bytes: int = 2 << 30
    answers: int = 5000
    growth_bytes: int = 512 << 20

    @property
    def wall_s(self) -> float:
        """Seconds of waiting."""
        return self.cpu_s * self.wall_factor

    @property
    def hard_cpu_s(self) -> float:
        """Seconds of processor time after which a worker is ended that the kernel has not."""
        return 2 * self.cpu_s * _LAST_CALL + 4 * _EVERY_S


class AnswerTimeoutError(BaseException):
    """An answer's time is over; no `Exception`, so that no ``except Exception`` swallows it."""


class CpuLimit:
    """Context in which Python code gets `AnswerTimeoutError`, and code that ignores it is ended.

    Two clocks of the kernel: ``ITIMER_PROF`` calls Python's handler, which cannot run inside a
    long C call; ``ITIMER_VIRTUAL``, somewhat later, has the default action, the process's end.

    Parameters
    ----------
    cpu_s : float
    """

    def __init__(self, cpu_s: float) -> None:
        self._cpu_s = cpu_s
        self._running = False

    def __enter__(self) -> None:
        self._running = True
        signal.signal(signal.SIGPROF, self._over)
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_VIRTUAL, self._cpu_s * _LAST_CALL + _EVERY_S)
        signal.setitimer(signal.ITIMER_PROF, self._cpu_s, _EVERY_S)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def _over(self, number: int, frame: Any) -> None:
        if self._running:
            raise AnswerTimeoutError


def limit_memory(more_bytes: int) -> None:
    """Let this process grow by so much; then it gets MemoryError, where the platform can."""
    try:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        wanted = _address_space() + more_bytes
        if hard != resource.RLIM_INFINITY:
            wanted = min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    except (ValueError, OSError):
        return


def end_with_parent() -> None:
    """Let this process end when the one that forked it does, where the platform can."""
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)


def no_core_dumps() -> None:
    """Write no file when a process dies."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def resident_bytes() -> int:
    """Most memory that this process has had resident."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])  # OSError where there is none
    return pages * resource.getpagesize()
