"""The verifier `exact`: the completion is the answer, up to white space at its ends."""

from __future__ import annotations

import math

from basis_rl.verifiers.base import Columns, required_answer

VERSION = "1"


class Exact:
    """Reward 1 if the stripped completion equals the stripped answer, else 0.

    Answers that are numbers are compared as Python writes them; a whole float (data-set
    libraries make them of integers) as an integer: 3.0 is ``3``. No answer, no verdict.
    """

    version = VERSION

    def __init__(self, answer_column: str) -> None:
        self.answer_column = answer_column

    def __call__(self, completion: str, columns: Columns) -> float | None:
        """Reward of one completion, None if the row's answer is None."""
        answer = required_answer(columns, self.answer_column, "exact")
        return None if answer is None else float(completion.strip() == answer_text(answer))

    def check(self, columns: Columns) -> None:
        """Refuse a row without a usable answer column."""
        required_answer(columns, self.answer_column, "exact")

    def needed(self, columns: Columns) -> Columns:
        """Part of a row that this reads."""
        return {self.answer_column: required_answer(columns, self.answer_column, "exact")}


def answer_text(answer: str | float) -> str:
    """Text of an answer that may be a number."""
    if isinstance(answer, float) and math.isfinite(answer) and answer == int(answer):
        answer = int(answer)
    return str(answer).strip()
