"""Everything of a run but the model: read, built and checked before a weight is loaded."""

from __future__ import annotations

import hashlib
import typing
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis_rl import estimators
from basis_rl.errors import BasisError, ConfigError
from basis_rl.passrates import PassRates
from basis_rl.prompts import Prompt, check_data, load_prompts
from basis_rl.train import rewards, schema
from basis_rl.train.command import cache_command
from basis_rl.train.config import OWN_TRL_FIELDS, DataSection, TrainConfig
from basis_rl.train.document import Document
from basis_rl.verifiers import NamedVerifier

if TYPE_CHECKING:
    from basis_rl.estimators.base import Estimator
    from basis_rl.trl import BasisConfig


# What errors of the Python interface call by its name there.
_IN_YAML = {
    "estimator_options={'missing': 'prior'}": "estimator.missing: prior",
    "estimator_options missing=": "estimator.missing=",
    "pass pass_rates=": "set pass_rates to its file",
    "allow_mismatch=": "pass_rates.allow: ",
    "prompt_key_column": "data.key_column",
    "prompt_source_column": "data.source_column",
    "min_coverage": "pass_rates.min_coverage",
}


@dataclass(frozen=True)
class Plan:
    """A validated run.

    Attributes
    ----------
    config : TrainConfig
    train, evaluation : list of Prompt
    verifiers : list of NamedVerifier
    pass_rates : PassRates, optional
    arguments : BasisConfig
    """

    config: TrainConfig
    train: list[Prompt]
    evaluation: list[Prompt]
    verifiers: list[NamedVerifier]
    pass_rates: PassRates | None
    arguments: BasisConfig

    def resolved(self) -> Document:
        """Configuration with all defaults, and fingerprints of what it names."""
        fingerprints = {"train": fingerprint([prompt.key for prompt in self.train])}
        if self.pass_rates is not None:
            fingerprints["pass_rates"] = fingerprint(
                self.pass_rates.keys, self.pass_rates.n.tobytes()
            )
        return {**self.config.to_dict(), "fingerprints": fingerprints}

    def functions(self) -> list[rewards.ColumnReward]:
        """Reward functions for TRL."""
        columns = {p.key: p.columns for p in [*self.train, *self.evaluation]}
        return [rewards.ColumnReward(verifier, columns) for verifier in self.verifiers]


def prepare(config: TrainConfig) -> Plan:
    """Check a configuration against everything that it names, except the model.

    What is cheap comes first, so that a misspelt file name shows at once.

    Raises
    ------
    BasisError
        One line that names the key and the remedy.
    """
    for place, data in (("data.train", config.data.train), ("data.eval", config.data.eval)):
        for name in _as_list(data):
            with_place(place, check_data, name)
    pass_rates = None
    if config.table is not None:
        _check_exists(config, config.table.path)
        pass_rates = with_place("pass_rates", PassRates.load, config.table.path)
    estimator = with_place(
        "estimator",
        estimators.create,
        config.estimator_name,
        pass_rates,
        **config.estimator_options,
    )
    verifiers = with_place("reward", rewards.make_verifiers, config.reward)
    train = _load(config.data, config.data.train, config.data.split, config.data.limit, "train")
    evaluation = _load(
        config.data, config.data.eval, config.data.eval_split, config.data.eval_limit, "eval"
    )
    train = rewards.with_answers(config.reward.items(), train, data="data.train")
    evaluation = rewards.with_answers(config.reward.items(), evaluation, data="data.eval")
    evaluation = _without_training_prompts(evaluation, train)
    arguments = make_arguments(config, sources=train[0].source is not None)
    plan = Plan(config, train, evaluation, verifiers, pass_rates, arguments)
    _check_fit(plan, estimator)
    return plan


def _check_exists(config: TrainConfig, path: str) -> None:
    command = cache_command(config)
    if command is not None and not Path(path).expanduser().exists():
        raise ConfigError(
            f"pass_rates: there is no file {path}: check the path, or build it with: {command}"
        )


def make_arguments(config: TrainConfig, *, sources: bool) -> BasisConfig:
    """Arguments of the trainer.

    Raises
    ------
    ConfigError
        If a field under ``trl`` is unknown, or TRL refuses a value.
    """
    import dataclasses

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
    _check_save_steps(arguments)
    return arguments


