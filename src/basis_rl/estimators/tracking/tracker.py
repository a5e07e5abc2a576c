"""What the estimators share that follow every prompt by its own rewards."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from basis_rl.batch import (
    LARGEST_COUNT,
    BoolArray,
    FloatArray,
    IntArray,
    RewardBatch,
    as_keys,
    sum_by,
)
from basis_rl.errors import BatchError, ConfigError, StateError
from basis_rl.estimators.base import Estimator, State, check_share, distinct_rollouts, take
from basis_rl.estimators.prompt_states import PromptStates
from basis_rl.estimators.tracking.starts import Start, Starts
from basis_rl.passrates.table import PassRates


@dataclass(frozen=True)
class Visits:
    """Rollouts of a batch, gathered by prompt.

    Attributes
    ----------
    rows : int array, shape (U,)
        Row of each prompt in the states, all different.
    prompt : int array, shape (B,)
        Index into ``rows`` of each rollout.
    count, total : arrays, shape (U,)
        Rollouts of each prompt, and the sum of their rewards.
    """

    rows: IntArray
    prompt: IntArray
    count: FloatArray
    total: FloatArray

    @classmethod
    def of(cls, rows: IntArray, rewards: FloatArray) -> Visits:
        """Gather by row; ``rows`` (B,) may repeat."""
        distinct, prompt = np.unique(rows, return_inverse=True)
        size = len(distinct)
        count = np.bincount(prompt, minlength=size).astype(np.float64)
        return cls(distinct, prompt, count, sum_by(prompt, rewards, size))

    def mean_of(self, numbers: FloatArray) -> FloatArray:
        """Mean over each prompt's rollouts of a number per rollout; shape (U,)."""
        return sum_by(self.prompt, numbers, len(self.rows)) / self.count


