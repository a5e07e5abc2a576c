"""The process in which a pool judges answers: a keeper, and the forked worker that it replaces.

The keeper loads the verifier once. A worker that an answer has killed, hung or polluted is
replaced by another fork, in milliseconds and in the state of a fresh process. The keeper itself
never runs an answer, so it is there to end the worker's process group, and to say of what it died.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from basis_rl.errors import BasisError
from basis_rl.verifiers.channel import Channel, parts_of
from basis_rl.verifiers.clock import IDLE, JUDGING, STARTING, AnswerClock, State
from basis_rl.verifiers.limits import (
    MEMORY,
    TIME_OUT,
    AnswerTimeoutError,
    CpuLimit,
    Limits,
    end_with_parent,
    limit_memory,
    no_core_dumps,
    resident_bytes,
)
from basis_rl.verifiers.replies import failure_name, failure_text, reply_to

Score = Callable[[str, Any], Any]
_SHOWN = 300
_PEEK = socket.MSG_PEEK


def main(descriptor: int) -> None:
    """Judge what comes through a socket until its other end is closed.

    Parameters
    ----------
    descriptor : int
        Of the socket. Its first message is pickled: the pickled verifier, whether to load it
        before forking, and the `Limits`. Every other one is a number, which comes back with the
        reply, and a pickled (completion, columns).
    """
    os.set_inheritable(descriptor, False)
    parent = os.getppid()
    channel = Channel(socket.socket(fileno=descriptor))
    verifier, load_first, limits = pickle.loads(channel.receive())
    no_core_dumps()
    score: Score | None = None
    if load_first:
        try:
            score = _loaded(verifier)
        except BaseException as error:
            _send(channel, {"broken": failure_text(error)})
            return
    _send(channel, {"ready": os.getpid()})
    Keeper(channel, parent, score or verifier, limits).run()


class Keeper:
    """Forks workers, one at a time, and tells the parent of those that died over an answer.

    Parameters
    ----------
    channel : Channel
    parent : int
        Process id; without it, this process and its worker end.
    score : callable or bytes
        The verifier, pickled where each worker must load it itself.
    limits : Limits
    """

    def __init__(self, channel: Channel, parent: int, score: Score | bytes, limits: Limits) -> None:
        self.channel, self.parent, self.score, self.limits = channel, parent, score, limits
        self.state = State()
        self._tick_s = min(1.0, limits.wall_s / 8)
        self._children, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self._children, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve until the parent is gone."""
        while self._wait_for_request():
            self.state.set(STARTING)
            worker = os.fork()
            if worker == 0:
                _be_worker(self.channel, self.score, self.limits, self.state)
            _own_group(worker)
            status, over = self._watch(worker)
            if self.state.phase == STARTING:
                return  # broken, or half a request is lost: the parent starts another keeper
            if self.state.phase == JUDGING:
                # The worker may have sent its reply just before: the parent takes the first.
                cause = TIME_OUT if over else death(status)
                _send(self.channel, {"number": self.state.number, "failure": cause})

    def _wait_for_request(self) -> bool:
        poll = select.poll()
        poll.register(self.channel.end, select.POLLIN)
        while not (events := poll.poll(1000)):
            if os.getppid() != self.parent:
                return False
        return bool(events[0][1] & select.POLLIN) and bool(self.channel.end.recv(1, _PEEK))

    def _watch(self, worker: int) -> tuple[int, bool]:
        """Exit status of a worker, and whether it had to be ended."""
        poll = select.poll()
        poll.register(self._children, select.POLLIN)
        poll.register(self.channel.end, 0)  # the other end's closing is always told
        over = False
        clock = AnswerClock(worker, self.limits.wall_s, self.limits.hard_cpu_s)
        while True:
            if (status := ended(worker)) is not None:
                return status, over
            left = clock.left(*self.state.get())
            if left is not None and left <= 0:
                over = True
                _end_group(worker)
                continue
            events = poll.poll(1000 * min(self._tick_s, left or self._tick_s) + 1)
            self._drain()
            closed = any(descriptor == self.channel.end.fileno() for descriptor, _ in events)
            if closed or os.getppid() != self.parent:
                _end_group(worker)
                os._exit(0)

    def _drain(self) -> None:
        try:
            os.read(self._children, 512)
        except BlockingIOError:
            return


