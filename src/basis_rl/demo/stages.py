"""Stages of a long run that are done once: a folder each, with its settings and its result."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from basis_rl.files import write_atomically

SETTINGS = "settings.json"
RESULT = "result.json"
Work = Callable[[Path], dict[str, Any]]


@dataclass(frozen=True)
class Done:
    """A finished stage.

    Attributes
    ----------
    result : dict
        JSON types.
    seconds : float
        What it took, over all runs that worked on it.
    reused : bool
        Whether an earlier run had finished it.
    folder : Path
    """

    result: dict[str, Any]
    seconds: float
    reused: bool
    folder: Path


class Stages:
    """Runs stages, or takes over what an earlier run with the same settings has done.

    Parameters
    ----------
    root : Path
        Holds a folder per stage. A stage's folder with other settings is emptied; one without a
        result goes back to the stage's work, which may go on from what it finds there.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(
        self, name: str, settings: dict[str, Any], work: Work, *, outputs: Sequence[str] = ()
    ) -> Done:
        """Result of a stage.

        Parameters
        ----------
        name : str
        settings : dict
            All that the result depends on; JSON types.
        work : callable
            Given the stage's folder, returns the result.
        outputs : sequence of str
            Files or folders that the work leaves in its folder; without them it is done again.
        """
        folder = self.root / name
        if _read(folder / SETTINGS) != settings:
            if folder.exists():
                shutil.rmtree(folder)
            folder.mkdir(parents=True)
            _write(folder / SETTINGS, settings)
        before = _read(folder / RESULT)
        if before is not None and all((folder / output).exists() for output in outputs):
            return Done(before["result"], before["seconds"], True, folder)
        clock = _Clock(folder / "seconds.json")
        try:
            result = work(folder)
        finally:
            seconds = clock.stop()
        _write(folder / RESULT, {"result": result, "seconds": seconds})
        return Done(result, seconds, False, folder)


class _Clock:
    """Seconds of work, added up over interrupted runs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._earlier = float((_read(path) or {"seconds": 0.0})["seconds"])
        self._start = time.perf_counter()

    def stop(self) -> float:
        seconds = self._earlier + time.perf_counter() - self._start
        if self._path.parent.is_dir():
            _write(self._path, {"seconds": seconds})
        return seconds


def _read(path: Path) -> dict[str, Any] | None:
    """Content of a JSON file; None if it is missing or damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _write(path: Path, content: dict[str, Any]) -> None:
    write_atomically(path, json.dumps(content, indent=1).encode() + b"\n")
