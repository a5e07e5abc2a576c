"""Starts a job's processes as forks of one that has imported the packages that verl imports.

A process of verl spends 5 s on imports, nearly all of it outside verl, and a job starts seven. Here
the job's first process imports those packages (never verl or a plug-in: each process does that as
it would), keeps a fork of itself as a server, and runs the trainer. Ray starts its workers through
the runtime environment's ``py_executable``, which is `start_worker`: it asks the server for a fork.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import random
import runpy
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

# Not Ray, nor what imports it: its library keeps the environment of the process that loads it.
PACKAGES = (
    "torch",
    "torch.distributed.fsdp",
    "tensordict",
    "torchdata.stateful_dataloader",
    "transformers.models.qwen3.modeling_qwen3",
    "datasets",
    "peft",
    "hydra",
    "fastapi",
    "uvicorn",
    "aiohttp",
)
PR_SET_PDEATHSIG = 1  # of Linux
LAST_LINES = 1.0  # seconds for what the workers have logged to arrive
SOCKET = "WARM_START_SOCKET"
SCRIPT = Path(__file__).with_name("start_worker.py")


def worker_command() -> str:
    """What Ray is to start its workers with."""
    return f"{sys.executable} -SE {SCRIPT}"


def main() -> None:
    """``python warm_start.py <module> <arguments>``, as ``python -m <module> <arguments>``."""
    module, arguments = sys.argv[1], sys.argv[1:]
    sys.path.pop(0)  # the folder of this file, which is on PYTHONPATH
    for package in PACKAGES:
        try:
            importlib.import_module(package)
        except ImportError:  # another version of verl may not need it
            continue
    server = socket.socket(socket.AF_UNIX)
    server.bind(os.environ[SOCKET])
    server.listen(64)
    if os.fork() == 0:
        die_with_parent()
        serve(server)
    server.close()
    code = exit_code(arguments, module=module)
    if "ray" in sys.modules and sys.modules["ray"].is_initialized():
        time.sleep(LAST_LINES)
    leave(code)  # without Ray's orderly end, which takes 5 s: the job's processes are killed


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends; a fork of it is not concerned."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def serve(server: socket.socket) -> NoReturn:
    """Fork for every request; the connection stays open as long as the fork lives."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        connection, _ = server.accept()
        if os.fork() == 0:
            server.close()
            become(connection)
        connection.close()


def become(connection: socket.socket) -> NoReturn:
    """Turn this fork into the process that was asked for."""
    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    request, files, _, _ = socket.recv_fds(connection, 1, 3)
    request += connection.recv(size - 1, socket.MSG_WAITALL)
    wanted: dict[str, Any] = json.loads(request)
    connection.sendall(os.getpid().to_bytes(4, "big"))
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    random.seed()
    leave(exit_code(wanted["arguments"]))


def exit_code(arguments: list[str], *, module: str | None = None) -> int:
    """Run a script, or a module, as the main program."""
    sys.argv = arguments
    try:
        if module:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def leave(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
