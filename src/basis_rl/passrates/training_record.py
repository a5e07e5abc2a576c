"""What a training run saw: the reward of every rollout, step by step.

`BasisTrainer` and the adapter of verl write `NAME` into the output folder, JSON objects a line::

    {"record": 1, "id": "…", "run": {provenance of the run}, "rewards": [[name, weight], …]}
    {"step": 7, "part": 0, "policy_step": 7, "keys": […], "rewards": […], "sources": […] or null}

The first kind starts a session, the second is one generation batch of all processes; ``part``
counts those within a step, and a reward is null where there was no verdict. A run that goes on from
a checkpoint repeats steps: a line makes all earlier ones void that have its step or a later one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from basis_rl.batch import FloatArray
from basis_rl.errors import PassRatesError

NAME = "basis_rewards.jsonl"
FORMAT = 1
# How the writer begins a line, so that a first look need not parse it.
_BEGINNING = re.compile(rb'\{"step": (\d+), "part": (\d+), ')


@dataclass(frozen=True)
class RecordedBatch:
    """One generation batch of a training run.

    Attributes
    ----------
    step, part : int
        Optimizer steps done when it was sampled, and which batch of that step it is, from 0.
    policy_step : int
        Optimizer steps of the policy that sampled it; of the oldest one, if several did.
    keys : list of str, length B
        Prompt of each rollout.
    rewards : float64 array, shape (B,)
        NaN where there was no verdict.
    sources : list of str, length B, or None
    """

    step: int
    part: int
    policy_step: int
    keys: list[str]
    rewards: FloatArray
    sources: list[str] | None


@dataclass(frozen=True)
class RecordedRun:
    """What a record says about its run.

    Attributes
    ----------
    id : str
        Differs from run to run; the same in one that goes on.
    provenance : dict
        Model and sampling settings, as `Provenance.to_dict`.
    rewards : list of (name or None, weight)
        Reward functions.
    steps : (int, int)
        First and last step.
    """

    id: str
    provenance: dict[str, Any]
    rewards: list[tuple[str | None, float]]
    steps: tuple[int, int]


@dataclass(frozen=True)
class _Place:
    step: int
    part: int
    start: int
    line: int


def read_record(
    path: str | os.PathLike[str], *, first: int | None = None, last: int | None = None
) -> Iterator[RecordedBatch]:
    """Generation batches of a training run, in order, each once.

    Parameters
    ----------
    path : path
        The record, or the run's output folder.
    first, last : int, optional
        Steps to read, both ends included.

    Raises
    ------
    PassRatesError
        If there is no record, or a line of it is damaged; the end that a crash cut off is not.
    """
    file = record_path(path)
    _, places = _survey(file)
    low, high = (-1 if first is None else first), (np.inf if last is None else last)
    with file.open("rb") as stream:
        for place in places:
            if low <= place.step <= high:
                stream.seek(place.start)
                yield _batch(stream.readline(), file, place.line)


def read_run(path: str | os.PathLike[str]) -> RecordedRun:
    """Settings and range of steps of a record.

    Raises
    ------
    PassRatesError
        As `read_record`; if the record is empty.
    """
    file = record_path(path)
    headers, places = _survey(file)
    if not places:
        raise PassRatesError(f"{file} has no steps: train with record_rewards=True first")
    before = [header for start, header in headers if start < places[0].start]
    first, newest = (before or [{}])[-1], (headers or [(0, {})])[-1][1]
    return RecordedRun(
        str(first.get("id", "")),
        dict(newest.get("run") or {}),
        [(name, float(weight)) for name, weight in newest.get("rewards") or []],
        (places[0].step, places[-1].step),
    )


def record_path(path: str | os.PathLike[str]) -> Path:
    """Record of a run that is named by its folder or by the record itself.

    Raises
    ------
    PassRatesError
        If there is none.
    """
    file = Path(path)
    file = file / NAME if file.is_dir() else file
    if not file.is_file():
        raise PassRatesError(
            f"no record {file}: name the output folder of a run of BasisTrainer (of verl, "
            "trainer.default_local_dir) with record_rewards=True, or its record"
        )
    return file


def _survey(file: Path) -> tuple[list[tuple[int, dict[str, Any]]], list[_Place]]:
    """Headers with where they start, and the batches that are not void, in order of steps."""
    headers: list[tuple[int, dict[str, Any]]] = []
    places: list[_Place] = []
    start = 0
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.endswith(b"\n"):
                break  # cut off by a crash
            found = _BEGINNING.match(line)
            if found:
                place = _Place(int(found[1]), int(found[2]), start, number)
                while places and (places[-1].step, places[-1].part) >= (place.step, place.part):
                    places.pop()
                places.append(place)
            else:
                headers.append((start, _header(line, file, number)))
            start += len(line)
    return headers, places


def _header(line: bytes, file: Path, number: int) -> dict[str, Any]:
    try:
        header = json.loads(line)
        if header["record"] == FORMAT and isinstance(header["id"], str):
            return {**header}
    except (ValueError, KeyError, TypeError):
        pass
    raise PassRatesError(
        f"{file}, line {number}, is neither a batch nor the beginning of a run: restore the file, "
        "or delete this line"
    )


def _batch(line: bytes, file: Path, number: int) -> RecordedBatch:
    try:
        entry = json.loads(line)
        keys, sources = entry["keys"], entry["sources"]
        rewards = np.array(
            [np.nan if reward is None else reward for reward in entry["rewards"]], dtype=np.float64
        )
        texts = [keys] if sources is None else [keys, sources]
        if any(len(each) != len(rewards) for each in texts) or rewards.ndim != 1:
            raise ValueError("other lengths")
        if not all(isinstance(text, str) for each in texts for text in each):
            raise ValueError("keys that are no texts")
        policy_step = int(entry["policy_step"])
    except (ValueError, KeyError, TypeError) as error:
        raise PassRatesError(
            f"{file}, line {number}, is damaged ({error}): restore the file, or delete this line"
        ) from None
    return RecordedBatch(entry["step"], entry["part"], policy_step, keys, rewards, sources)
