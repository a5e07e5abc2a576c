"""The three verbs that every estimator has, and the checks that all of them share."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from basis_rl.batch import BoolArray, Estimate, FloatArray, IntArray, RewardBatch, sum_by
from basis_rl.errors import BatchError, ConfigError, StateError
from basis_rl.estimators.columns import check_columns

State = dict[str, Any]


class Estimator(ABC):
    """A baseline for every row of a batch of rewards.

    Attributes
    ----------
    max_unverified : float
        Largest share of rows without a verdict (NaN) that `estimate` accepts.
    min_rollouts : int
        Rollouts per prompt without which the baseline is no use (2 for a group's mean).
    needed_columns : tuple of str
        Optional columns of `RewardBatch` that the estimator cannot do without.
    remembers : bool
        Whether it keeps numbers for every prompt between steps.
    follows : bool
        Whether its baselines move with a policy that gets better or worse.
    """

    name: ClassVar[str]
    min_rollouts: ClassVar[int] = 1
    needed_columns: ClassVar[tuple[str, ...]] = ()
    remembers: ClassVar[bool] = False
    follows: bool = True
    max_unverified: float = 0.1

    def estimate(self, batch: RewardBatch) -> Estimate:
        """Baselines and advantages of one batch.

        Rows without a verdict enter no sum and get advantage 0 and baseline NaN; the rows of one
        rollout count once.

        Raises
        ------
        BatchError
            If more than `max_unverified` of the rows are NaN, or a rollout's rows disagree.
        """
        if not isinstance(batch, RewardBatch):
            raise BatchError(
                f"estimate was given a {type(batch).__name__}: pass a RewardBatch(keys, rewards)"
            )
        check_columns(batch, self.needed_columns, self.name)
        verified = ~np.isnan(batch.rewards)
        check_verified(verified, self.max_unverified)
        rollouts, row_of = distinct_rollouts(batch, verified)
        baselines_of, scale, metrics = self._scaled_baselines(rollouts)
        baselines = np.full(len(batch), np.nan)
        baselines[verified] = baselines_of[row_of]
        advantages = np.where(verified, batch.rewards - baselines, 0.0)
        if scale is not None:
            advantages[verified] *= scale[row_of]
        metrics = {**metrics, **summary(batch.rewards, baselines, advantages, verified)}
        return Estimate(baselines, advantages, metrics)

    def observe(self, batch: RewardBatch) -> None:
        """Take in rewards that are not trained on, e.g. of rows that a filter took out.

        Does nothing in an estimator without a memory of prompts. In a step, call it before or
        after `estimate` with the same ``batch.step``.
        """
        return

    @abstractmethod
    def _baselines(self, rollouts: RewardBatch) -> tuple[FloatArray, dict[str, float]]:
        """Baselines of distinct rollouts, all with a verdict, and the estimator's own metrics."""

    def _scaled_baselines(
        self, rollouts: RewardBatch
    ) -> tuple[FloatArray, FloatArray | None, dict[str, float]]:
        """Baselines, factor of each rollout's advantage (None is 1), and metrics."""
        baselines, metrics = self._baselines(rollouts)
        return baselines, None, metrics

    def state_dict(self) -> State:
        """What a restart needs: JSON types, and NumPy arrays (see `state_files`)."""
        return {"estimator": self.name, **self._state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave.

        Raises
        ------
        StateError
            If the state is another estimator's or misses an entry.
        """
        if not isinstance(state, Mapping):
            raise StateError(
                f"the saved state is a {type(state).__name__}: pass what state_dict gave"
            )
        if state.get("estimator") != self.name:
            raise StateError(
                f"the saved state is of estimator {state.get('estimator')!r}, this run uses "
                f"{self.name!r}: resume with the same estimator"
            )
        try:
            self._load(state)
        except StateError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise StateError(
                f"the saved state of {self.name!r} is damaged ({error!r}): resume from an earlier "
                "checkpoint"
            ) from error

    def _state(self) -> State:
        return {}

    def _load(self, state: Mapping[str, Any]) -> None:
        return None


class ScaledEstimator(Estimator):
    """An estimator that has a factor for the advantages besides, made with the baselines."""

    @abstractmethod
    def _scaled_baselines(
        self, rollouts: RewardBatch
    ) -> tuple[FloatArray, FloatArray | None, dict[str, float]]: ...

    def _baselines(self, rollouts: RewardBatch) -> tuple[FloatArray, dict[str, float]]:
        baselines, _, metrics = self._scaled_baselines(rollouts)
        return baselines, metrics


def check_share(what: str, value: float) -> float:
    """Refuse a share outside 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ConfigError(f"{what} is {value!r}: give a share between 0 and 1, e.g. 0.1")
    return float(value)


def check_number(what: str, value: object, low: float, high: float = float("inf")) -> float:
    """A finite number between two limits, both allowed.

    Raises
    ------
    ConfigError
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high or value == float("inf"):  # type: ignore[operator]
        limit = f"from {low:g} to {high:g}" if high < float("inf") else f"of {low:g} or more"
        raise ConfigError(f"{what} is {value!r}: give a number {limit}")
    return float(value)  # type: ignore[arg-type]


def check_verified(verified: BoolArray, max_unverified: float) -> None:
    """Refuse a batch with too many rows without a verdict."""
    missing = 1.0 - verified.mean()
    if missing == 1.0 or missing > max_unverified:
        raise BatchError(
            f"{missing:.1%} of the rewards are NaN (first: row {int(verified.argmin())}), over "
            f"the {max_unverified:.1%} allowed: mend the verifier, or raise max_unverified"
        )


def distinct_rollouts(batch: RewardBatch, verified: BoolArray) -> tuple[RewardBatch, IntArray]:
    """One row per rollout with a verdict, and each such row's rollout.

    Returns
    -------
    rollouts : RewardBatch
        R rows; a rollout's length is the sum over its rows.
    row_of : int64 array, shape (number of verified rows,)
        Index into ``rollouts``.

    Raises
    ------
    BatchError
        If rows of one rollout have different rewards or sources.
    """
    rows = np.flatnonzero(verified)
    if batch.rollout_ids is None:
        if len(rows) == len(batch):
            return batch, rows
        return take(batch, rows), np.arange(len(rows))
    number: dict[tuple[str, str], int] = {}
    row_of = np.array(
        [number.setdefault((batch.keys[i], batch.rollout_ids[i]), len(number)) for i in rows],
        dtype=np.int64,
    )
    first = np.full(len(number), len(batch), dtype=np.int64)
    np.minimum.at(first, row_of, rows)
    differs = batch.rewards[rows] != batch.rewards[first[row_of]]
    if differs.any():
        row = int(rows[differs.argmax()])
        raise BatchError(
            f"rows of rollout {batch.rollout_ids[row]!r} of prompt {batch.keys[row]!r} have "
            "different rewards: give every row of a rollout the rollout's reward"
        )
    if batch.sources is not None:
        for i, rollout in zip(rows.tolist(), first[row_of].tolist(), strict=True):
            if batch.sources[i] != batch.sources[rollout]:
                raise BatchError(
                    f"rows of rollout {batch.rollout_ids[i]!r} of prompt {batch.keys[i]!r} name "
                    "different sources: give every row of a rollout the prompt's source"
                )
    rollouts = take(batch, first)
    if batch.lengths is not None:
        lengths = sum_by(row_of, batch.lengths[rows], len(number))
        rollouts = dataclasses.replace(rollouts, lengths=lengths)
    return rollouts, row_of


def spread(matrix: FloatArray, row_of: IntArray, verified: BoolArray) -> FloatArray:
    """Weights between rollouts, shape (R, R), as weights between the rows of the batch, (B, B).

    A rollout's weight is shared evenly by its rows; rows without a verdict have none.
    """
    share = 1.0 / np.bincount(row_of)[row_of]
    rows = np.flatnonzero(verified)
    full = np.zeros((len(verified), len(verified)))
    full[np.ix_(rows, rows)] = matrix[np.ix_(row_of, row_of)] * share
    return full


def take(batch: RewardBatch, rows: IntArray) -> RewardBatch:
    """Some rows of a batch, without their rollout ids."""
    picked: dict[str, Any] = {"keys": [batch.keys[i] for i in rows], "rewards": batch.rewards[rows]}
    if batch.sources is not None:
        picked["sources"] = [batch.sources[i] for i in rows]
    for name in ("lengths", "row_versions", "greedy_rewards", "values", "divergences"):
        values = getattr(batch, name)
        if values is not None:
            picked[name] = values[rows]
    return RewardBatch(**picked, step=batch.step, policy_version=batch.policy_version)


def summary(
    rewards: FloatArray, baselines: FloatArray, advantages: FloatArray, verified: BoolArray
) -> dict[str, float]:
    """Metrics that every estimator reports."""
    reward_std = float(rewards[verified].std())
    advantage_std = float(advantages[verified].std())
    return {
        "reward_mean": float(rewards[verified].mean()),
        "reward_std": reward_std,
        "baseline_mean": float(baselines[verified].mean()),
        "advantage_mean": float(advantages[verified].mean()),
        "advantage_std": advantage_std,
        "advantage_to_reward_std": advantage_std / reward_std if reward_std > 0 else float("nan"),
        "advantage_zero_fraction": float((advantages[verified] == 0).mean()),
        "unverified_fraction": float(1.0 - verified.mean()),
    }
