"""verifiers before v1: ``results.jsonl``, one rollout a line.

A rollout that ended in an error has reward 0 there; here it is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from basis_rl.passrates.importers.format import Format, Rows, has, identity, source_of
from basis_rl.passrates.importers.record import Notes, Options, Record
from basis_rl.passrates.importers.values import number, value_of


def _rows(rows: Rows, options: Options, notes: Notes) -> Iterator[Record]:
    column = options.reward_column or "reward"
    for row in rows:
        columns, place = row.columns, row.place
        reward = number(value_of(columns, column, place), place, column)
        prompt = value_of(columns, "prompt", place)
        about = identity(columns, options, place, prompt)
        if about["key"] is None and about["prompt"] is None:
            about["key"] = str(columns["example_id"])
        yield Record(
            place,
            **about,
            rewards=[None if columns.get("error") is not None else reward],
            source=source_of(columns, options),
            extra={"completion": columns.get("completion"), "ground_truth": columns.get("answer")},
        )


def _known(files: Sequence[Path], notes: Notes) -> None:
    """Model and sampling of the ``metadata.json`` beside the results."""
    for file in files:
        metadata = file.with_name("metadata.json")
        if not metadata.exists():
            continue
        try:
            content = json.loads(metadata.read_bytes())
            sampling = content.get("sampling_args") or {}
        except (ValueError, AttributeError):
            notes.remark(f"{metadata} cannot be read: the model is taken as unknown")
            continue
        temperature = sampling.get("temperature")
        notes.know(
            str(metadata),
            model=content.get("model"),
            temperature=None if temperature is None else float(temperature),
            top_p=sampling.get("top_p"),
            max_tokens=sampling.get("max_tokens") or sampling.get("max_completion_tokens"),
        )


FORMAT = Format(
    "verifiers-results", has("example_id", "prompt", "completion", "reward"), _rows, known=_known
)
