"""lm-eval: ``samples_<task>_<date>.jsonl`` of ``--log_samples``.

A row has one number a metric for a document. With ``repeats`` it is that of the answers that the
filter left; if the filter left one, the other answers have no verdict and are not counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from basis_rl.errors import PassRatesError, nearest
from basis_rl.passrates.importers.format import (
    COMMON,
    Columns,
    Format,
    Rows,
    has,
    identity,
    source_of,
)
from basis_rl.passrates.importers.record import Notes, Options, Record
from basis_rl.passrates.importers.values import optional, rewards_of, value_of

_DATE = re.compile(r"\d{4}-\d\d-\d\dT[\d.-]+")


def _rows(rows: Rows, options: Options, notes: Notes) -> Iterator[Record]:
    metric = options.reward_column
    filters: set[str] = set()
    for row in rows:
        columns, place = row.columns, row.place
        kept = str(columns.get("filter", "none"))
        if options.filter is None and filters and kept not in filters:
            raise PassRatesError(
                f"{place}: filter {kept!r} besides {sorted(filters)[0]!r}: choose one with --filter"
            )
        filters.add(kept)
        if options.filter not in (None, kept):
            notes.dropped["of another filter"] += 1
            continue
        metric = metric or _metric(columns, place)
        _check_metric(columns, metric, place)
        _know_sampling(columns, place, notes)
        answers = _answers(columns, place)
        rewards = rewards_of(value_of(columns, metric, place), place, metric)
        if len(rewards) == 1 and answers > 1:
            raise PassRatesError(
                f"{place}: {metric} is one number for {answers} answers: score them one by one "
                "(a task whose filter keeps one answer), or build the pass rates"
            )
        given = len(value_of(columns, "resps", place)[0])
        if given > len(rewards):
            notes.dropped["without a verdict of their own (repeats)"] += given - len(rewards)
        yield Record(
            place,
            **identity(columns, options, place, _prompt(columns, place)),
            rewards=rewards,
            source=source_of(columns, options, "task_name"),
            rollout=(row.file and row.file.name, columns.get("doc_id")),
            extra={"completion": columns.get("resps"), "ground_truth": columns.get("target")},
        )
    if options.filter is not None and options.filter not in filters:
        raise PassRatesError(f"there is no filter {options.filter!r}: there are {sorted(filters)}")


def _metric(columns: Columns, place: str) -> str:
    names = [str(name) for name in columns.get("metrics", [])]
    if len(names) != 1:
        raise PassRatesError(
            f"{place} has {len(names)} metrics ({', '.join(names)}): name one with --reward-column"
        )
    return names[0]


def _check_metric(columns: Columns, metric: str, place: str) -> None:
    names = [str(name) for name in columns.get("metrics", [])]
    if names and metric not in names and optional(columns, metric) is None:
        close = nearest(metric, names).partition(": known are")[0]
        raise PassRatesError(
            f"{place} has no metric {metric!r}{close}: its metrics are {', '.join(names)}; name "
            "one with --reward-column"
        )


def _answers(columns: Columns, place: str) -> int:
    """How many answers the filter left to the metric."""
    left = value_of(columns, "filtered_resps", place)
    if columns.get("resps") and len(columns["resps"]) > 1:
        return 1  # a choice between requests: together they are one answer
    return len(left[0]) if left and isinstance(left[0], list) else 1


def _prompt(columns: Columns, place: str) -> Any:
    arguments = value_of(columns, "arguments", place)
    first = next(iter(arguments.values())) if isinstance(arguments, dict) else arguments[0]
    return first["arg_0"] if isinstance(first, dict) else first[0]


def _know_sampling(columns: Columns, place: str, notes: Notes) -> None:
    settings = optional(columns, "arguments.gen_args_0.arg_1")
    if not isinstance(settings, dict):
        return
    greedy = settings.get("do_sample") is False
    temperature = 0.0 if greedy else settings.get("temperature")
    notes.know(
        place,
        temperature=None if temperature is None else float(temperature),
        top_p=settings.get("top_p"),
        max_tokens=settings.get("max_gen_toks"),
        stop=list(settings["until"]) if settings.get("until") else None,
    )


def _known(files: Sequence[Path], notes: Notes) -> None:
    """Model and revision of the results file of the same run."""
    for file in files:
        date = _DATE.search(file.name)
        results = file.with_name(f"results_{date.group(0).rstrip('.')}.json") if date else None
        if results is None or not results.exists():
            continue
        try:
            content = json.loads(results.read_bytes())
            config = content["config"]
        except (ValueError, KeyError, TypeError):
            notes.remark(f"{results} cannot be read: the model is taken as unknown")
            continue
        model = (content.get("configs") and optional(config, "model_args.pretrained")) or None
        notes.know(
            str(results),
            model=model or content.get("model_name"),
            revision=config.get("model_sha") or None,
        )


FORMAT = Format(
    "lm-eval",
    has("doc_id", "arguments", "filtered_resps"),
    _rows,
    known=_known,
    takes=COMMON | {"filter"},
)
