"""Verifiers as verl's reward functions.

This file can be verl's ``custom_reward_function.path``, with one of its functions as ``.name``
(``math_score``, ``exact_score``, ``choice_score``, ``number_score``); verl is not imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from basis_rl.verifiers import NamedVerifier, create

ComputeScore = Callable[..., float]
ANSWER_COLUMN = "answer"


def verl_reward(verifier: NamedVerifier) -> ComputeScore:
    """Make a reward function of verl of a verifier whose answer column is ``answer``.

    Returns
    -------
    callable
        ``compute_score(data_source, solution_str, ground_truth, extra_info=None) -> float``. The
        verifier's columns are the entries of ``extra_info``, ``data_source``, ``ground_truth``, and
        the ground truth again as ``answer``. NaN where there is no verdict.
    """

    def compute_score(
        data_source: str,
        solution_str: str,
        ground_truth: Any,
        extra_info: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> float:
        columns = {
            **(extra_info or {}),
            "data_source": data_source,
            "ground_truth": ground_truth,
            ANSWER_COLUMN: ground_truth,
        }
        return verifier(solution_str, columns)

    return compute_score


@lru_cache
def _named(name: str) -> ComputeScore:
    # verl has many reward workers already: one process for each, started with its first answer.
    return verl_reward(create(name, answer_column=ANSWER_COLUMN, processes=1))


def math_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None, **_: Any
) -> float:
    """Reward of the verifier ``math``."""
    return _named("math")(data_source, solution_str, ground_truth, extra_info)


def exact_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None, **_: Any
) -> float:
    """Reward of the verifier ``exact``."""
    return _named("exact")(data_source, solution_str, ground_truth, extra_info)


def choice_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None, **_: Any
) -> float:
    """Reward of the verifier ``choice``."""
    return _named("choice")(data_source, solution_str, ground_truth, extra_info)


def number_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None, **_: Any
) -> float:
    """Reward of the verifier ``number``."""
    return _named("number")(data_source, solution_str, ground_truth, extra_info)
