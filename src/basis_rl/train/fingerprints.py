"""Short hashes of what a configuration names, so that a changed file is noticed on resuming."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from basis_rl.passrates import PassRates
from basis_rl.passrates.storage.texts import joined
from basis_rl.prompts import Prompt, column_value
from basis_rl.train.config import RewardItem


def of_prompts(prompts: Sequence[Prompt], items: Sequence[RewardItem]) -> str:
    """Hash of keys, content, sources and right answers, in order.

    A function of the user's may read any column, so all of them count then.
    """
    all_columns = any(":" in item.name for item in items)
    answers = [str(item.answer_column) for item in items]
    digest = hashlib.sha256()
    for prompt in prompts:
        columns = prompt.columns
        read = columns if all_columns else [column_value(columns, name) for name in answers]
        row = [prompt.key, prompt.prompt, prompt.source, read]
        digest.update(json.dumps(row, sort_keys=True, default=str).encode() + b"\n")
    return digest.hexdigest()[:16]


def of_pass_rates(table: PassRates) -> str:
    """Hash of keys, numbers of rollouts, and successes, rewards or rates."""
    digest = hashlib.sha256()
    for piece in joined(table.keys, "\n"):
        digest.update(piece.encode())
    for values in (table.n, table.successes, table.reward_values, table.rates):
        if values is not None:
            digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()[:16]
