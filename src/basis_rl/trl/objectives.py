"""Policy objectives by name, as settings of TRL's loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from basis_rl.batch import BoolArray, FloatArray
from basis_rl.errors import ConfigError, nearest

GPG_SCALES = ("paper", "none", "verl-nonzero")
# Losses that divide by the number of rows; the others divide by a number of tokens.
ROW_NORMALISED = ("grpo", "sapo", "dr_grpo", "luspo")

# What TRL uses where neither the user nor an objective says anything.
_TRL_DEFAULTS = {
    "loss_type": "dapo",
    "importance_sampling_level": "token",
    "epsilon": 0.2,
    "epsilon_high": None,
    "mask_truncated_completions": False,
}


@dataclass(frozen=True)
class Objective:
    """One objective.

    Attributes
    ----------
    fixed : dict
        TRL settings that make the objective what it is.
    defaults : dict
        Published settings that a user may change.
    ratio : bool
        Whether the loss has an importance ratio; without one nothing can be clipped.
    """

    fixed: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    ratio: bool = True


# arXiv: GRPO 2402.03300, GPG 2504.02546, GSPO 2507.18071, DAPO 2503.14476, Dr.GRPO 2503.20783.
OBJECTIVES = {
    "grpo": Objective({"loss_type": "grpo", "importance_sampling_level": "token"}),
    "gpg": Objective({"loss_type": "dapo", "importance_sampling_level": "token"}, ratio=False),
    "gspo": Objective(
        {"loss_type": "grpo", "importance_sampling_level": "sequence"},
        {"epsilon": 3e-4, "epsilon_high": 4e-4},
    ),
    "dapo": Objective(
        {"loss_type": "dapo", "importance_sampling_level": "token"},
        {"epsilon_high": 0.28, "mask_truncated_completions": True},
    ),
    "dr_grpo": Objective({"loss_type": "dr_grpo", "importance_sampling_level": "token"}),
}
_NEEDS_RATIO = ("epsilon", "epsilon_high", "delta", "off_policy_mask_threshold")


def resolve(name: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """TRL's loss settings for an objective.

    Parameters
    ----------
    name : str or None
        Key of `OBJECTIVES`; None leaves TRL's own settings.
    given : dict
        The user's values; None means not given.

    Returns
    -------
    dict
        Values for ``loss_type``, ``importance_sampling_level``, ``epsilon``, ``epsilon_high`` and
        ``mask_truncated_completions``.

    Raises
    ------
    ConfigError
        If the objective is unknown, or a given value makes another objective of it.
    """
    chosen = {key: given[key] for key in _TRL_DEFAULTS if given.get(key) is not None}
    if name is None:
        return {**_TRL_DEFAULTS, **chosen}
    if not isinstance(name, str) or name not in OBJECTIVES:
        raise ConfigError(
            f"objective is {name!r}{nearest(str(name), sorted(OBJECTIVES))}; None keeps TRL's own"
        )
    objective = OBJECTIVES[name]
    for key, value in objective.fixed.items():
        if key in chosen and chosen[key] != value:
            raise ConfigError(
                f"{key}={chosen[key]!r} contradicts objective={name!r}, which has {key}={value!r}: "
                f"leave {key} out, or set objective=None to choose the loss yourself"
            )
    if not objective.ratio:
        for key in _NEEDS_RATIO:
            if given.get(key) is not None:
                raise ConfigError(
                    f"{key}={given[key]!r} contradicts objective={name!r}, which has no importance "
                    f"ratio to clip: leave {key} out, or choose another objective"
                )
    return {**_TRL_DEFAULTS, **objective.defaults, **chosen, **objective.fixed}


def gpg_factor(
    scale: str, keys: list[str], rewards: FloatArray, advantages: FloatArray, rollouts: int
) -> float:
    """GPG's factor α on the advantages.

    ``paper``: α = B / (B - M), where M of the B rollouts are in groups whose advantages are all
    zero; 1 at one rollout per prompt, where there are no groups. ``verl-nonzero``: α =
    B / (number of rewards that are not zero), what verl computes; with 0/1 rewards it divides by
    the accuracy. ``none``: α = 1.

    Parameters
    ----------
    scale : str
        One of `GPG_SCALES`.
    keys : list of str, length B
    rewards, advantages : float64 array, shape (B,)
        NaN rewards are left out.
    rollouts : int
        Rollouts per prompt.

    Returns
    -------
    float
        At least 1.

    References
    ----------
    GPG, arXiv 2504.02546, Eq. 7 and 8; verl, ``compute_gpg_outcome_advantage``.
    """
    verified: BoolArray = ~np.isnan(rewards)
    total = int(verified.sum())
    if scale == "verl-nonzero":
        return total / max(int(np.count_nonzero(rewards[verified])), 1)
    if scale == "none" or rollouts == 1:
        return 1.0
    groups = np.unique(np.array(keys), return_inverse=True)[1]
    largest = np.zeros(groups.max() + 1)
    np.maximum.at(largest, groups[verified], np.abs(advantages[verified]))
    # Group means of equal rewards differ from them by rounding.
    silent = int((largest[groups[verified]] < 1e-12).sum())
    return total / (total - silent) if silent < total else 1.0