def _check_save_steps(arguments: BasisConfig) -> None:
    from basis_rl.train.interrupt import updates_per_generation

    updates = updates_per_generation(arguments)
    if arguments.save_strategy == "steps" and arguments.save_steps % updates:
        raise ConfigError(
            f"trl.save_steps is {arguments.save_steps:g} and each batch of rollouts is used for "
            f"{updates} updates: use a multiple of {updates}, as a checkpoint between them cannot "
            "be resumed from"
        )


def as_rows(prompts: Sequence[Prompt]) -> list[dict[str, Any]]:
    """Rows of the data set that TRL sees."""
    return [
        {
            "prompt": prompt.prompt,
            rewards.KEY_COLUMN: prompt.key,
            **({} if prompt.source is None else {rewards.SOURCE_COLUMN: prompt.source}),
        }
        for prompt in prompts
    ]


def fingerprint(keys: Sequence[str], more: bytes = b"") -> str:
    """Short hash of keys in order."""
    digest = hashlib.sha256("\n".join(keys).encode())
    digest.update(more)
    return digest.hexdigest()[:16]


def with_place(place: str, call: Any, *arguments: Any, **options: Any) -> Any:
    """Call, with the configuration's key in front of what it refuses."""
    try:
        return call(*arguments, **options)
    except BasisError as error:
        message = str(error)
        for python, key in _IN_YAML.items():
            message = message.replace(python, key)
        raise ConfigError(f"{place}: {message}") from error


def _load(
    data: DataSection, names: str | list[str] | None, split: str, limit: int | None, part: str
) -> list[Prompt]:
    prompts: dict[str, Prompt] = {}
    for name in _as_list(names):
        loaded = with_place(
            f"data.{part}",
            load_prompts,
            name,
            split=split,
            prompt_column=data.prompt_column,
            key_column=data.key_column,
            source_column=data.source_column,
            limit=limit,
            template=data.template,
            system=data.system,
            chat=data.chat,
            where=data.where,
        )
        repeated = sum(prompt.key in prompts for prompt in loaded)
        if repeated:
            warnings.warn(
                f"data.{part}: {repeated} prompts of {name} are in an earlier data set too and "
                "were left out",
                stacklevel=3,
            )
        for prompt in loaded:
            prompts.setdefault(prompt.key, prompt)
    kinds = {type(prompt.prompt) for prompt in prompts.values()}
    if len(kinds) > 1:
        raise ConfigError(
            f"data.{part} has both texts and chat messages as prompts: set data.chat to true"
        )
    if len({prompt.source is None for prompt in prompts.values()}) > 1:
        raise ConfigError(
            f"data.{part}: some data sets have sources and some do not: set data.source_column"
        )
    return list(prompts.values())


def _without_training_prompts(
    evaluation: Sequence[Prompt], train: Sequence[Prompt]
) -> list[Prompt]:
    seen = {prompt.key for prompt in train}
    kept = [prompt for prompt in evaluation if prompt.key not in seen]
    if evaluation and not kept:
        raise ConfigError("data.eval has only prompts that data.train has too: evaluate on others")
    if len(kept) < len(evaluation):
        warnings.warn(
            f"{len(evaluation) - len(kept)} of {len(evaluation)} prompts of data.eval are in "
            "data.train too and are not evaluated on",
            stacklevel=3,
        )
    return kept


def _check_fit(plan: Plan, estimator: Estimator) -> None:
    """Let the trainer's own checks look at the pass rates before there is a trainer."""
    from datasets import Dataset

    from basis_rl.trl.rows import RowNames
    from basis_rl.trl.setup import check_run

    arguments = plan.arguments
    with_place(
        "pass_rates",
        check_run,
        arguments,
        estimator,
        plan.pass_rates,
        RowNames(arguments.prompt_key_column, arguments.prompt_source_column),
        model=plan.config.model.name,
        reward_funcs=plan.functions(),
        train_dataset=Dataset.from_list(as_rows(plan.train)),
    )


def _as_list(names: str | list[str] | None) -> list[str]:
    if names is None:
        return []
    return [names] if isinstance(names, str) else names
