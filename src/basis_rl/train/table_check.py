"""What a configuration wants of its table of pass rates, without loading the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from basis_rl import estimators
from basis_rl.errors import BasisError, ConfigError
from basis_rl.passrates import PassRates
from basis_rl.passrates.inspect.check import Run
from basis_rl.train import rewards
from basis_rl.train.arguments import make_arguments
from basis_rl.train.config import TrainConfig
from basis_rl.train.places import with_place

if TYPE_CHECKING:
    from basis_rl.estimators.base import Estimator


def run_of(config: TrainConfig, table: PassRates) -> Run:
    """The run that `passrates.inspect.check.check` compares a table with, as the trainer would.

    Raises
    ------
    ConfigError
        If the configuration cannot be run with any table.
    """
    from basis_rl.adapters.checks import least_coverage, named_rewards
    from basis_rl.trl.option_names import TRL
    from basis_rl.trl.setup import run_provenance

    estimator, refusal = _estimator(config, table)
    verifiers = with_place("reward", rewards.make_verifiers, config.reward)
    functions = [rewards.ColumnReward(verifier, {}) for verifier in verifiers]
    arguments = make_arguments(config, sources=False)
    return Run(
        provenance=run_provenance(arguments, config.model.name, functions),
        rewards=named_rewards(functions, arguments.reward_weights),
        allowed=list(arguments.allow_mismatch),
        min_coverage=least_coverage(arguments.min_coverage, estimator, TRL)
        if estimator is not None
        else 1.0,
        smoothing=getattr(getattr(estimator, "options", None), "smoothing", None),
        refusal=refusal,
    )


def _estimator(config: TrainConfig, table: PassRates) -> tuple[Estimator | None, str | None]:
    """The configuration's estimator, or why it does not take the table."""
    try:
        return estimators.create(config.estimator_name, table, **config.estimator_options), None
    except ConfigError as error:
        # With any other table it would be the configuration's fault.
        stand_in = PassRates.from_counts(["any"], [1], 2)
        with_place(
            "estimator",
            estimators.create,
            config.estimator_name,
            stand_in,
            **config.estimator_options,
        )
        return None, str(error)
    except BasisError as error:
        return None, str(error)
