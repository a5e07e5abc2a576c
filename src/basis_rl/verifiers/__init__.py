"""Verifiers: the reward of a completion, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from basis_rl.errors import ConfigError, nearest
from basis_rl.verifiers.base import Columns, NamedVerifier, Verdict, Verifier
from basis_rl.verifiers.rewards import TrlReward, completion_text, trl_reward

if TYPE_CHECKING:
    from basis_rl.verifiers.pool import Pool

__all__ = [
    "NAMES",
    "Columns",
    "NamedVerifier",
    "TrlReward",
    "Verdict",
    "Verifier",
    "completion_text",
    "create",
    "trl_reward",
]

NAMES = ["choice", "exact", "math", "number", "reasoning-gym"]
MATH_LIMIT_S = 5.0
LIMIT_S = 10.0


def create(
    name: str,
    *,
    answer_column: str = "answer",
    processes: int | None = None,
    limit_s: float | None = None,
) -> NamedVerifier:
    """Make a verifier by its name.

    Parameters
    ----------
    name : str
        ``exact`` (stripped text equality), ``choice`` (a letter), ``number`` (the last number),
        ``math`` (math-verify), ``reasoning-gym`` (the task's own score), or ``module:function``,
        called as ``function(completion, **columns)``, or as verl calls it if it has the parameters
        ``solution_str`` and ``ground_truth``. A verifier of a module (a `weighted_sum`, say) is
        taken as it is, with its own name, processes and limits.
    answer_column : str
        Column with the right answer; dots go into nested entries. A function takes columns by
        its parameters' names instead.
    processes : int, optional
        Worker processes of ``math``, ``reasoning-gym`` and functions: one a usable core by
        default. 0 judges in this process, without any limit.
    limit_s : float, optional
        Seconds of processor time an answer may take there, and three times as many of waiting; 5
        for ``math`` and 10 for the others by default. ``exact``, ``choice`` and ``number`` take
        time in proportion to the text, and have no use for either.

    Raises
    ------
    ConfigError
        If the name is unknown, a package is missing, or the function cannot be imported.
    """
    if limit_s is not None and not limit_s > 0:
        raise ConfigError(f"limit_s is {limit_s} for verifier {name!r}: give seconds above 0")
    score: Any
    if ":" in name:
        from basis_rl.verifiers.function import Function, load_function
        from basis_rl.verifiers.verl_function import VerlFunction, is_verl_function

        found: Any = load_function(name)
        if isinstance(found, NamedVerifier):
            return found
        score = VerlFunction(name) if is_verl_function(found) else Function(name)
        if processes != 0 and name.startswith("__main__:"):
            raise ConfigError(
                f"{name!r}: worker processes cannot import a function of the script itself: move "
                "it into a module, or give processes=0 (then it has no time limit)"
            )
        pool = _pool(name, score, processes, limit_s or LIMIT_S)
        return NamedVerifier(name, score.version, score, pool=pool)
    if name in ("exact", "choice", "number"):
        score = _light(name, answer_column)
        return NamedVerifier(name, score.version, score, answer_column=answer_column)
    if name == "math":
        from basis_rl.verifiers.math import Math

        score, default_s = Math(answer_column), MATH_LIMIT_S
    elif name == "reasoning-gym":
        from basis_rl.verifiers.reasoning_gym import ReasoningGym

        score, default_s = ReasoningGym(answer_column), LIMIT_S
    else:
        known = [*NAMES, "module:function"]
        raise ConfigError(f"no verifier is named {name!r}{nearest(name, known)}")
    pool = _pool(name, score, processes, limit_s or default_s)
    return NamedVerifier(name, score.version, score, answer_column=answer_column, pool=pool)


def _light(name: str, answer_column: str) -> Any:
    if name == "exact":
        from basis_rl.verifiers.exact import Exact

        return Exact(answer_column)
    if name == "choice":
        from basis_rl.verifiers.choice import Choice

        return Choice(answer_column)
    from basis_rl.verifiers.number import Number

    return Number(answer_column)


def _pool(name: str, score: Any, processes: int | None, limit_s: float) -> Pool | None:
    if processes == 0:
        return None
    try:
        from basis_rl.verifiers.limits import Limits
        from basis_rl.verifiers.pool import Pool, usable_cores
    except ModuleNotFoundError as error:  # fcntl, resource
        raise ConfigError(
            f"verifier {name!r}: worker processes need Linux or macOS (no module {error.name!r} "
            "here): give processes=0 (then it has no limits)"
        ) from error

    return Pool(name, score, usable_cores() if processes is None else processes, Limits(limit_s))
