"""Builds in processes that are forked from one with torch loaded, so that killing many is cheap.

As a script it reads jobs from its input, one JSON object a line, forks a build for each, prints the
build's process, then, once that has ended, its exit status.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

VERIFIER = """
import time

def odd(completion, answer):
    time.sleep(0.002)
    return float(len(completion) % 2)
"""
PROMPTS = 20
N = 6
PAUSE_S = 20.0


class Forks:
    """Client of the script; a context manager."""

    def __init__(self, folder: Path) -> None:
        (folder / "length_rewards.py").write_text(VERIFIER)
        self._server = subprocess.Popen(
            [sys.executable, __file__, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000", "OMP_NUM_THREADS": "1"},
        )
        assert self._answer() == "ready"

    def run(self, out: Path, kill_after: float | None = None, pause_at: str = "") -> int:
        """Build; kill after so many seconds, or so long after a pause; exit status or -9.

        Parameters
        ----------
        out : Path
        kill_after : float, optional
        pause_at : str
            "before" or "after" the finished file gets its name: the build waits there.
        """
        self._server.stdin.write(json.dumps({"out": str(out), "pause": pause_at}) + "\n")
        self._server.stdin.flush()
        child = int(self._answer())
        if pause_at:
            deadline = time.monotonic() + PAUSE_S
            while not marker(out).exists() and time.monotonic() < deadline:
                time.sleep(0.001)
            marker(out).unlink()
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(child, signal.SIGKILL)  # at worst a zombie: the server waits for our next word
        self._server.stdin.write("\n")
        self._server.stdin.flush()
        return int(self._answer())

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *_: Any) -> None:
        self._server.stdin.close()
        self._server.wait(timeout=30)

    def _answer(self) -> str:
        line = self._server.stdout.readline()
        assert line, "the server of builds has ended"
        return line.strip()


def marker(out: Path) -> Path:
    return out.with_name(out.name + ".paused")


def main(folder: str) -> None:
    os.chdir(folder)
    import torch
    import transformers.models.qwen3.modeling_qwen3  # noqa: F401

    import basis_rl.passrates.storage.file  # noqa: F401
    from basis_rl.passrates.build import build_cache  # noqa: F401

    torch.set_num_threads(1)
    print("ready", flush=True)
    for line in sys.stdin:
        if not line.strip():
            continue
        job = json.loads(line)
        child = os.fork()
        if not child:
            code = 1
            try:
                build(Path(job["out"]), job["pause"])
                code = 0
            finally:
                if job["pause"]:
                    marker(Path(job["out"])).touch()  # a build that failed is not waited for
                os._exit(code)
        print(child, flush=True)
        sys.stdin.readline()  # the build's number stays its own until the killer is done
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def build(out: Path, pause: str) -> None:
    from random_qwen3 import make_model, make_tokenizer

    from basis_rl import verifiers
    from basis_rl.passrates.build import build_cache
    from basis_rl.prompts import Prompt
    from basis_rl.rollouts import SamplingSettings, TransformersEngine

    if pause:
        replace = Path.replace

        def paused(self: Path, target: Path) -> Any:
            if pause == "after":
                replace(self, target)
            marker(out).touch()
            time.sleep(PAUSE_S)

        Path.replace = paused  # type: ignore[method-assign]
    verifier = verifiers.create("length_rewards:odd", processes=2)
    prompts = [Prompt(f"k{i}", f"{i}+1=", "sum", {"answer": "x"}) for i in range(PROMPTS)]
    engine = TransformersEngine(make_model(), make_tokenizer(), name="tiny", batch_size=8)
    settings = SamplingSettings(max_tokens=24)
    build_cache(prompts, engine, verifier, out, n=N, settings=settings)
    verifier.close()


if __name__ == "__main__":
    main(sys.argv[1])
