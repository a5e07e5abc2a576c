"""Everything of a run but the model: read, built and checked before a weight is loaded."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis_rl import estimators
from basis_rl.errors import ConfigError
from basis_rl.passrates import PassRates
from basis_rl.prompts import Prompt, Repeats, check_data, load_prompts
from basis_rl.train import fingerprints, rewards
from basis_rl.train.arguments import make_arguments
from basis_rl.train.command import cache_command, is_sum
from basis_rl.train.config import DataSection, TrainConfig
from basis_rl.train.document import Document
from basis_rl.train.places import with_place
from basis_rl.verifiers import NamedVerifier

if TYPE_CHECKING:
    from basis_rl.estimators.base import Estimator
    from basis_rl.trl import BasisConfig


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
        found = {"train": fingerprints.of_prompts(self.train, self.config.reward.items())}
        if self.pass_rates is not None:
            found["pass_rates"] = fingerprints.of_pass_rates(self.pass_rates)
        return {**self.config.to_dict(), "fingerprints": found}

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
    train = training_prompts(config)
    evaluation = _load(
        config.data, config.data.eval, config.data.eval_split, config.data.eval_limit, "eval"
    )
    evaluation = rewards.with_answers(config.reward.items(), evaluation, data="data.eval")
    evaluation = _without_training_prompts(evaluation, train)
    arguments = make_arguments(config, sources=train[0].source is not None)
    plan = Plan(config, train, evaluation, verifiers, pass_rates, arguments)
    _check_fit(plan, estimator)
    return plan


def training_prompts(config: TrainConfig, *, repeats: Repeats | None = None) -> list[Prompt]:
    """Prompts that a configuration trains on: those with what its verifiers need.

    Raises
    ------
    BasisError
        One line that names the key and the remedy.
    """
    data = config.data
    prompts = _load(data, data.train, data.split, data.limit, "train", repeats)
    return rewards.with_answers(config.reward.items(), prompts, data="data.train")


def _check_exists(config: TrainConfig, path: str) -> None:
    if Path(path).exists():
        return
    remedy = "check the path"
    if is_sum(config.reward):
        remedy += (
            ", or make it with PassRates.from_rewards, as the reward is a weighted sum and "
            "`basis-rl cache build` scores with one verifier (see docs/training.md)"
        )
    else:
        command = cache_command(config)
        remedy += ", or build it with: " + (command or "basis-rl cache build")
    raise ConfigError(f"pass_rates: there is no file {path}: {remedy}")


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


def _load(
    data: DataSection,
    names: str | list[str] | None,
    split: str,
    limit: int | None,
    part: str,
    repeats: Repeats | None = None,
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
            repeats=repeats,
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
    """Let the trainer's own checks look at data and pass rates before there is a trainer."""
    from datasets import Dataset

    from basis_rl.adapters.rows import RowNames
    from basis_rl.trl.option_names import TRL
    from basis_rl.trl.prompt_sampler import make_prompt_sampler
    from basis_rl.trl.setup import check_data, check_estimator, check_run

    arguments = plan.arguments
    names = RowNames(arguments.prompt_key_column, arguments.prompt_source_column, words=TRL)
    data = Dataset.from_list(as_rows(plan.train))
    with_place("data.train", check_data, arguments, names, data)
    with_place("estimator", check_estimator, arguments, estimator, arguments.estimator)
    with_place("trl", make_prompt_sampler, arguments, estimator, names, data)
    with_place(
        "pass_rates",
        check_run,
        arguments,
        estimator,
        plan.pass_rates,
        names,
        model=plan.config.model.name,
        reward_funcs=plan.functions(),
        train_dataset=data,
    )


def _as_list(names: str | list[str] | None) -> list[str]:
    if names is None:
        return []
    return [names] if isinstance(names, str) else names