def death(status: int) -> str:
    """Cause of death of a process, from its wait status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number in (signal.SIGVTALRM, signal.SIGXCPU, signal.SIGPROF):
            return TIME_OUT
        return f"process died ({signal.Signals(number).name})"
    return f"process died (exit code {os.WEXITSTATUS(status)})"


def _be_worker(channel: Channel, score: Score | bytes, limits: Limits, state: State) -> None:
    """Judge one request after the other; never returns."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _own_group(0)
        end_with_parent()
        if isinstance(score, bytes):
            try:
                score = _loaded(score)
            except BaseException as error:
                _send(channel, {"broken": failure_text(error)})
                return
            replaced_after: tuple[type[Exception], ...] = (MemoryError, RecursionError)
        else:
            replaced_after = (Exception,)  # a fork costs next to nothing
        limit_memory(limits.memory_bytes)
        state.set(IDLE)
        _judge_all(channel, score, limits, state, replaced_after)
    finally:
        os._exit(0)


def _judge_all(
    channel: Channel,
    score: Score,
    limits: Limits,
    state: State,
    replaced_after: tuple[type[Exception], ...],
) -> None:
    depth, size, worker = sys.getrecursionlimit(), resident_bytes(), os.getpid()
    for _ in range(limits.answers):
        try:
            length = channel.receive_length()
        except (EOFError, OSError):
            return
        state.set(STARTING)
        number, pickled = parts_of(channel.receive(length))
        try:
            completion, columns = pickle.loads(pickled)
        except Exception as error:
            _send(channel, {"number": number, "unreadable": failure_text(error)[:_SHOWN]})
            return
        state.set(JUDGING, number)
        reply, is_clean = judge(score, completion, columns, limits, replaced_after)
        if os.getpid() != worker:
            return  # a fork that the verifier has forgotten to end
        _send(channel, {"number": number, **reply})
        state.set(IDLE)
        sys.setrecursionlimit(depth)
        if not is_clean or resident_bytes() > size + limits.growth_bytes:
            return


def judge(
    score: Score,
    completion: str,
    columns: Any,
    limits: Limits,
    replaced_after: tuple[type[Exception], ...] = (Exception,),
) -> tuple[dict[str, Any], bool]:
    """Reply to one request, and whether this process may take another one."""
    try:
        with CpuLimit(limits.cpu_s):
            return reply_to(score(completion, columns)), True
    except AnswerTimeoutError:
        return {"failure": TIME_OUT}, False
    except MemoryError:
        return {"failure": MEMORY}, False
    except BasisError as error:
        return {"refused": str(error)[:_SHOWN]}, True
    except BaseException as error:
        is_clean = isinstance(error, Exception) and not isinstance(error, replaced_after)
        told = failure_text(error)[:_SHOWN]
        return {"failure": failure_name(error)[:_SHOWN], "told": told}, is_clean


def _loaded(verifier: bytes) -> Score:
    score: Score = pickle.loads(verifier)
    warm_up = getattr(score, "warm_up", None)
    if warm_up is not None:
        warm_up()
    return score


def _send(channel: Channel, reply: dict[str, Any]) -> None:
    channel.send(json.dumps(reply).encode("ascii"))


def _own_group(worker: int) -> None:
    try:
        os.setpgid(worker, worker)
    except OSError:  # the worker itself was faster
        return


def _end_group(worker: int) -> None:
    try:
        os.killpg(worker, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def ended(worker: int) -> int | None:
    """Wait status of a worker that has ended, and its group with it; None while it runs."""
    if hasattr(os, "waitid"):  # not on macOS before Python 3.13
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        if os.waitid(os.P_PID, worker, options) is None:
            return None
        _end_group(worker)  # what the answer has started, while the number is surely taken
        return os.waitpid(worker, 0)[1]
    number, status = os.waitpid(worker, os.WNOHANG)
    if not number:
        return None
    _end_group(worker)
    return status
