"""The record that `BasisTrainer` writes of a training run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from basis_rl.lab.reading.visits import Visits
from basis_rl.passrates import training_record


def detect(row: Mapping[str, Any], path: Path) -> bool:
    """Whether a file's first row is one of a training run."""
    return {"record", "run", "rewards"} <= set(row) or {"step", "part", "keys"} <= set(row)


def read(path: Path, visits: Visits) -> None:
    """Add a training run; rollouts of a prompt in one step by one policy are a visit.

    Raises
    ------
    PassRatesError
        If a line is damaged.
    """
    for batch in training_record.read_record(path):
        place = f"{path}, step {batch.step}"
        sources: Sequence[str | None] = batch.sources or [None] * len(batch.keys)
        for key, reward, source in zip(batch.keys, batch.rewards.tolist(), sources, strict=True):
            visits.add(
                place, key, [reward], step=batch.step, policy=batch.policy_step, source=source
            )
