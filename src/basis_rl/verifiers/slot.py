"""One worker process, as the process that wants verdicts sees it."""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import shlex
import socket
import subprocess
import sys
import time
from typing import Any

from basis_rl.errors import BasisError, ConfigError
from basis_rl.verifiers.channel import Channel, numbered
from basis_rl.verifiers.limits import TIME_OUT, Limits
from basis_rl.verifiers.replies import Reply

# The path first, so that a file of the current folder hides no module; nothing of it in sys.argv.
_START = (
    "import sys; number, sys.path[:] = sys.argv[1], sys.argv[2:]; del sys.argv[1:]; "
    "from basis_rl.verifiers.worker import main; main(int(number))"
)
_PRINTING = {"PYTHONIOENCODING": "utf-8:backslashreplace"}  # no error on what goes nowhere
_TRIES = 3
_START_S = 120.0
_GRACE_S = 10.0
_MOST_WALLS = 12  # more than the keeper of a starved worker waits
_MAX_REPLY = 1 << 16


class Slot:
    """One worker process at a time, for one thread."""

    def __init__(self, name: str, first_message: bytes, limits: Limits) -> None:
        self.name = name
        self.closed = False
        self._first, self._limits = first_message, limits
        self._number = 0
        self._keeper: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None

    def judge(self, completion: str, columns: Any) -> Reply:
        """Reply of the worker to one request.

        Raises
        ------
        ConfigError
            If no worker starts, or the verifier or the columns cannot be loaded there.
        """
        self._number += 1
        try:
            pickled = pickle.dumps((completion, columns), pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise ConfigError(
                f"columns of verifier {self.name!r} cannot be sent to another process ({error}): "
                "give processes=0"
            ) from error
        request = numbered(self._number, pickled)
        for _ in range(_TRIES):
            channel = self._started()
            self._check_open()
            try:
                channel.end.settimeout(_START_S + _MOST_WALLS * self._limits.wall_s)
                channel.send(request)
                reply = self._reply(channel)
            except TimeoutError:
                self.stop()
                return {"failure": TIME_OUT}
            except (OSError, EOFError, ValueError):
                self.stop()
                continue
            if "unreadable" in reply:
                raise ConfigError(
                    f"columns of verifier {self.name!r} cannot be loaded in a worker process "
                    f"({reply['unreadable']}): give processes=0"
                )
            if "broken" in reply:
                self.stop()
                raise self._broken(reply["broken"])
            return reply
        return {"failure": "process died"}  # and its keeper with it, each time

    def _reply(self, channel: Channel) -> Reply:
        """Reply to the last request; others are the keeper's word on an earlier one."""
        while True:
            reply = _parsed(channel)
            if "broken" in reply or reply.pop("number", None) == self._number:
                return reply

    def stop(self) -> None:
        """End the process; the next answer starts another one."""
        keeper, channel = self._keeper, self._channel
        self._keeper = self._channel = None
        if channel is not None:
            channel.close()  # the keeper then ends its worker, and itself
        if keeper is not None:
            try:
                keeper.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                keeper.kill()
                keeper.wait()

    def hang_up(self) -> None:
        """From another thread: whatever runs here ends with an error."""
        self.closed = True
        channel = self._channel
        if channel is not None:
            try:
                channel.end.shutdown(socket.SHUT_RDWR)
            except OSError:
                return

    def let_go(self) -> None:
        """Close this process's copy of the socket; the worker is another process's child."""
        if self._keeper is not None:
            self._keeper.returncode = 0  # else it is warned of as still running
        if self._channel is not None:
            self._channel.end.close()
        self._keeper = self._channel = None

    def _started(self) -> Channel:
        if self._channel is not None and self._keeper is not None and self._keeper.poll() is None:
            return self._channel
        self.stop()
        code: int | None = None
        for attempt in range(_TRIES):
            self._check_open()
            time.sleep(attempt * 0.5)
            self._start()
            assert self._channel is not None
            assert self._keeper is not None
            try:
                self._channel.send(self._first)
                reply = _parsed(self._channel)
            except (OSError, EOFError, ValueError):
                self._keeper.kill()
                code = self._keeper.wait()
                self.stop()
                continue
            if "broken" in reply:
                self.stop()
                raise self._broken(reply["broken"])
            return self._channel
        raise ConfigError(
            f"the worker process of verifier {self.name!r} ended at its start (exit code {code}, "
            f"{_TRIES} times): see what "
            f"`{shlex.quote(sys.executable)} -c 'import basis_rl.verifiers.worker'` prints"
        )

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            # Not 0, 1 or 2, which a daemon may have closed and the worker points elsewhere.
            number = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, 3)
        try:
            # A session of its own: Ctrl-C is for this process, which then closes the socket.
            self._keeper = subprocess.Popen(
                [sys.executable, "-c", _START, str(number), *map(str, sys.path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[number],
                env={"OMP_NUM_THREADS": "1", **os.environ, **_PRINTING},
                start_new_session=True,
            )
        finally:
            os.close(number)
        ours.settimeout(_START_S)
        self._channel = Channel(ours)

    def _check_open(self) -> None:
        if self.closed:
            raise BasisError(f"verifier {self.name!r} was closed before its verdict")

    def _broken(self, reason: str) -> ConfigError:
        return ConfigError(
            f"verifier {self.name!r} cannot be loaded in a worker process ({reason}): correct it, "
            "or give processes=0"
        )


def _parsed(channel: Channel) -> Reply:
    """One reply; JSON, since nothing that an answer may have touched is to be unpickled here."""
    reply = json.loads(channel.receive(limit=_MAX_REPLY))
    if not isinstance(reply, dict):
        raise ValueError("no reply")
    return reply
