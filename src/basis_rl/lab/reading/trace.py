"""Traces: how often each prompt was solved at each of its visits, a line a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from basis_rl.lab.reading.visits import Visits
from basis_rl.lab.record import RecordError
from basis_rl.passrates.importers.read import rows_of

COLUMNS = ("prompt_id", "rollouts_per_visit", "successes_by_visit")


def detect(row: Mapping[str, Any], path: Path) -> bool:
    """Whether a file's first row is one of a trace."""
    return all(name in row for name in COLUMNS)


def read(path: Path, visits: Visits) -> None:
    """Add a trace; its n-th visit is step n, from 1.

    The counts tell no order of a visit's rollouts: they are put into a random one, so that the
    first of them are no better than the others.

    Raises
    ------
    RecordError
        If a line misses a column, or a count is not one of ``rollouts_per_visit``.
    """
    rng = np.random.default_rng(0)
    seen: set[str] = set()
    for place, row in rows_of(path):
        try:
            key, rollouts, successes = (row[name] for name in COLUMNS)
        except KeyError as error:
            raise RecordError(f"{place} has no {error}: each line of a trace has it") from None
        if str(key) in seen:
            raise RecordError(f"{place}: prompt {str(key)!r} has a line before: keep one")
        seen.add(str(key))
        if not _is_whole(rollouts) or rollouts < 1 or not isinstance(successes, list):
            raise RecordError(
                f"{place}: {rollouts!r:.40} rollouts a visit and successes {successes!r:.40}: a "
                "positive number and a list were expected"
            )
        for step, count in enumerate(successes, start=1):
            if not _is_whole(count) or not 0 <= count <= rollouts:
                raise RecordError(
                    f"{place}: visit {step} has {count!r:.40} successes of {rollouts} rollouts: "
                    "mend the line"
                )
            rewards = rng.permutation(rollouts) < count
            visits.add(place, str(key), rewards.astype(float).tolist(), step=step)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
