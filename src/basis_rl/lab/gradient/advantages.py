"""Advantages of batches that are drawn from a pool: of real estimators, and of known values."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from basis_rl import estimators
from basis_rl.batch import FloatArray, IntArray, RewardBatch
from basis_rl.errors import ConfigError
from basis_rl.estimators.base import Estimator
from basis_rl.estimators.registry import nearest_name, pass_rates_use
from basis_rl.lab.gradient.pool import RolloutPool
from basis_rl.passrates.table import PassRates

# name -> (label, registered estimator, options)
_KNOWN: dict[str, tuple[str, str, dict[str, Any]]] = {
    "zero": ("zero", "zero", {}),
    "batch-mean": ("batch mean", "batch-mean", {}),
    "group-mean": ("group mean, over std (GRPO)", "group-mean", {}),
    "group-mean-no-std": ("group mean (Dr.GRPO)", "group-mean", {"std": False}),
    "leave-one-out": ("leave-one-out (RLOO)", "leave-one-out", {}),
    "opo": ("length-weighted (OPO)", "opo", {}),
    "basis-paper": ("BASIS, paper", "basis", {"preset": "paper"}),
    "basis": ("BASIS, robust", "basis", {}),
    "basis-online": ("BASIS online", "basis-online", {}),
    "spo": ("SPO", "spo", {}),
}
_KNOWN_VALUES = ("value", "least-variance")
DEFAULT = (*_KNOWN, *_KNOWN_VALUES)


class Advantages(ABC):
    """Advantages of a batch of a pool's rollouts.

    Attributes
    ----------
    name, label : str
    needs_groups : bool
        Whether a batch must have several rollouts of a prompt.
    """

    name: str
    label: str
    needs_groups: bool = False

    @abstractmethod
    def __call__(self, rows: IntArray, rewards: FloatArray | None = None) -> FloatArray:
        """Advantage of each row of a batch; row u is rollout ``u % K`` of prompt ``u // K``.

        Other rewards than the pool's may be given, to see what they change.
        """


class EstimatorAdvantages(Advantages):
    """What a real estimator gives, each batch from the state that the earlier epochs left.

    Parameters
    ----------
    name, label : str
    make : callable
        Makes the estimator.
    pool : RolloutPool
    batch_size : int
        Of the earlier epochs' batches, one rollout of each prompt.
    seed : int
        Of their order.
    """

    def __init__(
        self,
        name: str,
        label: str,
        make: Callable[[], Estimator],
        pool: RolloutPool,
        *,
        batch_size: int,
        seed: int = 0,
    ) -> None:
        self.name, self.label, self._make = name, label, make
        self._estimator = make()
        rollouts = pool.rewards.shape[1]
        self._keys = np.repeat(np.array(pool.keys, dtype=object), rollouts)
        sources = pool.sources
        self._sources = None if sources is None else np.repeat(np.array(sources), rollouts)
        self._rewards, self._lengths = pool.rewards.ravel(), pool.lengths.ravel()
        check_columns(name, self._estimator)
        self.needs_groups = self._estimator.min_rollouts > 1
        self._has_state = len(self._estimator.state_dict()) > 1
        self._step = 0
        if self._has_state and not self.needs_groups:
            self._remember(pool, batch_size, np.random.default_rng(seed))
        self._state = copy.deepcopy(self._estimator.state_dict())

    def __call__(self, rows: IntArray, rewards: FloatArray | None = None) -> FloatArray:
        """Advantages; the estimator's state stays as it is."""
        if self._has_state and self._step:
            self._estimator.load_state_dict(self._state)
        elif self._has_state:
            self._estimator = self._make()
        batch = RewardBatch(
            self._keys[rows].tolist(),
            self._rewards[rows] if rewards is None else rewards,
            lengths=self._lengths[rows],
            sources=None if self._sources is None else self._sources[rows].tolist(),
            step=self._step,
        )
        return self._estimator.estimate(batch).advantages

    def _remember(self, pool: RolloutPool, size: int, random: np.random.Generator) -> None:
        for epoch in range(pool.earlier.shape[1]):
            order = random.permutation(len(pool.keys))
            for start in range(0, len(order), size):
                chosen = order[start : start + size]
                batch = RewardBatch(
                    [pool.keys[i] for i in chosen],
                    pool.earlier[chosen, epoch],
                    sources=None if pool.sources is None else [pool.sources[i] for i in chosen],
                    step=self._step,
                )
                self._estimator.estimate(batch)
                self._step += 1


