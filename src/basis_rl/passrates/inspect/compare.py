"""Whether a table of pass rates was made with a run's model, verifier and settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from basis_rl.passrates.provenance import Difference, Provenance

# Last parts of paths that many models share.
_NO_MODEL = re.compile(r"final|checkpoint-\d+|[0-9a-f]{40}")


@dataclass(frozen=True)
class Reward:
    """A reward function of a run.

    Attributes
    ----------
    name : str or None
        ``module:function``, or a verifier's name; None if it has none.
    weight : float
    also : tuple of str
        Other names by which the same function may be known.
    """

    name: str | None
    weight: float = 1.0
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = self.name or "an unnamed function"
        return name if self.weight == 1 else f"{self.weight:g} x {name}"


def differences(
    cached: Provenance, run: Provenance, rewards: Sequence[Reward] | None
) -> list[Difference]:
    """Settings known to both sides in which a run differs from what made a table, errors first.

    Parameters
    ----------
    cached, run : Provenance
    rewards : sequence of Reward, optional
        The run's reward functions, if they are known; ``run.verifier`` is not looked at.
    """
    found = cached.differences(run.replace(verifier=None))
    name = cached.verifier
    if rewards is not None and name is not None and not is_verifier(name, rewards):
        shown = " + ".join(str(reward) for reward in rewards)
        found.append(Difference("verifier", name, shown, True))
    found = [d for d in found if d.name != "model" or not same_model(str(d.cached), str(d.run))]
    if not same_model(cached.model or "", run.model or ""):
        # Revisions of different models cannot be compared.
        found = [d for d in found if d.name != "revision"]
    return sorted(found, key=lambda difference: not difference.is_error)


def untold(cached: Provenance, run: Provenance) -> list[str]:
    """Settings that cannot be compared, since the table does not tell them.

    Of a revision and a longest completion only where the run has one.
    """
    names = ["model", "verifier", "temperature"]
    names += [name for name in ("revision", "max_tokens") if getattr(run, name) is not None]
    return [name for name in names if getattr(cached, name) is None]


def same_model(one: str, other: str) -> bool:
    """Whether two names mean the same model.

    Two hub names are compared whole; a folder is compared with a hub name or with another folder
    by its last part, as a model may have been copied. Where that part is no name of a model
    (``final``, ``checkpoint-100``, a snapshot of the hub), by the last two.
    """
    if _is_hub_name(one) and _is_hub_name(other):
        return one == other
    ends = [Path(name).parts[-1:] for name in (one, other)]
    if any(end and _NO_MODEL.fullmatch(end[0]) for end in ends):
        ends = [Path(name).parts[-2:] for name in (one, other)]
    return ends[0] == ends[1]


def _is_hub_name(name: str) -> bool:
    owner, slash, model = name.partition("/")
    plain = bool(slash and owner and model) and "/" not in model and owner not in (".", "..", "~")
    return plain and not Path(name).is_dir()


def is_sum(rewards: Sequence[Reward]) -> bool:
    """Whether the reward is not what one verifier says."""
    return len(rewards) != 1 or rewards[0].weight != 1


def is_verifier(verifier: str, rewards: Sequence[Reward]) -> bool:
    """Whether a table's verifier (``math``, or ``math + 0.5 x mine:digit``) is a run's reward.

    An unnamed function may be any.
    """
    if not is_sum(rewards) and rewards[0].name == verifier:  # one that is composed of others
        return True
    left = list(rewards)
    for part in verifier.split(" + "):
        weight, times, name = part.partition(" x ")
        if not times:
            weight, name = "1", part
        fits = (r for r in left if f"{r.weight:g}" == weight and _is_function(name, r))
        reward = next(fits, None)
        if reward is None:
            return False
        left.remove(reward)
    return not left


def _is_function(name: str, reward: Reward) -> bool:
    return any(_same_function(name, known) for known in (reward.name, *reward.also))


def _same_function(one: str, other: str | None) -> bool:
    if other is None or (":" in one and ":" in other):
        return other is None or one == other
    return one.rpartition(":")[2] == other.rpartition(":")[2]
