"""Estimators made without their table, to learn what they ask for before any file is read."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from basis_rl.batch import RewardBatch
from basis_rl.errors import BatchError, ConfigError, PassRatesError
from basis_rl.estimators import registry
from basis_rl.estimators.base import Estimator
from basis_rl.passrates import PassRates

_KEYS = ["a", "b", "c"]


def stand_ins(name: str, options: Mapping[str, Any], *, with_table: bool) -> list[Estimator]:
    """One estimator for each kind of table that its options go with.

    Parameters
    ----------
    name : str
        Registered.
    options : mapping
        Keywords of the estimator.
    with_table : bool
        Whether the run has a table.

    Raises
    ------
    ConfigError
        If an option's value is refused whatever the table.
    """
    use = registry.pass_rates_use(name)
    tables: list[PassRates | None] = [None]
    if use == "needed" or (use == "optional" and with_table):
        tables = [table(kind) for kind in ("counts", "rewards", "rates")]
    made: list[Estimator] = []
    refusals: list[ConfigError] = []
    for each in tables:
        try:
            made.append(make(name, each, options))
        except ConfigError as error:
            refusals.append(error)
        except PassRatesError:
            continue
    if not made and refusals:
        raise refusals[0]
    return made


def make(name: str, pass_rates: PassRates | None, options: Mapping[str, Any]) -> Estimator:
    """An estimator of the options in `algorithm.basis`.

    Raises
    ------
    ConfigError
        If a value is refused, or is of a kind that the constructor does not foresee.
    PassRatesError
        If the table is refused.
    """
    try:
        return registry.create(name, pass_rates, **options)
    except (ConfigError, PassRatesError) as error:
        raise type(error)(f"algorithm.basis: {error}") from error
    except (TypeError, ValueError, ArithmeticError) as error:
        shown = ", ".join(f"{key}={value!r}" for key, value in options.items())
        raise ConfigError(
            f"algorithm.basis: estimator {name!r} does not take {shown} ({error}): correct the "
            "values"
        ) from error


def takes_any_reward(estimator: Estimator) -> bool:
    """Whether a freshly made stand-in takes rewards other than 0 and 1."""
    rewards = np.array([0.3, -0.2, 0.7, 0.1, 0.5, 0.9])
    batch = RewardBatch([*_KEYS, *_KEYS], rewards, lengths=np.arange(1.0, 7.0))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator.estimate(batch)
    except BatchError:
        return False
    return True


def table(kind: str) -> PassRates:
    """Table of a kind ("counts", "rewards" or "rates"), with prompts that nobody asks for."""
    if kind == "counts":
        return PassRates.from_counts(_KEYS, [1, 2, 3], 4)
    if kind == "rewards":
        return PassRates.from_rewards(_KEYS, [[0.0, 0.5, 1.0]] * 3)
    return PassRates.from_rates(_KEYS, [0.2, 0.5, 0.8])
