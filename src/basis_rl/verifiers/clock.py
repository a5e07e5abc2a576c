"""What a worker is doing, and how long an answer has taken, as its keeper sees it."""

from __future__ import annotations

import mmap
import os
import struct
from time import monotonic  # by its name: a verifier may replace the module's

IDLE, STARTING, JUDGING = 0, 1, 2
_MOST_WALLS = 10  # for what is runnable all the time and uses no processor time


class State:
    """What a worker is doing and since when, in memory that the keeper sees."""

    _FORM = struct.Struct("=dqq")

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self._FORM.size)

    def set(self, phase: int, number: int = 0) -> None:
        """Note the start of a phase, and the number of the request that is judged."""
        self._FORM.pack_into(self._memory, 0, monotonic(), phase, number)

    def get(self) -> tuple[float, int]:
        """Start of the phase, and the phase: idle, starting (or reading a request), or judging."""
        since, phase, _ = self._FORM.unpack_from(self._memory)
        return since, phase

    @property
    def phase(self) -> int:
        """Idle, starting or judging."""
        return self.get()[1]

    @property
    def number(self) -> int:
        """Of the request that is judged."""
        return int(self._FORM.unpack_from(self._memory)[2])


class AnswerClock:
    """Time that an answer has waited; that in which it could run, or did, has its own limits.

    On a loaded machine a worker waits for a core: counting that would make verdicts depend on
    what else runs. The processor time is the kernel's to limit; here it is looked at again, for
    code that has put off the kernel's signals.

    Parameters
    ----------
    worker : int
    wall_s : float
    cpu_s : float
        More than the kernel allows.
    """

    def __init__(self, worker: int, wall_s: float, cpu_s: float) -> None:
        self._worker, self._wall_s, self._cpu_s = worker, wall_s, cpu_s
        self._since = self._seen = self._waited = self._spent_before = 0.0

    def left(self, since: float, phase: int) -> float | None:
        """Seconds until the answer's time is over; None between answers.

        Parameters
        ----------
        since : float
            Start of the phase, which tells answers apart.
        phase : int
        """
        if phase != JUDGING:
            return None
        is_runnable, spent = _activity(self._worker)
        if since != self._since:
            self._since = self._seen = since
            self._waited, self._spent_before = 0.0, spent
        now = monotonic()
        if not is_runnable:
            self._waited += now - self._seen
        self._seen = now
        cpu_left = self._cpu_s - (spent - self._spent_before)
        return min(self._wall_s - self._waited, cpu_left, since + _MOST_WALLS * self._wall_s - now)


def _activity(worker: int) -> tuple[bool, float]:
    """Whether a process runs or waits for a core, and its processor time in seconds.

    False and 0 where the platform does not say.
    """
    try:
        with open(f"/proc/{worker}/stat", "rb") as status:
            fields = status.read().rpartition(b")")[2].split()
        return fields[0] == b"R", (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return False, 0.0
