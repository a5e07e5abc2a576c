"""Checkpoints that a run can go on from; half-written ones are passed over."""

from __future__ import annotations

import json
import re
import struct
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from basis_rl.errors import ConfigError

FINAL = "final"
_NAME = re.compile(r"checkpoint-(\d+)")
_STATE = "trainer_state.json"


@dataclass(frozen=True)
class Found:
    """What an output folder holds.

    Attributes
    ----------
    newest : Path, optional
        Complete checkpoint with the highest step.
    step : int
        Its step; 0 without one.
    skipped : dict of Path to str
        Later checkpoints that are incomplete, each with the reason.
    """

    newest: Path | None = None
    step: int = 0
    skipped: dict[Path, str] = field(default_factory=dict)


def find(output_dir: str | Path) -> Found:
    """Newest complete checkpoint of a folder, which need not exist.

    Raises
    ------
    ConfigError
        If the output folder is a file.
    """
    folder = Path(output_dir)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"output_dir {folder} is a file: name a folder")
    skipped: dict[Path, str] = {}
    for step, path in sorted(_checkpoints(folder), reverse=True):
        reason = what_is_missing(path, step)
        if reason is None:
            return Found(path, step, skipped)
        skipped[path] = reason
    return Found(skipped=skipped)


def has_results(output_dir: str | Path) -> bool:
    """Whether a run has left a model or a checkpoint, complete or not, in a folder."""
    folder = Path(output_dir)
    return (folder / FINAL).is_dir() or bool(_checkpoints(folder))


def _checkpoints(folder: Path) -> list[tuple[int, Path]]:
    if not folder.is_dir():
        return []
    matches = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir() if path.is_dir()]
    return [(int(match.group(1)), path) for match, path in matches if match]


def what_is_missing(checkpoint: Path, step: int) -> str | None:
    """Why training cannot go on from a checkpoint, or None if it can.

    The trainer writes weights, optimizer, scheduler, random state and its own state, in this
    order. A kill can cut any of them short, so each is opened as far as is cheap.
    """
    try:
        state = json.loads((checkpoint / _STATE).read_text(encoding="utf-8"))
        if state["global_step"] != step:
            return f"{_STATE} is of step {state['global_step']}"
    except (OSError, ValueError, KeyError, TypeError):
        return f"{_STATE} is missing or cut short"
    weights = [*checkpoint.rglob("*.safetensors"), *checkpoint.glob("pytorch_model*.bin")]
    sharded_state = [path for path in checkpoint.glob("global_step*") if path.is_dir()]
    sharded_state += [path for path in checkpoint.glob("pytorch_model_fsdp*") if path.is_dir()]
    if not weights and not sharded_state:
        return "it has no weights"
    for path in weights:
        if not _is_whole(path):
            return f"{path.name} is cut short"
    for index in checkpoint.glob("*.index.json"):
        missing = _missing_shards(index)
        if missing:
            return missing
    for name in ("optimizer.pt", "scheduler.pt"):
        path = checkpoint / name
        if not sharded_state and not path.exists():
            return f"it has no {name}"
        if path.exists() and not zipfile.is_zipfile(path):
            return f"{name} is cut short"
    for path in sorted(checkpoint.glob("basis_s*.*")):  # of the estimator, of the prompt sampler
        if not (zipfile.is_zipfile(path) if path.suffix == ".npz" else _is_json(path)):
            return f"{path.name} is cut short"
    random_states = list(checkpoint.glob("rng_state*.pth"))
    if not random_states:
        return "it has no rng_state"
    return next(
        (f"{p.name} is cut short" for p in random_states if not zipfile.is_zipfile(p)), None
    )


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def _missing_shards(index: Path) -> str | None:
    try:
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError):
        return f"{index.name} is cut short"
    return next(
        (f"{name} is missing" for name in sorted(shards) if not (index.parent / name).exists()),
        None,
    )


def _is_whole(path: Path) -> bool:
    if path.suffix == ".bin":
        return zipfile.is_zipfile(path)
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        ends = [
            entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"
        ]
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        struct.error,
        MemoryError,
        OverflowError,
    ):
        return False
    return bool(path.stat().st_size == 8 + length + max(ends, default=0))
