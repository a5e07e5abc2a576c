"""NeMo-RL: ``train_data_step<n>.jsonl`` and ``val_data_step<n>.jsonl``.

Every field of a row is a list of one. ``idx`` counts the rows of a file and names no prompt: the
prompt is the text before the first generated message. In validation files the messages have roles;
in training files they are bare texts, of which the last two of each turn are the answer and the
environment's reply. Files are written anew when a resumed run reaches their step again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from basis_rl.errors import PassRatesError
from basis_rl.passrates.importers.format import Columns, Format, Rows, identity, source_of
from basis_rl.passrates.importers.record import Notes, Options, Prompt, Record
from basis_rl.passrates.importers.values import number, value_of

_NAME = re.compile(r"(?:train|val)_data_step(\d+)\.")


def _detect(columns: Columns) -> bool:
    return (
        all(name in columns for name in ("content", "rewards", "idx"))
        and isinstance(columns["content"], list)
        and isinstance(columns["rewards"], list)
    )


def _step_of(path: Path) -> int | None:
    name = _NAME.match(path.name)
    return int(name.group(1)) if name else None


def _rows(rows: Rows, options: Options, notes: Notes) -> Iterator[Record]:
    kinds: set[bool] = set()
    for row in rows:
        columns, place = row.columns, row.place
        kinds.add("token_ids" in columns)
        if len(kinds) > 1:
            raise PassRatesError(
                f"{place}: training and validation files are mixed: import one file, or a folder "
                "with one kind"
            )
        column = options.reward_column or "rewards"
        if "filtered_rewards" in columns and options.reward_column is None:
            # Dynamic sampling: these are the rewards of the rows that were kept.
            column = "filtered_rewards"
            notes.remark(
                "dynamic sampling left out the prompts whose rollouts all had one reward: the "
                "rates of those kept are biased towards the middle"
            )
        content = _only(value_of(columns, "content", place), place, "content")
        yield Record(
            place,
            **identity(columns, options, place, _prompt(content, columns, place)),
            rewards=[number(_only(value_of(columns, column, place), place, column), place, column)],
            step=row.step,
            source=source_of(columns, options),
            extra={"completion": content},
        )


def _only(values: Any, place: str, what: str) -> Any:
    if not isinstance(values, list) or len(values) != 1:
        raise PassRatesError(f"{place}: {what} is {values!r:.60}: NeMo-RL writes a list of one")
    return values[0]


def _prompt(content: Any, columns: Columns, place: str) -> Prompt:
    if not isinstance(content, list) or not content:
        raise PassRatesError(f"{place}: content is {content!r:.60}: it should list the messages")
    if isinstance(content[0], dict):
        messages = content
        for end, message in enumerate(content):
            if message.get("role") == "assistant":
                messages = content[:end]
                break
        texts = [str(message.get("content", "")) for message in messages]
        # The first message holds the whole prompt with the chat template's marks.
        return "".join(texts)
    turns = _turns(columns)
    end = max(len(content) - 2 * turns, 1) if turns else 1
    return "".join(map(str, content[:end]))


def _turns(columns: Columns) -> int:
    """How often the model spoke: runs of ones in the loss mask."""
    mask = columns.get("token_loss_mask")
    if not isinstance(mask, list) or not mask or not isinstance(mask[0], list):
        return 0
    return sum(1 for spoken, _ in groupby(mask[0]) if spoken)


FORMAT = Format("nemo-rl", _detect, _rows, _step_of)
