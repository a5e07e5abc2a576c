"""What each setting of `BasisConfig` may be."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from typing import Any

from basis_rl.errors import ConfigError
from basis_rl.trl import objectives

MISMATCHES = ("model", "revision", "verifier")


def _whole(least: int, *, none: bool = False) -> tuple[Callable[[Any], bool], str]:
    def fits(value: Any) -> bool:
        if value is None:
            return none
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    return fits, f"a whole number of at least {least}" + (" or None" if none else "")


def _number(
    low: float,
    high: float = math.inf,
    *,
    open_low: bool = False,
    none: bool = False,
) -> tuple[Callable[[Any], bool], str]:
    def fits(value: Any) -> bool:
        if value is None:
            return none
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return (
            math.isfinite(value) and (low < value if open_low else low <= value) and value <= high
        )

    wanted = f"a number {'above' if open_low else 'of at least'} {low:g}"
    if high < math.inf:
        wanted += f" and at most {high:g}"
    return fits, wanted + (" or None" if none else "")


def _one_of(*choices: Any) -> tuple[Callable[[Any], bool], str]:
    shown = [repr(choice) for choice in choices]
    return (
        lambda value: any(value is choice or value == choice for choice in choices),
        f"{', '.join(shown[:-1])} or {shown[-1]}",
    )


def _text(*, none: bool = False) -> tuple[Callable[[Any], bool], str]:
    def fits(value: Any) -> bool:
        return none if value is None else isinstance(value, str) and value != ""

    return fits, "a non-empty string" + (" or None" if none else "")


RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "num_generations": _whole(1),
    "num_generations_eval": _whole(1, none=True),
    "per_device_train_batch_size": _whole(1),
    "per_device_eval_batch_size": _whole(1),
    "gradient_accumulation_steps": _whole(1),
    "steps_per_generation": _whole(1, none=True),
    "generation_batch_size": _whole(1, none=True),
    "num_iterations": _whole(1),
    "max_completion_length": _whole(1),
    "max_zero_batches": _whole(0),
    "learning_rate": _number(0),
    "temperature": _number(0, open_low=True),
    "top_p": _number(0, 1, open_low=True),
    "beta": _number(0),
    "epsilon": _number(0, none=True),
    "epsilon_high": _number(0, none=True),
    "min_coverage": _number(0, 1, none=True),
    "importance_sampling_level": _one_of("token", "sequence", None),
    "loss_type": _one_of(
        "grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo", None
    ),
    "scale_rewards": _one_of("none", "batch", "group", True, False),
    "normalize_advantages": _one_of("none", "batch", "tokens"),
    "prompt_sampler": _one_of("spread", None),
    "mask_truncated_completions": _one_of(True, False, None),
    "plain_logits": _one_of(True, False, None),
    "record_rewards": _one_of(True, False),
    "gpg_scale": _one_of(*objectives.GPG_SCALES),
    "estimator": _text(),
    "pass_rates": _text(none=True),
    "prompt_key_column": _text(none=True),
    "prompt_source_column": _text(none=True),
    "allow_mismatch": (
        lambda value: isinstance(value, list | tuple),
        f"a list of names out of {', '.join(MISMATCHES)}",
    ),
}


def check_scaling(scale_rewards: Any, normalize_advantages: str) -> None:
    """Refuse two scalings of the advantages, and those within groups.

    Raises
    ------
    ConfigError
    """
    if scale_rewards in (True, "group"):
        raise ConfigError(
            f"scale_rewards={scale_rewards!r} scales within groups, but advantages come from the "
            "estimator: use 'none' or 'batch', or estimator='group-mean' with "
            "estimator_options={'std': True}"
        )
    if scale_rewards == "batch" and normalize_advantages != "none":
        raise ConfigError(
            f"scale_rewards='batch' and normalize_advantages={normalize_advantages!r} both scale "
            "the advantages: leave one of them out"
        )


def check_scaled_once(estimator: str, std: bool, scale_rewards: Any, normalize: str) -> None:
    """Refuse to scale advantages that the estimator divides by a deviation itself.

    Raises
    ------
    ConfigError
    """
    given = {"scale_rewards": scale_rewards, "normalize_advantages": normalize}
    for name, value in given.items():
        if std and value in ("batch", "tokens"):
            raise ConfigError(
                f"estimator={estimator!r} divides its advantages by a deviation, and "
                f"{name}={value!r} would again: leave {name} out, or set "
                "estimator_options={'std': False}"
            )


def keywords(name: str, given: Any, example: str) -> dict[str, Any] | None:
    """Keywords given as a dict or, on a command line, as JSON text.

    Raises
    ------
    ConfigError
        If they are neither.
    """
    if isinstance(given, str):
        with contextlib.suppress(ValueError):  # reported below
            given = json.loads(given)
    if given is not None and not (
        isinstance(given, dict) and all(isinstance(key, str) for key in given)
    ):
        raise ConfigError(f"{name} is {given!r}: use a dict of keywords, such as {example}")
    return given
