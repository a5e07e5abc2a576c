"""BASIS across batches and steps: a posterior for every prompt, and a common shift.

The derivation is in docs/online.md; its equations are numbered there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from basis_rl.batch import BoolArray, FloatArray, RewardBatch, as_keys, group_index, sum_by
from basis_rl.errors import BatchError, ConfigError, MissingPassRateError, StateError
from basis_rl.estimators.base import Estimator, State, check_share, distinct_rollouts
from basis_rl.estimators.online.binary import BinaryForm
from basis_rl.estimators.online.clock import Clock
from basis_rl.estimators.online.gaussian import GaussianForm, without_outliers
from basis_rl.estimators.online.model import OnlineModel
from basis_rl.estimators.online.population import (
    JEFFREYS_VARIANCE,
    Normal,
    Start,
    binary_start,
    gaussian_start,
    noise_unit,
    start_without_table,
)
from basis_rl.passrates.table import PassRates
from basis_rl.refine import exclusive_sums

# Variance of the first step away from the reference policy.
SHIFT_AFTER_TABLE = 0.05
# Without a table: the variance of fewer rewards is a worse guess than that of all prompts.
NOISE_WORTH = 64.0
KINDS = ("auto", "binary", "continuous")
Keys = Sequence[str | int] | npt.NDArray[np.generic]


class BasisOnline(Estimator):
    r"""A posterior for every prompt, carried over the steps, and a common shift of each source.

    ``b_i = E[sigmoid(m_i + s)]`` under what earlier steps say of prompt i's logit m_i, what the
    prompt's other rollouts in the batch say of it, and what the rest of the batch says of the
    shift s; row i is left out of all three. Between visits m_i drifts, with a variance that is
    learned. For real rewards the value itself is normal.

    Parameters
    ----------
    pass_rates : PassRates, optional
        Where prompts start. Without it, or for a prompt outside it, from a population.
    rewards : {"auto", "binary", "continuous"}
        0 and 1, or any. "auto" is the table's kind, or without a table the first batch's.
    missing : {"prior", "error"}
        A prompt outside the table starts from its source's population, or is an error.
    max_unverified : float
        Largest share of NaN rewards accepted.

    Raises
    ------
    ConfigError
        If an option is unknown, out of range or does not go with the table.

    Notes
    -----
    Batches with the same ``step`` are one step; without a step each batch is one. A row with an
    older version than the batch's policy gets the baseline of the policy that sampled it.
    `observe` takes in rows that are not trained on. A restart needs `state_dict`.

    Examples
    --------
    >>> from basis_rl import RewardBatch
    >>> from basis_rl.estimators import BasisOnline
    >>> online = BasisOnline(rewards="binary")
    >>> for step in range(20):
    ...     estimate = online.estimate(RewardBatch(["a", "b"], [1.0, 0.0], step=step))
    >>> (estimate.baselines > 0.5).tolist()
    [True, False]
    """

    name: ClassVar[str] = "basis-online"
    remembers: ClassVar[bool] = True

    def __init__(
        self,
        pass_rates: PassRates | None = None,
        *,
        rewards: str = "auto",
        missing: str = "prior",
        max_unverified: float = 0.1,
    ) -> None:
        if pass_rates is not None and not isinstance(pass_rates, PassRates):
            raise ConfigError(
                f"pass_rates is a {type(pass_rates).__name__}: pass a PassRates, e.g. "
                "PassRates.load('pass-rates.parquet'), or None"
            )
        if rewards not in KINDS:
            raise ConfigError(f"rewards is {rewards!r}: use one of {', '.join(KINDS)}")
        if missing not in ("prior", "error"):
            raise ConfigError(f"missing is {missing!r}: use 'prior' or 'error'")
        self.pass_rates = pass_rates
        self.missing = missing
        self.max_unverified = check_share("max_unverified", max_unverified)
        self._asked = self.kind = _kind(pass_rates, rewards)
        # Made once: of a large table it takes a second.
        self._start = None if pass_rates is None else _start_of(pass_rates)
        self._clock = Clock()
        # Real rewards without a table: made from the first batch.
        self._model = self._new_model(self.kind) if self._starts_known(self.kind) else None

    def observe(self, batch: RewardBatch) -> None:
        """Learn from rewards that are not trained on, e.g. of rows that a filter took out.

        Rows without a verdict are passed over.
        """
        verified = ~np.isnan(batch.rewards)
        if verified.any():
            self._baselines(distinct_rollouts(batch, verified)[0])

    def posterior(
        self, keys: Keys, sources: Sequence[str] | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of the prompts' values now; shape (B,) each.

        NaN before the first batch of real rewards without a table.
        """
        mean, deviation, _ = self._now(keys, sources)
        return mean, deviation

    def expected_spread(self, keys: Keys, sources: Sequence[str] | None = None) -> FloatArray:
        """Expected standard deviation of a reward now, ``E[sqrt(V (1 - V))]`` for 0/1; (B,).

        1 before the first batch of real rewards without a table.
        """
        return self._now(keys, sources)[2]

    def _now(
        self, keys: Keys, sources: Sequence[str] | None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        names = as_keys(keys, what="keys")
        if self._model is None:
            unknown = np.full(len(names), np.nan)
            return unknown, unknown, np.ones(len(names))
        return self._model.now(names, None if sources is None else list(sources), self._clock.now)

    def _baselines(self, rollouts: RewardBatch) -> tuple[FloatArray, dict[str, float]]:
        self._check(rollouts)
        if self.kind == "auto":
            return self._settle(rollouts)
        if self._model is not None:
            return self._take_in(self._model, rollouts)
        # The first batch tells the unit, so there its rows know nothing but each other.
        self._model = _model_of_batch(rollouts)
        if self._model is not None:
            self._take_in(self._model, rollouts)
        return _mean_of_the_others(rollouts.rewards), {}

    def _settle(self, rollouts: RewardBatch) -> tuple[FloatArray, dict[str, float]]:
        """The first batch tells the kind of rewards; a row's baseline goes by the others' kind."""
        other = np.flatnonzero(_not_binary(rollouts.rewards))
        self.kind = "continuous" if len(other) else "binary"
        if not len(other):
            self._model = _binary_model()
        baselines, metrics = self._baselines(rollouts)
        if len(other) == 1:
            # Without this row all would have been 0 and 1, and its own reward has no say.
            rewards = rollouts.rewards.copy()
            rewards[other] = 0.0
            alone = dataclasses.replace(rollouts, rewards=rewards)
            baselines[other] = BasisOnline(rewards="binary")._baselines(alone)[0][other]
        return baselines, metrics

    def _take_in(
        self, model: OnlineModel, rollouts: RewardBatch
    ) -> tuple[FloatArray, dict[str, float]]:
        steps = self._clock.advance(rollouts)
        return model.take_in(rollouts, self._clock.times(rollouts), steps)

    def _check(self, rollouts: RewardBatch) -> None:
        """Refuse what does not fit."""
        other = _not_binary(rollouts.rewards)
        if self.kind == "binary" and other.any():
            rewards, row = rollouts.rewards, int(other.argmax())
            remedy = "earlier ones all were, or rewards='binary': pass rewards='continuous'"
            if self.pass_rates is not None:
                remedy = "the table holds pass rates: make it with PassRates.from_rewards"
            raise BatchError(
                f"the reward {float(rewards[row])} of prompt {rollouts.keys[row]!r} is not 0 or 1, "
                f"and {remedy}"
            )
        if self.missing == "error" and self.pass_rates is not None:
            unknown = self.pass_rates.rows(rollouts.keys) < 0
            if unknown.any():
                raise MissingPassRateError(
                    f"{int(unknown.sum())} rows of the batch have prompts without a pass rate "
                    f"(first: {rollouts.keys[int(unknown.argmax())]!r}): add them to the table, "
                    "or pass missing='prior'"
                )

    def _state(self) -> State:
        return {
            "kind": self.kind,
            "clock": self._clock.state(),
            "model": None if self._model is None else self._model.state(),
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        kind = state["kind"]
        if kind not in KINDS:
            raise ValueError(f"kind is {kind!r}")
        if "auto" not in (kind, self._asked) and kind != self._asked:
            raise StateError(
                f"the saved state is of {kind} rewards and this run has {self._asked} ones: resume "
                "with the same rewards and the same kind of pass rates"
            )
        # New ones, so that a damaged state leaves the estimator as it was.
        clock, model = Clock(), None
        clock.load(state["clock"])
        if state["model"] is not None:
            self._check_table(state["model"])
            model = self._new_model(kind)
            model.load(state["model"])
        elif self._starts_known(kind):
            raise ValueError("the model is missing")
        self.kind = self._asked if kind == "auto" else kind
        self._clock, self._model = clock, model

    def _check_table(self, model: Mapping[str, Any]) -> None:
        """Refuse the state of a run that had a table where this one has none, or the reverse."""
        if (model["start"] is None) != (self.pass_rates is not None):
            had, has = ("with", "without") if self.pass_rates is None else ("without", "with")
            raise StateError(
                f"the saved state is of a run {had} pass rates and this run is {has}: resume {had} "
                "them"
            )

    def _starts_known(self, kind: str) -> bool:
        """Whether there is a model before the first batch."""
        return self.pass_rates is not None or kind == "binary"

    def _new_model(self, kind: str) -> OnlineModel:
        if self._start is not None:
            form = BinaryForm() if kind == "binary" else GaussianForm()
            return OnlineModel(form, *self._start, SHIFT_AFTER_TABLE)
        return _binary_model() if kind == "binary" else _continuous_model(0.0, 1.0)


def _not_binary(rewards: FloatArray) -> BoolArray:
    return np.asarray((rewards != 0.0) & (rewards != 1.0))


def _kind(table: PassRates | None, rewards: str) -> str:
    if table is None:
        return rewards
    kind = "continuous" if table.is_continuous else "binary"
    if rewards not in ("auto", kind):
        raise ConfigError(
            f"rewards is {rewards!r} and the table holds those of {kind} rewards: pass "
            f"rewards='auto', or a table made with "
            f"PassRates.{'from_rewards' if kind == 'binary' else 'from_counts'}"
        )
    return kind


def _start_of(table: PassRates) -> tuple[Start, float]:
    """Where the table's prompts start, and the unit of rewards."""
    return gaussian_start(table) if table.is_continuous else (binary_start(table), 1.0)


def _binary_model() -> OnlineModel:
    """Jeffreys' prior for every prompt, and for what they have in common."""
    start = start_without_table(Normal(0.0, JEFFREYS_VARIANCE))
    return OnlineModel(BinaryForm(), start, 1.0, JEFFREYS_VARIANCE)


def _continuous_model(mean: float, unit: float) -> OnlineModel:
    """Values as far apart as rewards of one prompt: one reward each does not tell them apart."""
    start = start_without_table(Normal(mean / unit, 1.0), NOISE_WORTH)
    return OnlineModel(GaussianForm(), start, unit, 1.0)


def _model_of_batch(rollouts: RewardBatch) -> OnlineModel | None:
    """Unit and population from the first batch; None if its rewards are all alike."""
    rewards, prompt_of = rollouts.rewards, group_index(rollouts.keys)
    if not np.ptp(rewards) > 0:
        return None
    rewards = without_outliers(rewards)
    n = np.bincount(prompt_of)
    means = sum_by(prompt_of, rewards, len(n)) / n
    squares = float(((rewards - means[prompt_of]) ** 2).sum())
    unit = noise_unit(squares, float((n - 1).sum()), float(rewards.std()))
    return _continuous_model(float(rewards.mean()), unit)


def _mean_of_the_others(rewards: FloatArray) -> FloatArray:
    """Mean of the batch without each row; 0 where there is no other."""
    return exclusive_sums(rewards) / max(len(rewards) - 1, 1)
