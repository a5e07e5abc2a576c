"""Verifiers as verl's reward functions.

This file can be verl's ``custom_reward_function.path`` (``pkg://basis_rl.verifiers.verl_reward``),
with one of its functions as ``.name``: ``math_score``, ``exact_score``, ``choice_score``,
``number_score``, or ``compute_score`` with ``reward_kwargs.verifier``; verl is not imported.

An exception in a reward function makes verl drop the rollout: with its default settings the batch
gets smaller, and only a worker's log says so. So none leaves these functions: a fault of the set-up
is logged and gives no verdict (NaN), of which a run with this package's estimators takes few.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

from basis_rl.errors import BasisError
from basis_rl.prompts.verl_rows import ANSWER, verifier_columns
from basis_rl.verifiers import NamedVerifier, create
from basis_rl.verifiers.verl_names import NAMED, verifier_name

ComputeScore = Callable[..., float]
ANSWER_COLUMN = ANSWER
# verl has many reward workers already: one process for each, started with its first answer.
PROCESSES = 1
_log = logging.getLogger(__name__)
_made: dict[tuple[Any, ...], ComputeScore] = {}
_lock = threading.Lock()


def verl_reward(verifier: NamedVerifier) -> ComputeScore:
    """Make a reward function of verl of a verifier whose answer column is ``answer``.

    Returns
    -------
    callable
        ``compute_score(data_source, solution_str, ground_truth, extra_info=None) -> float``. The
        verifier's columns are the entries of ``extra_info`` and itself, ``data_source``,
        ``ground_truth``, and the ground truth again as ``answer``. NaN where there is no verdict.
    """
    said = _Said(verifier)

    def compute_score(
        data_source: str,
        solution_str: str,
        ground_truth: Any,
        extra_info: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> float:
        columns = verifier_columns(data_source, ground_truth, extra_info)
        columns["extra_info"] = dict(extra_info or {})
        reward = verifier(solution_str, columns)
        said.look()
        return reward

    return compute_score


class _Said:
    """Says in the worker's log how often a verifier has failed: the 1st, 2nd, 4th, … time."""

    def __init__(self, verifier: NamedVerifier) -> None:
        self._verifier, self._next = verifier, 1

    def look(self) -> None:
        failures = self._verifier.failures
        failed = failures.total()
        if failed < self._next:
            return
        self._next = 2 * failed
        causes = ", ".join(f"{count} {cause}" for cause, count in failures.items())
        _log.warning(
            "basis-rl: verifier %r failed on %d of %d completions in this process (reward 0): %s",
            self._verifier.name,
            failed,
            self._verifier.calls,
            causes,
        )


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    verifier: str | None = None,
    limit_s: float | None = None,
    processes: int = PROCESSES,
    **_: Any,
) -> float:
    """Reward of the verifier that ``reward_kwargs.verifier`` names.

    Parameters
    ----------
    data_source, solution_str, ground_truth, extra_info
        From verl.
    verifier : str
        As `verifiers.create` takes it: ``math``, ``reasoning-gym``, ``module:function``, ….
    limit_s : float, optional
        Seconds that an answer may take.
    processes : int
        Of each reward worker.

    Returns
    -------
    float
        NaN where there is no verdict. 0 for an answer that makes the verifier fail or time out.
    """
    return _scored(
        "compute_score",
        {"verifier": verifier, "limit_s": limit_s, "processes": processes},
        (data_source, solution_str, ground_truth, extra_info),
    )


def _named_score(function: str) -> ComputeScore:
    def score(
        data_source: str,
        solution_str: str,
        ground_truth: Any,
        extra_info: Mapping[str, Any] | None = None,
        *,
        limit_s: float | None = None,
        processes: int = PROCESSES,
        **_: Any,
    ) -> float:
        return _scored(
            function,
            {"limit_s": limit_s, "processes": processes},
            (data_source, solution_str, ground_truth, extra_info),
        )

    score.__name__ = score.__qualname__ = function
    score.__doc__ = f"Reward of the verifier ``{NAMED[function]}``."
    return score


choice_score = _named_score("choice_score")
exact_score = _named_score("exact_score")
math_score = _named_score("math_score")
number_score = _named_score("number_score")


def _scored(function: str, options: Mapping[str, Any], from_verl: tuple[Any, ...]) -> float:
    """Reward, or no verdict where the set-up is at fault."""
    key = (function, *options.values())
    try:
        with _lock:  # verl calls from many threads
            if key not in _made:
                name = verifier_name(function, options)
                rest = {n: value for n, value in options.items() if n != "verifier"}
                # The answer is where verl has the ground truth.
                _made[key] = verl_reward(create(name, answer_column=ANSWER_COLUMN, **rest))
        return _made[key](*from_verl)
    except BasisError as error:
        _say_once(str(error))
        return math.nan


_said: set[str] = set()


def _say_once(message: str) -> None:
    if message not in _said and len(_said) < 20:
        _said.add(message)
        _log.error("basis-rl: no verdict: %s", message)
