"""Means with intervals, and rows of numbers as CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from basis_rl.batch import FloatArray, IntArray
from basis_rl.lab.intervals import clustered_mean

Row = TypeVar("Row")


class Interval(NamedTuple):
    """A mean and its 95% interval."""

    mean: float
    low: float
    high: float


def interval(errors: FloatArray, prompts: IntArray, batches: IntArray) -> Interval:
    """Mean and its 95% interval, clustered by prompt and by batch (see `clustered_mean`).

    The same prompt comes back in many batches, and the rows of a batch share its noise.
    """
    mean = clustered_mean(errors.ravel(), prompts.ravel(), batches.ravel())
    return Interval(mean.value, mean.low, mean.high)


def pick(rows: Sequence[Row], **where: Any) -> list[Row]:
    """Rows whose fields have these values."""
    return [r for r in rows if all(getattr(r, name) == value for name, value in where.items())]


def to_csv(rows: Sequence[Any]) -> bytes:
    """Rows (dataclasses of one type) as a CSV file; numbers in six digits, NaN empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [field.name for field in dataclasses.fields(rows[0])]
    writer.writerow(names)
    writer.writerows([_cell(getattr(row, name)) for name in names] for row in rows)
    return text.getvalue().encode()


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.6g}"
    if isinstance(value, tuple):
        return "; ".join(value)
    return str(value)
