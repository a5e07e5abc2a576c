"""The trainer's arguments of a configuration."""

from __future__ import annotations

import dataclasses
import typing
from typing import TYPE_CHECKING

from basis_rl.errors import ConfigError
from basis_rl.train import rewards, schema
from basis_rl.train.config import OWN_TRL_FIELDS, TrainConfig
from basis_rl.train.places import with_place

if TYPE_CHECKING:
    from basis_rl.trl import BasisConfig


def make_arguments(config: TrainConfig, *, sources: bool) -> BasisConfig:
    """Arguments of the trainer.

    Parameters
    ----------
    config : TrainConfig
    sources : bool
        Whether the prompts have sources.

    Raises
    ------
    ConfigError
        If a field under ``trl`` is unknown, or TRL refuses a value.
    """
    import torch

    from basis_rl.trl import BasisConfig

    hints = typing.get_type_hints(BasisConfig)
    known = [f.name for f in dataclasses.fields(BasisConfig) if f.name not in OWN_TRL_FIELDS]
    schema.check_names(config.trl, known, path="trl")
    for name, value in config.trl.items():
        schema.convert(value, hints[name], path=f"trl.{name}")
    given = dict(config.trl)
    if not torch.cuda.is_available():
        given = {"use_cpu": True, "bf16": False, **given}
        if "activation_checkpointing" not in given:
            given.setdefault("gradient_checkpointing", False)
    if config.data.eval is not None:
        given = {"eval_strategy": "steps", **given}
    model = {"dtype": config.model.dtype, "revision": config.model.revision}
    if config.model.attention is not None:
        model["attn_implementation"] = config.model.attention
    table = config.table
    arguments: BasisConfig = with_place(
        "trl",
        BasisConfig,
        output_dir=config.output_dir,
        estimator=config.estimator_name,
        estimator_options=config.estimator_options,
        objective=config.objective,
        min_coverage=table.min_coverage if table else None,
        allow_mismatch=list(table.allow) if table else [],
        prompt_key_column=rewards.KEY_COLUMN,
        prompt_source_column=rewards.SOURCE_COLUMN if sources else None,
        reward_weights=[item.weight for item in config.reward.items()],
        model_init_kwargs={name: value for name, value in model.items() if value is not None},
        **given,
    )
    _check_saving(arguments)
    return arguments


def _check_saving(arguments: BasisConfig) -> None:
    from basis_rl.train.interrupt import updates_per_generation

    if arguments.save_only_model:
        raise ConfigError(
            "trl.save_only_model is true, and the run could not be resumed from such checkpoints: "
            "leave it out; the model alone is in output_dir/final"
        )
    updates = updates_per_generation(arguments)
    if arguments.save_strategy != "steps" or updates == 1:
        return
    for name in ("save_steps", "max_steps"):
        steps = getattr(arguments, name)
        # Without max_steps, which is -1 then, the last checkpoint is at the end of an epoch.
        if steps > 0 and steps % updates:
            raise ConfigError(
                f"trl.{name} is {steps:g} and each batch of rollouts is used for {updates} "
                f"updates: use a multiple of {updates}, as a checkpoint between them cannot be "
                "resumed from"
            )
