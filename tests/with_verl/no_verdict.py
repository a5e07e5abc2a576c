"""The reward of `parity`, but for every fifth answer or so the verifier gives no verdict."""

from __future__ import annotations

import math
from typing import Any


def compute_score(data_source: str, solution_str: str, ground_truth: str, **_: Any) -> float:
    codes = sum(map(ord, solution_str))
    return math.nan if codes % 5 == 0 else float(codes % 2)
