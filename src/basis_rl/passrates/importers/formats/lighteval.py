"""lighteval: ``details/<model>/<date>/details_<task>_<date>.parquet``.

A row has one number a metric for a document. Usable are ``avg@n``, ``pass@k`` with k = 1, and
metrics of one answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from basis_rl.errors import PassRatesError
from basis_rl.passrates.importers.format import Columns, Format, Rows, has, identity, source_of
from basis_rl.passrates.importers.record import Notes, Options, Record
from basis_rl.passrates.importers.values import measured, number, optional, value_of

# As written now (avg@n:n=4, pass@k:k=1&n=4), and before (pass@1:4_samples).
_SAMPLES = re.compile(r"(?:\bn=|pass@1:)(\d+)")
_PASS = re.compile(r"pass@(?:k:(?:.*\b)?k=)?(\w+)")
_TASK = re.compile(r"details_(.+?)_\d{4}-")


def _rows(rows: Rows, options: Options, notes: Notes) -> Iterator[Record]:
    metric = None
    for row in rows:
        columns, place = row.columns, row.place
        metrics = value_of(columns, "metric", place)
        metric = metric or _metric(metrics, options, place)
        n = _count(metric, columns, place)
        value = value_of(metrics, metric, place)
        task = _TASK.match(row.file.name) if row.file else None
        about = identity(columns, options, place, value_of(columns, "doc.query", place))
        extra = {"completion": optional(columns, "model_response.text")}
        source = source_of(columns, options) or (task.group(1) if task else None)
        if n == 1:
            rewards = [number(value, place, metric)]
            yield Record(place, **about, rewards=rewards, source=source, extra=extra)
        else:
            found = measured(value, "rate", n, place, f"metric {metric}")
            yield Record(
                place,
                **about,
                successes=found.successes,
                n=found.n,
                source=source,
                extra=extra,
            )


def _metric(metrics: Columns, options: Options, place: str) -> str:
    """The metric that is a mean over answers."""
    if options.reward_column is not None:
        value_of(metrics, options.reward_column, place)
        usable = [options.reward_column] if _is_usable(options.reward_column) else []
    else:
        usable = [name for name, value in metrics.items() if value is not None and _is_usable(name)]
    if len(usable) == 1:
        return usable[0]
    raise PassRatesError(
        f"{place} has the metrics {', '.join(metrics)}: of avg@n, pass@k with k=1 and metrics of "
        f"one answer there are {len(usable)} here; name one with --reward-column"
    )


def _is_usable(name: str) -> bool:
    if "maj@" in name or "g-pass@" in name.lower():
        return False
    passes = _PASS.search(name)
    return passes is None or passes.group(1) == "1"


def _count(metric: str, columns: Columns, place: str) -> int:
    samples = _SAMPLES.search(metric)
    if samples:
        return int(samples.group(1))
    answers = value_of(columns, "model_response.text", place)
    return len(answers) if "@" in metric else 1


def _known(files: Sequence[Path], notes: Notes) -> None:
    """Model of a file in ``details/<model>/<date>/``."""
    for file in files:
        parts = file.resolve().parts[:-2]
        if "details" in parts:
            last = len(parts) - 1 - parts[::-1].index("details")
            notes.know(str(file), model="/".join(parts[last + 1 :]) or None)


FORMAT = Format("lighteval", has("doc", "model_response", "metric"), _rows, known=_known)