class Tracker(Estimator):
    """An estimator with a state for every prompt, updated by the prompt's own rewards.

    A batch is estimated with the states before it, and then taken in; a prompt's several rollouts
    are taken in together. Rows of a policy more than `max_staleness` versions old get a baseline
    and are not taken in.
    """

    remembers: ClassVar[bool] = True
    columns: ClassVar[dict[str, float]]
    neutral: ClassVar[float] = 0.5  # mean reward of a prompt when nothing is known at all

    def __init__(
        self, pass_rates: PassRates | None, *, max_staleness: int, max_unverified: float
    ) -> None:
        if pass_rates is not None and not isinstance(pass_rates, PassRates):
            raise ConfigError(
                f"pass_rates is a {type(pass_rates).__name__}: pass a PassRates, e.g. "
                "PassRates.load('pass-rates.parquet'), or None"
            )
        if isinstance(max_staleness, bool) or not isinstance(max_staleness, int):
            raise ConfigError(
                f"max_staleness is {max_staleness!r}: give a whole number of versions"
            )
        if max_staleness < 0:
            raise ConfigError(f"max_staleness is {max_staleness}: give 0 or more")
        self.max_staleness = max_staleness
        self.max_unverified = check_share("max_unverified", max_unverified)
        self.starts = Starts(pass_rates)
        self.states = PromptStates(self.columns)

    def observe(self, batch: RewardBatch) -> None:
        """Take in rewards that are not trained on (of rows that were filtered out).

        Rows without a verdict are left out. As in `estimate`, each call is one visit of its
        prompts.
        """
        verified = ~np.isnan(batch.rewards)
        if not verified.any():
            return
        rollouts, _ = distinct_rollouts(batch, verified)
        self._check(rollouts)
        self._tick(rollouts, estimating=False)
        self._learn(self._meet(rollouts)[0], rollouts)

    def expected_spread(
        self, keys: Sequence[str | int], sources: Sequence[str] | None = None
    ) -> FloatArray:
        """Expected standard deviation of a prompt's 0/1 reward now, ``sqrt(V (1 - V))``.

        Parameters
        ----------
        keys : sequence of str or int, shape (B,)
            Prompts, met or not; none is added.
        sources : sequence of str, shape (B,), optional

        Returns
        -------
        array, shape (B,)
            0 where the expected reward V is outside 0 to 1.

        Raises
        ------
        BatchError
            If a key is no string or integer, or there are not as many sources.
        """
        names = as_keys(keys, what="keys")
        origins = None if sources is None else as_keys(sources, what="sources")
        if origins is not None and len(origins) != len(names):
            raise BatchError(
                f"sources has {len(origins)} entries for {len(names)} keys: pass one per key"
            )
        V = self._mean_of(self.starts.of(names, origins))
        rows = self.states.known(names)
        met = rows >= 0
        if met.any():
            V[met] = self._value(rows[met])
        return np.asarray(np.sqrt(np.clip(V * (1.0 - V), 0.0, None)))

    def _baselines(self, rollouts: RewardBatch) -> tuple[FloatArray, dict[str, float]]:
        self._check(rollouts)
        self._tick(rollouts, estimating=True)
        rows, new = self._meet(rollouts)
        baselines, metrics = self._predict(rows, rollouts)
        stale = self._learn(rows, rollouts)
        metrics |= {"new_fraction": new, "stale_fraction": stale}
        return baselines, metrics

    @abstractmethod
    def _start(self, rows: IntArray, start: Start) -> None:
        """Set the states of prompts met for the first time; rows may repeat."""

    @abstractmethod
    def _value(self, rows: IntArray) -> FloatArray:
        """Expected reward of prompts now."""

    @abstractmethod
    def _update(self, visits: Visits, rollouts: RewardBatch) -> None:
        """Take in rollouts; ``visits`` are the same ones by prompt."""

    def _predict(
        self, rows: IntArray, rollouts: RewardBatch
    ) -> tuple[FloatArray, dict[str, float]]:
        """Baselines from the states before the batch."""
        return self._value(rows), {}

    def _check(self, rollouts: RewardBatch) -> None:
        """Refuse rewards that the estimator has no meaning for."""

    def _tick(self, rollouts: RewardBatch, *, estimating: bool) -> None:
        """Move the estimator's clock to the batch."""

    def _meet(self, rollouts: RewardBatch) -> tuple[IntArray, float]:
        """Rows of the prompts, those of new ones set to their start; and the share of new ones."""
        rows = self.states.known(rollouts.keys)
        new = rows < 0
        if not new.any():
            self.starts.see(rollouts)
            return rows, 0.0
        start = self.starts.in_batch(rollouts)
        rows = self.states.rows(rollouts.keys)
        mean = self._mean_of(start)
        self._start(rows[new], Start(mean[new], start.total[new], start.n[new]))
        self.starts.see(rollouts)
        return rows, float(new.mean())

    def _mean_of(self, start: Start) -> FloatArray:
        return np.where(np.isnan(start.mean), self.neutral, start.mean)

    def _learn(self, rows: IntArray, rollouts: RewardBatch) -> float:
        """Take in the rows that are fresh enough; the share of the others."""
        fresh = self._fresh(rollouts)
        if fresh is None:
            self._update(Visits.of(rows, rollouts.rewards), rollouts)
            return 0.0
        if fresh.any():
            kept = np.flatnonzero(fresh)
            self._update(Visits.of(rows[kept], rollouts.rewards[kept]), take(rollouts, kept))
        return float(1.0 - fresh.mean())

    def _fresh(self, rollouts: RewardBatch) -> BoolArray | None:
        """Rows of the present policy; None is all."""
        if rollouts.row_versions is None or rollouts.policy_version is None:
            return None
        fresh: BoolArray = rollouts.row_versions >= rollouts.policy_version - self.max_staleness
        return None if fresh.all() else fresh

    @abstractmethod
    def _possible(self, states: PromptStates) -> BoolArray:
        """Whether each prompt's finite numbers can be its state; shape (P,)."""

    def _state(self) -> State:
        return {"seen": self.starts.to_list(), "prompts": self.states.to_dict()}

    def _load(self, state: Mapping[str, Any]) -> None:
        # Both are read before either is changed.
        states = PromptStates(self.columns)
        states.load(state["prompts"])
        possible = self._possible(states)
        if not possible.all():
            raise StateError(
                f"the saved numbers of prompt {int(possible.argmin())} are impossible: resume from "
                "an earlier checkpoint"
            )
        self.starts.load(state)
        self.states = states


def saved_integer(value: object) -> int:
    """A whole number of a saved state.

    Raises
    ------
    ValueError
        If it is none, or too large for a step.
    """
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > 2 * LARGEST_COUNT:
        raise ValueError(f"{str(value)[:40]} is no step")
    return value
