"""evalplus: ``*_eval_results.json``; the key is the task's id.

A sample is right if it passes the base tests and, where they ran, the extra ones. With
``reward_column="base"`` the base tests alone decide, with ``"plus"`` both must have run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from basis_rl.errors import PassRatesError
from basis_rl.passrates.importers.format import Columns, Format, Rows
from basis_rl.passrates.importers.record import Notes, Options, Record


def _detect(columns: Columns) -> bool:
    tasks = columns.get("eval")
    if not isinstance(tasks, dict) or not tasks:
        return False
    first = next(iter(tasks.values()))
    return isinstance(first, list) and all(
        isinstance(s, dict) and "base_status" in s for s in first
    )


def _rows(rows: Rows, options: Options, notes: Notes) -> Iterator[Record]:
    tests = options.reward_column
    if tests not in (None, "base", "plus"):
        raise PassRatesError(f"reward_column is {tests!r}: evalplus has base and plus")
    file_of: dict[str, str] = {}
    for row in rows:
        tasks = row.columns.get("eval")
        if not isinstance(tasks, dict):
            raise PassRatesError(f"{row.place} has no results under 'eval'")
        for task, samples in tasks.items():
            if task in file_of:
                raise PassRatesError(
                    f"{row.place} and {file_of[task]} both have {task}, of two policies or "
                    "settings: name one of these files"
                )
            file_of[task] = row.place
            for number, sample in enumerate(samples):
                place = f"{row.place}, {task}, sample {number}"
                reward = _reward(sample, tests, place)
                extra = {"completion": sample.get("solution")}
                yield Record(place, key=str(task), rewards=[reward], extra=extra)


def _reward(sample: Any, tests: str | None, place: str) -> float | None:
    if not isinstance(sample, dict) or "base_status" not in sample:
        raise PassRatesError(f"{place} has no base_status: run evalplus.evaluate again")
    base, plus = sample["base_status"], sample.get("plus_status")
    if base is None or (tests == "plus" and plus is None):
        return None
    wanted = [base] if tests == "base" or plus is None else [base, plus]
    return float(all(status == "pass" for status in wanted))


FORMAT = Format("evalplus", _detect, _rows, takes=frozenset({"reward_column"}))
