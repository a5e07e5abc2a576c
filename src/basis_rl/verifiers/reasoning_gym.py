"""The verifier `reasoning-gym`: the score that a generated task gives to an answer."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from basis_rl.errors import ConfigError, nearest
from basis_rl.prompts.columns import column_value
from basis_rl.verifiers.base import Columns, required_column

TASK_COLUMN = "metadata.source_dataset"


class ReasoningGym:
    """Score of the row's task, from 0 to 1: partial credit where the task gives it.

    The answer is what stands in the last ``<answer>`` tags, or the stripped completion without
    them. The row must hold the task's entry (question, answer, metadata).

    Raises
    ------
    ConfigError
        If reasoning-gym is not installed.
    """

    load_first = True  # for a pool: it can be forked

    def __init__(self, answer_column: str) -> None:
        if importlib.util.find_spec("reasoning_gym") is None:
            raise ConfigError("verifier 'reasoning-gym' needs it: pip install reasoning-gym")
        self.answer_column = answer_column
        self.version = version("reasoning-gym")

    def __call__(self, completion: str, columns: Columns) -> float | None:
        """Reward of one completion."""
        from reasoning_gym.utils import extract_answer

        self.check(columns)
        entry = {
            "question": columns.get("question"),
            "answer": column_value(columns, self.answer_column),
            "metadata": columns["metadata"],
        }
        answer = extract_answer(completion)
        score = _score_function(column_value(columns, TASK_COLUMN))
        return float(score(completion.strip() if answer is None else answer, entry))

    def check(self, columns: Columns) -> None:
        """Refuse a row that is no entry of a task."""
        _score_function(required_column(columns, TASK_COLUMN, "reasoning-gym"))
        required_column(columns, self.answer_column, "reasoning-gym")

    def needed(self, columns: Columns) -> Columns:
        """Part of a row that this reads."""
        answer = required_column(columns, self.answer_column, "reasoning-gym")
        names = [name for name in ("question", "metadata") if name in columns]
        return {self.answer_column: answer, **{name: columns[name] for name in names}}

    def warm_up(self) -> None:
        """Load all that judging needs."""
        import reasoning_gym  # noqa: F401
        from reasoning_gym import factory, utils  # noqa: F401


@lru_cache(maxsize=256)
def _score_function(task: str) -> Callable[[str, dict[str, Any]], float]:
    from reasoning_gym.factory import DATASETS, get_score_answer_fn

    if task not in DATASETS:
        raise ConfigError(f"reasoning-gym has no task {task!r}{nearest(task, sorted(DATASETS))}")
    score: Callable[[str, dict[str, Any]], float] = get_score_answer_fn(task)
    return score