class KnownBaseline(Advantages):
    """``r - b`` with a baseline given for every rollout of the pool.

    Parameters
    ----------
    name, label : str
    pool : RolloutPool
    baselines : float64 array, shape (P, K)
    """

    def __init__(self, name: str, label: str, pool: RolloutPool, baselines: FloatArray) -> None:
        self.name, self.label = name, label
        self._rewards, self._baselines = pool.rewards.ravel(), baselines.ravel()

    def __call__(self, rows: IntArray, rewards: FloatArray | None = None) -> FloatArray:
        """Advantages of the rows."""
        given = self._rewards[rows] if rewards is None else rewards
        return np.asarray(given - self._baselines[rows])


def others_mean(rewards: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """Mean of each prompt's other rollouts, ``sum_{l != k} w_l r_l / sum_{l != k} w_l``.

    Parameters
    ----------
    rewards : array, shape (P, K)
    weights : array, shape (P, K), optional
        Positive; 1 by default.

    Returns
    -------
    array, shape (P, K)
    """
    w = np.ones_like(rewards) if weights is None else weights
    total, weight = (w * rewards).sum(1, keepdims=True), w.sum(1, keepdims=True)
    return np.asarray((total - w * rewards) / (weight - w))


def offline_pass_rates(pool: RolloutPool) -> PassRates | None:
    """Table of the pool's offline rollouts; None where there are none."""
    if not pool.offline.shape[1]:
        return None
    every = np.hstack([pool.offline, pool.rewards, pool.earlier])
    if ((every == 0) | (every == 1)).all():
        successes = pool.offline.sum(1).astype(np.int64)
        return PassRates.from_counts(
            pool.keys, successes, pool.offline.shape[1], sources=pool.sources
        )
    return PassRates.from_rewards(pool.keys, list(pool.offline), sources=pool.sources)


def advantages_of(
    pool: RolloutPool,
    names: Sequence[str] | None = None,
    *,
    pass_rates: PassRates | None = None,
    batch_size: int = 64,
    loss: str = "sum",
    seed: int = 0,
) -> list[Advantages]:
    """Estimators by name, ready for batches of a pool.

    Parameters
    ----------
    pool : RolloutPool
    names : sequence of str, optional
        Names of the registry, "basis-paper", "group-mean-no-std", and two that know more than an
        estimator can: "value", the mean reward of the prompt's K - 1 other rollouts, and
        "least-variance", the same weighted by the squared norms of their gradients. By default
        all of these that can be made.
    pass_rates : PassRates, optional
        By default those of the pool's offline rollouts.
    batch_size : int
        Rollouts of a batch in the earlier epochs.
    loss : {"sum", "token-mean"}
    seed : int

    Raises
    ------
    ConfigError
        If a name is unknown, named twice, or needs pass rates that are not there.
    """
    table = offline_pass_rates(pool) if pass_rates is None else pass_rates
    makers: dict[str, Callable[[], Advantages]] = {
        "value": lambda: KnownBaseline(
            "value", "value (others' mean)", pool, others_mean(pool.rewards)
        ),
        "least-variance": lambda: KnownBaseline(
            "least-variance",
            "least variance",
            pool,
            others_mean(pool.rewards, np.maximum(pool.norms(loss), 1e-300)),
        ),
    }
    found = []
    for name in _wanted(names, table):
        if name in makers:
            found.append(makers[name]())
            continue
        label, registered, options = _KNOWN.get(name, (name, name, {}))
        make = partial(estimators.create, registered, table, **options)
        found.append(EstimatorAdvantages(name, label, make, pool, batch_size=batch_size, seed=seed))
    return found


def _wanted(names: Sequence[str] | None, table: PassRates | None) -> list[str]:
    known = estimators.names()
    if names is None:
        there = [name for name in _KNOWN if _KNOWN[name][1] in known]
        usable = [
            name
            for name in there
            if table is not None or pass_rates_use(_KNOWN[name][1]) != "needed"
        ]
        return [*usable, *_KNOWN_VALUES]
    every = sorted({*known, *DEFAULT})
    for name in names:
        if name not in every:
            raise ConfigError(f"no estimator is named {name!r}{nearest_name(name, every)}")
        if list(names).count(name) > 1:
            raise ConfigError(f"estimator {name!r} is named twice: name each once")
    return list(names)


def check_columns(name: str, estimator: Estimator) -> None:
    """Refuse an estimator that needs more than rewards and lengths.

    Raises
    ------
    ConfigError
        Naming the column.
    """
    missing = set(estimator.needed_columns) - {"lengths"}
    if missing:
        raise ConfigError(
            f"estimator {name!r} needs {', '.join(sorted(missing))}, which are not sampled here: "
            "leave it out"
        )
