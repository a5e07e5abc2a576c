"""Rows in verl's layout, and the columns that a verifier finds in them.

verl gives a reward function ``data_source``, ``reward_model.ground_truth`` and ``extra_info`` of a
row. A verifier has the same columns wherever it is called: the entries of ``extra_info``,
``data_source``, ``ground_truth``, and the ground truth again as ``answer``. Columns that Parquet
cannot hold as they are (nested ones that differ from row to row, integers beyond 64 bits) stand as
JSON text in ``extra_info.verifier_columns``, where ``{"()": [...]}`` is a tuple and
``{"{}": [[key, value], ...]}`` a dict with other keys than texts: some verifiers tell them apart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from basis_rl.errors import PromptsError

ANSWER = "answer"
PACKED = "verifier_columns"
_TUPLE, _PAIRS = "()", "{}"


def is_verl_row(row: Mapping[str, Any]) -> bool:
    """Whether a row has what verl gives to a reward function."""
    reward_model = row.get("reward_model")
    return isinstance(reward_model, Mapping) and "ground_truth" in reward_model


def verifier_columns(
    data_source: Any, ground_truth: Any, extra_info: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Columns of a verifier, from what verl gives to a reward function."""
    extra = dict(extra_info or {})
    packed = extra.pop(PACKED, None)
    known = {"data_source": data_source, "ground_truth": ground_truth, ANSWER: ground_truth}
    return {**extra, **known, **unpacked(packed)}


def with_verifier_columns(row: dict[str, Any]) -> dict[str, Any]:
    """Row and, where it is in verl's layout, the columns of a verifier; its own are kept."""
    if not is_verl_row(row):
        return row
    extra = row.get("extra_info")
    truth = row["reward_model"]["ground_truth"]
    extra = extra if isinstance(extra, Mapping) else None
    return {**verifier_columns(row.get("data_source"), truth, extra), **row}


def packed(columns: Mapping[str, Any]) -> str:
    """Columns as JSON text.

    Raises
    ------
    PromptsError
        If one is something that JSON does not have.
    """
    texts = {}
    for name, value in columns.items():
        try:
            texts[name] = json.dumps(_plain(value))
        except (TypeError, ValueError, RecursionError) as error:
            raise PromptsError(
                f"column {name!r} ({type(value).__name__}) cannot be passed to a verifier as JSON "
                f"({error}): make it texts, numbers, lists and objects"
            ) from None
    return "{" + ", ".join(f"{json.dumps(name)}: {text}" for name, text in texts.items()) + "}"


def unpacked(text: Any) -> dict[str, Any]:
    """Columns that `packed` has made a text of; none of anything else."""
    if not isinstance(text, str):
        return {}
    try:
        columns = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(columns, dict):
        return {}
    return {name: _restored(value) for name, value in columns.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return {_TUPLE: [_plain(item) for item in value]}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    named = all(isinstance(name, str) for name in value)
    if named and not (len(value) == 1 and ({_TUPLE, _PAIRS} & set(value))):
        return {name: _plain(item) for name, item in value.items()}
    return {_PAIRS: [[_plain(key), _plain(item)] for key, item in value.items()]}


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {_TUPLE}:
        return tuple(_restored(item) for item in value[_TUPLE])
    if value.keys() == {_PAIRS}:
        return {_restored(key): _restored(item) for key, item in value[_PAIRS]}
    return {name: _restored(item) for name, item in value.items()}
