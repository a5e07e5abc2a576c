"""From a configuration to an estimator that fits the run."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis_rl.adapters.checks import (
    check_columns,
    check_coverage,
    check_provenance,
    check_rollouts,
    least_coverage,
    named_rewards,
)
from basis_rl.adapters.record import RewardRecord
from basis_rl.adapters.rows import RowNames, shorten
from basis_rl.errors import ConfigError
from basis_rl.estimators import registry
from basis_rl.estimators.base import Estimator
from basis_rl.passrates import PassRates, Provenance
from basis_rl.trl.option_names import TRL
from basis_rl.trl.rules import check_scaled_once

if TYPE_CHECKING:
    from basis_rl.trl.config import BasisConfig


def make_estimator(
    config: BasisConfig, pass_rates: PassRates | None, estimator: Estimator | None
) -> tuple[Estimator, PassRates | None]:
    """Estimator of a run, and the pass rates it is checked against.

    Parameters
    ----------
    config : BasisConfig
    pass_rates : PassRates, optional
        In place of the configuration's path.
    estimator : Estimator, optional
        In place of the configuration's name, options and pass rates.

    Raises
    ------
    ConfigError
        If something is given twice.
    PassRatesError
        If the file cannot be read.
    """
    if pass_rates is not None and config.pass_rates is not None:
        raise ConfigError(
            f"pass rates are given twice, as an object and as pass_rates={config.pass_rates!r}: "
            "leave one of them out"
        )
    if estimator is not None:
        return _given(config, pass_rates, estimator)
    if pass_rates is None and config.pass_rates is not None:
        pass_rates = PassRates.load(Path(config.pass_rates).expanduser())
    options = config.estimator_options or {}
    assert isinstance(options, Mapping)
    use = registry.pass_rates_use(config.estimator)
    if pass_rates is not None and use == "none":
        warnings.warn(
            f"estimator {config.estimator!r} uses no pass rates, and pass_rates are given: leave "
            "them out, or use an estimator that does, such as 'basis' or 'basis-online'",
            UserWarning,
            stacklevel=3,
        )
    if pass_rates is None and use == "needed":
        raise ConfigError(
            f"estimator {config.estimator!r} needs pass rates: name the file with pass_rates= in "
            "the configuration, or pass the table to the trainer (`basis-rl cache build` makes "
            "one); estimator 'basis-online' can start without"
        )
    made = registry.create(config.estimator, pass_rates, **options)
    check_estimator(config, made, config.estimator)
    return made, pass_rates


def _given(
    config: BasisConfig, pass_rates: PassRates | None, estimator: Any
) -> tuple[Estimator, PassRates | None]:
    """An estimator object, if nothing of it is named a second time."""
    if not isinstance(estimator, Estimator):
        raise ConfigError(
            f"estimator is {estimator!r}, and BasisTrainer takes an estimator object here: "
            "name one in the configuration, BasisConfig(estimator=...)"
        )
    given = {
        "estimator": config.estimator != "basis",
        "estimator_options": config.estimator_options is not None,
        "pass_rates": pass_rates is not None or config.pass_rates is not None,
    }
    for name, twice in given.items():
        if twice:
            raise ConfigError(
                f"an estimator object ({estimator.name!r}) and {name} are both given, and the "
                f"object holds its own: leave {name} out, or the object"
            )
    check_estimator(config, estimator, estimator.name)
    table = getattr(estimator, "pass_rates", None)
    return estimator, table if isinstance(table, PassRates) else None


def check_estimator(config: BasisConfig, estimator: Estimator, name: str) -> None:
    """Refuse an estimator whose options do not fit the run; they may ask for more than its class.

    Raises
    ------
    ConfigError
    """
    check_rollouts(name, estimator.min_rollouts, config.num_generations, TRL)
    check_columns(name, estimator.needed_columns, TRL)
    std = bool(getattr(estimator, "std", False))
    check_scaled_once(name, std, config.scale_rewards, config.normalize_advantages)


def check_data(config: BasisConfig, names: RowNames, train_dataset: Any) -> None:
    """Refuse training data without prompts, or with too few for one generation batch.

    Raises
    ------
    ConfigError
    """
    if isinstance(train_dataset, Mapping):
        splits = [str(split) for split in train_dataset]
        raise ConfigError(
            f"train_dataset is a {type(train_dataset).__name__} with the splits "
            f"{', '.join(splits) or '(none)'}: pass one of them, such as "
            f"dataset[{(splits or ['train'])[0]!r}]"
        )
    rows = len(train_dataset) if hasattr(train_dataset, "__len__") else None
    if rows == 0:
        raise ConfigError("the training data are empty: there is nothing to train on")
    columns = getattr(train_dataset, "column_names", None)
    if columns is not None:
        names.check(columns)
    batch, rollouts = config.generation_batch_size, config.num_generations
    assert batch is not None
    if rows is not None and rows < batch // rollouts:
        raise ConfigError(
            f"there are {rows} training prompts, and a generation batch takes {batch // rollouts} "
            f"({batch} rollouts, {rollouts} per prompt), so that no step could be made: lower "
            "per_device_train_batch_size (or steps_per_generation, gradient_accumulation_steps), "
            "or train on more prompts"
        )


def check_run(
    config: BasisConfig,
    estimator: Estimator,
    pass_rates: PassRates | None,
    names: RowNames,
    *,
    model: Any,
    reward_funcs: Any,
    train_dataset: Any,
) -> None:
    """Refuse pass rates that do not fit the run's model, verifiers or prompts.

    Raises
    ------
    ConfigError
        If ``min_coverage`` contradicts the estimator.
    PassRatesError
        See `check_coverage` and `check_provenance`.
    """
    least = least_coverage(config.min_coverage, estimator, TRL)
    if pass_rates is None:
        return
    functions = list(reward_funcs) if isinstance(reward_funcs, list | tuple) else [reward_funcs]
    check_provenance(
        pass_rates.provenance,
        run_provenance(config, model, functions),
        named_rewards(functions, config.reward_weights),
        config.allow_mismatch,
        TRL,
    )
    # A stream cannot be looked through; the estimator sees its batches.
    if hasattr(train_dataset, "select_columns") and hasattr(train_dataset, "__len__"):
        keys = training_keys(train_dataset, names)
        check_coverage(
            pass_rates, keys, least, lambda row: shorten(train_dataset[row]["prompt"]), TRL
        )


def training_keys(dataset: Any, names: RowNames) -> Sequence[str]:
    """Key of every row of a data set, reading only the columns it needs."""
    wanted = [names.key_column or "prompt"]
    return [names.key(row) for row in dataset.select_columns(wanted)]


def run_provenance(config: BasisConfig, model: Any, functions: Sequence[Any]) -> Provenance:
    """Describe a run in the terms of a table's provenance; None where unknown."""
    if isinstance(model, str):
        name: str | None = model
    else:
        name = getattr(getattr(model, "config", None), "_name_or_path", None) or None
    init = config.model_init_kwargs
    version = (
        getattr(getattr(functions[0], "verifier", None), "version", None) if functions else None
    )
    return Provenance(
        model=name,
        revision=init.get("revision") if isinstance(init, Mapping) else None,
        # With several reward functions nobody knows whose version the table has.
        verifier_version=version if len(functions) == 1 else None,
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        max_tokens=config.max_completion_length,
        stop=stop_of(config.generation_kwargs),
    )


def stop_of(generation: Any) -> list[str]:
    """Texts that end a completion, of TRL's generation_kwargs; TRL has none of its own."""
    known = generation if isinstance(generation, Mapping) else {}
    stop = known.get("stop") or known.get("stop_strings") or []
    return [stop] if isinstance(stop, str) else list(stop)


def make_record(config: BasisConfig, model: Any, reward_funcs: Any) -> RewardRecord | None:
    """What writes the run's rewards down; None if that is switched off."""
    if not config.record_rewards or config.output_dir is None:
        return None
    functions = list(reward_funcs) if isinstance(reward_funcs, list | tuple) else [reward_funcs]
    rewards = named_rewards(functions, config.reward_weights)
    provenance = run_provenance(config, model, functions)
    return RewardRecord(config.output_dir, provenance, rewards, names=TRL)
