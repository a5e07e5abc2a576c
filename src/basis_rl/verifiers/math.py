"""The verifier `math`: math-verify, in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from importlib.metadata import version
from typing import Any

from basis_rl.errors import ConfigError
from basis_rl.verifiers.base import Columns, VerifierProcessError, required_answer
from basis_rl.verifiers.exact import answer_text


class Math:
    r"""Reward 1 if the completion's final answer has the value of the gold answer, else 0.

    The gold answer may be bare LaTeX, LaTeX in ``$`` or ``\boxed{}``, a number, or GSM8K's text
    with ``#### 18``. A gold answer that math-verify cannot read gives no verdict.

    math-verify's own time-outs are signals: they work in a main thread only, and not inside a
    long C call. Verdicts are therefore made in a helper process, which is ended and started
    again when it hangs; any thread may ask.

    Parameters
    ----------
    answer_column : str
    soft_limit_s : int
        Seconds for parsing and for comparing, each.
    hard_limit_s : float
        Seconds after which a helper process that does not react is ended.

    Raises
    ------
    ConfigError
        If math-verify is not installed.
    """

    def __init__(
        self, answer_column: str, *, soft_limit_s: int = 3, hard_limit_s: float = 10.0
    ) -> None:
        if importlib.util.find_spec("math_verify") is None:
            raise ConfigError("verifier 'math' needs math-verify: pip install math-verify")
        self.answer_column = answer_column
        self.soft_limit_s = soft_limit_s
        self.hard_limit_s = hard_limit_s
        self.version = version("math-verify")
        self._lock = threading.Lock()
        self._worker: subprocess.Popen[str] | None = None
        self._owner = 0

    def __call__(self, completion: str, columns: Columns) -> float | None:
        """Reward of one completion, None if the gold answer cannot be read."""
        gold = required_answer(columns, self.answer_column, "math")
        if gold is None:
            return None
        reply = self._ask({"completion": completion, "gold": answer_text(gold)})
        if "error" in reply:
            raise VerifierProcessError(reply["error"])
        reward: float | None = reply["reward"]
        return reward

    def check(self, columns: Columns) -> None:
        """Refuse a row without a usable answer column."""
        required_answer(columns, self.answer_column, "math")

    def close(self) -> None:
        """End the helper process; it ends by itself with this one."""
        with self._lock:
            self._stop()

    def __getstate__(self) -> dict[str, Any]:
        names = ("answer_column", "soft_limit_s", "hard_limit_s")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # a lock and a process cannot be copied

    def __del__(self) -> None:
        self._stop()

    def _ask(self, request: dict[str, str]) -> dict[str, Any]:
        with self._lock:
            worker = self._started()
            assert worker.stdin is not None
            assert worker.stdout is not None
            try:
                worker.stdin.write(json.dumps(request) + "\n")
                worker.stdin.flush()
                line = worker.stdout.readline()
            except OSError:
                line = ""
            except BaseException:
                self._stop()  # a reply that nobody reads would be taken for the next one's
                raise
            if not line.endswith("\n"):
                self._stop()
                return {"error": "TimeoutError"}
            reply: dict[str, Any] = json.loads(line)
            return reply

    def _started(self) -> subprocess.Popen[str]:
        if self._worker is not None and self._owner == os.getpid() and self._worker.poll() is None:
            return self._worker
        # A session of its own: Ctrl-C is for this process, which then closes the pipe.
        limits = [str(self.soft_limit_s), str(self.hard_limit_s)]
        command = [sys.executable, "-m", "basis_rl.verifiers.math_worker", *limits]
        worker = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="ascii",
            start_new_session=True,
        )
        self._worker, self._owner = worker, os.getpid()
        assert worker.stdout is not None
        if not worker.stdout.readline().endswith("\n"):
            code = worker.wait()
            self._stop()
            raise ConfigError(
                f"the helper process of verifier 'math' ended at its start (exit code {code}): see "
                f"what `{' '.join(command)}` prints"
            )
        return worker

    def _stop(self) -> None:
        worker, self._worker = getattr(self, "_worker", None), None
        if worker is None or self._owner != os.getpid():
            return  # none, or that of the process this one was forked from
        worker.kill()
        worker.communicate()
