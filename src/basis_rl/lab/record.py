"""`RewardRecord`: what rewards were had for which prompts, in time order."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from basis_rl.batch import FloatArray, IntArray
from basis_rl.errors import BasisError
from basis_rl.passrates.table import PassRates


class RecordError(BasisError):
    """A record of rewards that cannot be read or does not hold what is asked of it."""


@dataclass(frozen=True)
class RewardRecord:
    """Rewards by visit: a prompt's rollouts under one policy.

    Attributes
    ----------
    keys : list of str, length P
        Prompts.
    prompt : int array, shape (V,)
        Prompt of each visit. Visits are in time order.
    step : int array, shape (V,)
        Training step of each visit, never falling.
    starts : int array, shape (V + 1,)
        The rewards of visit v are ``rewards[starts[v]:starts[v + 1]]``, at least one.
    rewards : float64 array, shape (R,)
        Without NaN: rollouts without a verdict are left out where a record is read.
    lengths : float64 array, shape (R,), optional
        Completion lengths in tokens.
    sources : list of str, length P, optional
    pass_rates : PassRates, optional
        Rollouts under the reference policy, none of which is among ``rewards``; without it, a
        replay makes a cache of the first visits.
    name : str
        How pages and errors call the record.

    Raises
    ------
    RecordError
        If shapes contradict each other, a reward is not finite, or steps fall.
    """

    keys: list[str]
    prompt: IntArray
    step: IntArray
    starts: IntArray
    rewards: FloatArray
    lengths: FloatArray | None = field(default=None, kw_only=True)
    sources: list[str] | None = field(default=None, kw_only=True)
    pass_rates: PassRates | None = field(default=None, kw_only=True)
    name: str = field(default="record", kw_only=True)

    def __post_init__(self) -> None:
        visits = len(self.prompt)
        if visits == 0:
            raise RecordError(f"{self.name} holds no rewards: nothing can be replayed")
        if self.step.shape != (visits,) or self.starts.shape != (visits + 1,):
            raise RecordError(
                f"{self.name}: {visits} visits, {self.step.shape} steps and {self.starts.shape} "
                "starts: one step a visit, and one start more"
            )
        if self.starts[0] != 0 or self.starts[-1] != len(self.rewards):
            raise RecordError(f"{self.name}: the visits' starts do not span the rewards")
        if (np.diff(self.starts) < 1).any():
            raise RecordError(f"{self.name}: a visit without rewards")
        if self.prompt.min() < 0 or self.prompt.max() >= len(self.keys):
            raise RecordError(f"{self.name}: a visit of a prompt that is not in the list of keys")
        if (np.diff(self.step) < 0).any():
            raise RecordError(f"{self.name}: steps fall; visits are in time order")
        if not np.isfinite(self.rewards).all():
            raise RecordError(f"{self.name}: a reward is not finite; leave such rollouts out")
        if self.lengths is not None and self.lengths.shape != self.rewards.shape:
            raise RecordError(f"{self.name}: {self.lengths.shape} lengths for the rewards")
        if self.sources is not None and len(self.sources) != len(self.keys):
            raise RecordError(f"{self.name}: {len(self.sources)} sources for the prompts")

    def __repr__(self) -> str:
        counted = [
            f"{number:,} {what}{'' if number == 1 else 's'}"
            for number, what in (
                (len(self.keys), "prompt"),
                (len(self), "visit"),
                (len(self.rewards), "reward"),
            )
        ]
        steps = f"steps {self.step[0]} to {self.step[-1]}"
        return f"RewardRecord({self.name!r}: {', '.join(counted)}, {steps})"

    def __len__(self) -> int:
        return len(self.prompt)

    @property
    def counts(self) -> IntArray:
        """Rollouts of each visit, shape (V,)."""
        return np.diff(self.starts)

    @property
    def is_binary(self) -> bool:
        """Whether every reward is 0 or 1."""
        return bool(((self.rewards == 0) | (self.rewards == 1)).all())

    def of_visit(self, visit: int) -> FloatArray:
        """Rewards of one visit."""
        return self.rewards[self.starts[visit] : self.starts[visit + 1]]


@dataclass(frozen=True)
class Stage:
    """Prompts under one fixed policy: rewards to show to estimators, and oracle values.

    Attributes
    ----------
    name : str
        "early", "middle", "late", or a step.
    keys : list of str, length P
    shown : float64 array, shape (P, G)
        Rewards that batches are drawn from; none of them is in the oracle.
    oracle : float64 array, shape (P,)
        Mean reward of other rollouts of the same policy.
    oracle_variance : float64 array, shape (P,)
        Unbiased sampling variance of that mean; a squared error against ``oracle`` is too large
        by it.
    pass_rates : PassRates
        Rollouts under the reference policy.
    sources : list of str, length P, optional
    halves, halves_variance : float64 array, shape (2, P), optional
        Means of the oracle's rollouts in two halves, and their sampling variances: a prompt is
        put in a class by one half and measured against the other, else noise sorts the prompts.
    visits : int
        Neighbouring visits that were pooled into the stage.
    drift : float
        Variance of a prompt's value between the pooled visits, mean over prompts.
    history : int array, optional
        Visits of the stage's record before it, in time order, without those in the table.
    """

    name: str
    keys: list[str]
    shown: FloatArray
    oracle: FloatArray
    oracle_variance: FloatArray
    pass_rates: PassRates
    sources: list[str] | None = None
    halves: FloatArray | None = None
    halves_variance: FloatArray | None = None
    visits: int = 1
    drift: float = 0.0
    history: IntArray | None = None
