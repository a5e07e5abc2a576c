"""The reward of `digit_task`, as verl calls it and as `basis-rl cache build` does."""

from __future__ import annotations

from typing import Any


def score(solution_str: str, ground_truth: str, **_: Any) -> float:
    """1 for one digit, nothing else, that is at least the ground truth."""
    one_digit = len(solution_str) == 1 and solution_str in "0123456789"
    return float(one_digit and solution_str >= ground_truth)
