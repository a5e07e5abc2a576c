"""Which verifier a function of `basis_rl.verifiers.verl_reward` stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from basis_rl.errors import ConfigError, nearest

MODULE = "basis_rl.verifiers.verl_reward"
PATH = f"pkg://{MODULE}"
COMPUTE_SCORE = "compute_score"
KWARGS = "reward.custom_reward_function.reward_kwargs"
# Functions of verl_reward with a verifier of their own.
NAMED = {f"{name}_score": name for name in ("choice", "exact", "math", "number")}


def verifier_name(function: str, options: Mapping[str, Any]) -> str:
    """Verifier of a function of `verl_reward`, given its keywords.

    Raises
    ------
    ConfigError
        If there is no such function, or ``compute_score`` has no verifier.
    """
    if function in NAMED:
        return NAMED[function]
    if function != COMPUTE_SCORE:
        known = [*NAMED, COMPUTE_SCORE]
        raise ConfigError(f"{MODULE} has no function {function!r}{nearest(function, known)}")
    name = options.get("verifier")
    if not isinstance(name, str) or not name:
        raise ConfigError(
            f"{MODULE} is asked for compute_score without a verifier: add +{KWARGS}.verifier=math, "
            "or another one"
        )
    return name


def overrides(verifier: str) -> list[str]:
    """Overrides that make a verifier the reward of a run of verl."""
    place = "reward.custom_reward_function"
    functions = {name: function for function, name in NAMED.items()}
    if verifier in functions:
        return [f"{place}.path={PATH}", f"{place}.name={functions[verifier]}"]
    return [f"{place}.path={PATH}", f"+{KWARGS}.verifier={verifier}"]
