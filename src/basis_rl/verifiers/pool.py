"""Worker processes that judge answers, each under its own limits."""

from __future__ import annotations

import os
import pickle
import threading
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from basis_rl.errors import BasisError, ConfigError
from basis_rl.verifiers.limits import Limits
from basis_rl.verifiers.replies import Reply
from basis_rl.verifiers.slot import Slot

_END_S = 20.0


def usable_cores() -> int:
    """Cores of this process; its share of them where several trainers run on one machine."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    local = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, cores // (int(local) if local.isdigit() and int(local) else 1))


class Pool:
    """Judges answers in other processes; each costs at most its limits, and only itself.

    Processes and the threads that talk to them start with the first answers, and end with
    `close`, with the pool, or with the process that made it. After a fork the child has a pool of
    its own. A pool can be pickled: what arrives is a new one with the same settings.

    Parameters
    ----------
    name : str
        Of the verifier, for messages.
    score : callable
        Called in the workers with (completion, columns); it must be picklable. If its attribute
        ``load_first`` is true it is loaded once and forked, else in each worker.
    processes : int
    limits : Limits
    """

    def __init__(self, name: str, score: Any, processes: int, limits: Limits) -> None:
        if processes < 1:
            raise ConfigError(f"processes is {processes} for verifier {name!r}: give 1 or more")
        self.name, self.processes, self.limits = name, processes, limits
        self._score = score
        self._reset()

    def put(self, completion: str, columns: Any, done: Callable[[Reply | Exception], None]) -> None:
        """Judge a completion; `done` is called in a thread of the pool."""
        if self._owner != os.getpid():
            self._forget()
        with self._lock:
            if self._closed:
                raise BasisError(f"verifier {self.name!r} is closed: make another one")
            self._open += 1
            if len(self._slots) < min(self.processes, self._open):
                self._add_slot()
            self._tasks.put((completion, columns, done))

    def close(self) -> None:
        """End the processes; answers that wait for a verdict get an error."""
        if self._owner != os.getpid():
            return
        with self._lock:  # nothing is put after what `_end` takes out
            self._closed = True
        self._finalizer()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_END_S)

    def __getstate__(self) -> dict[str, Any]:
        return {"arguments": (self.name, self._score, self.processes, self.limits)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["arguments"])  # type: ignore[misc]  # threads cannot be copied

    def _reset(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._tasks: SimpleQueue[Any] = SimpleQueue()
        self._slots: list[Slot] = []
        self._threads: list[threading.Thread] = []
        self._open = 0
        self._closed = False
        self._finalizer = weakref.finalize(self, _end, self._tasks, self._slots, self._owner)

    def _forget(self) -> None:
        """Leave the processes of the parent of a fork to it."""
        for slot in self._slots:
            slot.let_go()
        self._finalizer.detach()
        self._reset()

    def _add_slot(self) -> None:
        load_first = bool(getattr(self._score, "load_first", False))
        try:
            score = pickle.dumps(self._score)
        except Exception as error:
            raise ConfigError(
                f"verifier {self.name!r} cannot be sent to another process ({error}): give "
                "processes=0"
            ) from error
        slot = Slot(self.name, pickle.dumps((score, load_first, self.limits)), self.limits)
        self._slots.append(slot)
        arguments = (self._tasks, slot, weakref.WeakMethod(self._one_less))
        thread = threading.Thread(target=_serve, args=arguments, daemon=True, name="verifier")
        self._threads.append(thread)
        thread.start()

    def _one_less(self) -> None:
        with self._lock:
            self._open -= 1


def _serve(tasks: SimpleQueue[Any], slot: Slot, one_less: weakref.WeakMethod[Any]) -> None:
    """Judge until the pool is closed; no reference to the pool, so that it can be collected."""
    while (task := tasks.get()) is not None:
        completion, columns, done = task
        reply: Reply | Exception
        try:
            reply = slot.judge(completion, columns)
        except Exception as error:
            reply = error
        if (tell := one_less()) is not None:
            tell()
        del tell
        done(reply)
        del task, completion, columns, done, reply
    slot.stop()


def _end(tasks: SimpleQueue[Any], slots: list[Slot], owner: int) -> None:
    if owner != os.getpid():
        return
    waiting = []
    while True:
        try:
            waiting.append(tasks.get_nowait())
        except Empty:
            break
    for slot in slots:
        slot.hang_up()
        tasks.put(None)
    for _, _, done in filter(None, waiting):
        done(BasisError("the verifier was closed before its verdict"))
