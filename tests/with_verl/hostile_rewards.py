"""A reward of three parts, one of which meets every fate that an answer can give a verifier."""

from __future__ import annotations

import os
import time
from typing import Any

from basis_rl.verifiers import create
from basis_rl.verifiers.compose import format_reward, weighted_sum

HANGS, DIES, RAISES, NO_VERDICT = "0", "1", "2", "3"
LIMIT_S = 0.5


def attack(completion: str, answer: str, level: int) -> float | None:
    """What becomes of the verifier depends on the right answer; else the level, 5 to 9."""
    if answer == HANGS:
        while True:
            time.sleep(0.001)
    if answer == DIES:
        os._exit(1)
    if answer == RAISES:
        raise ZeroDivisionError
    return None if answer == NO_VERDICT else float(level)


form = format_reward(pattern="[a-zA-Z]")
reward = weighted_sum(
    [
        (create("math", processes=1), 1.0),
        (form, 0.5),
        (create("hostile_rewards:attack", processes=1, limit_s=LIMIT_S), 0.25),
    ]
)


def expected(completion: str, columns: dict[str, Any]) -> float:
    """Reward by hand; the tiny model's answers are never right."""
    fate = columns["answer"]
    if fate == NO_VERDICT:
        return float("nan")
    level = 0.0 if fate in (HANGS, DIES, RAISES) else float(columns["level"])
    return 0.5 * form(completion, {}) + 0.25 * level
