"""Verifiers: the reward of a completion, by name."""

from __future__ import annotations

from basis_rl.errors import ConfigError, nearest
from basis_rl.verifiers.base import Columns, NamedVerifier, Verifier
from basis_rl.verifiers.rewards import TrlReward, completion_text, trl_reward

__all__ = [
    "NAMES",
    "Columns",
    "NamedVerifier",
    "TrlReward",
    "Verifier",
    "completion_text",
    "create",
    "trl_reward",
]

NAMES = ["exact", "math", "reasoning-gym"]


def create(name: str, *, answer_column: str = "answer") -> NamedVerifier:
    """Make a verifier by its name.

    Parameters
    ----------
    name : str
        ``exact`` (stripped text equality), ``math`` (math-verify), ``reasoning-gym`` (the task's
        own score), or ``module:function``, called as ``function(completion, **columns)``.
    answer_column : str
        Column with the right answer; dots go into nested entries. A function takes columns by
        its parameters' names instead.

    Raises
    ------
    ConfigError
        If the name is unknown, a package is missing, or the function cannot be imported.
    """
    if ":" in name:
        from basis_rl.verifiers.function import Function

        function = Function(name)
        return NamedVerifier(name, function.version, function)
    if name == "exact":
        from basis_rl.verifiers import exact

        return NamedVerifier(
            name, exact.VERSION, exact.Exact(answer_column), answer_column=answer_column
        )
    if name == "math":
        from basis_rl.verifiers.math import Math

        judge = Math(answer_column)
        return NamedVerifier(name, judge.version, judge, answer_column=answer_column)
    if name == "reasoning-gym":
        from basis_rl.verifiers.reasoning_gym import ReasoningGym

        scorer = ReasoningGym(answer_column)
        return NamedVerifier(name, scorer.version, scorer, answer_column=answer_column)
    raise ConfigError(f"no verifier is named {name!r}{nearest(name, [*NAMES, 'module:function'])}")
