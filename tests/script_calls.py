"""Runs a shell script with stand-ins for its programs, which write down how they are called."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_STAND_IN = """#!{python}
import os, sys
with open({log!r}, "ab") as file:
    file.write("\\0".join([{name!r}, *sys.argv[1:]]).encode() + b"\\1")
sys.exit(int(os.environ.get("FAIL") in sys.argv[1:]))
"""


def run_script(
    script: str | Path, folder: Path, *arguments: str, **environment: str
) -> tuple[subprocess.CompletedProcess[str], list[list[str]]]:
    """Run a text or a file; returns how it ended, and the words of basis-rl's and python's calls.

    FAIL=word makes the calls with that word fail.
    """
    tools, log = folder / "bin", folder / "log"
    tools.mkdir(exist_ok=True)
    log.unlink(missing_ok=True)
    for name in ("basis-rl", "python"):
        tool = tools / name
        tool.write_text(_STAND_IN.format(python=sys.executable, log=str(log), name=name))
        tool.chmod(0o755)
    done = subprocess.run(
        ["bash", *(["-s", "--"] if isinstance(script, str) else [str(script)]), *arguments],
        input=script if isinstance(script, str) else "",
        text=True,
        capture_output=True,
        cwd=folder,
        env={**os.environ, **environment, "PATH": f"{tools}:{os.environ['PATH']}"},
        timeout=60,
        check=False,
    )
    raw = log.read_bytes().decode() if log.exists() else ""
    return done, [call.split("\0") for call in raw.split("\1")[:-1]]
