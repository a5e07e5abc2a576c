"""What a worker is doing, and how long an answer has waited, as its keeper sees it."""

from __future__ import annotations

import mmap
import struct
import time

IDLE, STARTING, JUDGING = 0, 1, 2
_MOST_WALLS = 10  # for what is runnable all the time and uses no processor time


class State:
    """What a worker is doing and since when, in memory that the keeper sees."""

    _FORM = struct.Struct("=dq")

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self._FORM.size)

    def set(self, phase: int) -> None:
        """Note the start of a phase."""
        self._FORM.pack_into(self._memory, 0, time.monotonic(), phase)

    def get(self) -> tuple[float, int]:
        """Start of the phase, and the phase: idle, starting (or reading a request), or judging."""
        since, phase = self._FORM.unpack_from(self._memory)
        return since, phase

    @property
    def phase(self) -> int:
        """Idle, starting or judging."""
        return self.get()[1]


class WaitingClock:
    """Time that an answer has waited; that in which it could run, or did, has its own limit.

    On a loaded machine a worker waits for a core: counting that would make verdicts depend on
    what else runs.

    Parameters
    ----------
    worker : int
    wall_s : float
    """

    def __init__(self, worker: int, wall_s: float) -> None:
        self._worker, self._wall_s = worker, wall_s
        self._since = self._seen = self._waited = 0.0

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
        if since != self._since:
            self._since = self._seen = since
            self._waited = 0.0
        now = time.monotonic()
        if not _is_runnable(self._worker):
            self._waited += now - self._seen
        self._seen = now
        return min(self._wall_s - self._waited, since + _MOST_WALLS * self._wall_s - now)


def _is_runnable(worker: int) -> bool:
    """Whether a process runs or waits for a core; False where the platform does not say."""
    try:
        with open(f"/proc/{worker}/stat", "rb") as status:
            return status.read().rpartition(b")")[2].split()[0] == b"R"
    except (OSError, IndexError):
        return False
