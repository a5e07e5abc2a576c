"""A reward of 0 or 1 that depends on nothing but the text, for jobs whose model cannot learn."""

from __future__ import annotations

from typing import Any


def compute_score(data_source: str, solution_str: str, ground_truth: str, **_: Any) -> float:
    """1 where the characters' codes add up to an odd number."""
    return float(sum(map(ord, solution_str)) % 2)
