"""The configuration of ``basis-rl train``: one dataclass a section."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from basis_rl.errors import ConfigError
from basis_rl.train import document, schema

# Fields of BasisConfig that the configuration's own sections set.
OWN_TRL_FIELDS = {
    "estimator": "estimator",
    "estimator_options": "estimator",
    "pass_rates": "pass_rates",
    "min_coverage": "pass_rates.min_coverage",
    "allow_mismatch": "pass_rates.allow",
    "prompt_key_column": "data.key_column",
    "prompt_source_column": "data.source_column",
    "objective": "objective",
    "output_dir": "output_dir",
    "reward_weights": "reward.functions (name and weight)",
    "model_init_kwargs": "model",
    "resume_from_checkpoint": "nothing: the same command resumes by itself",
}


@dataclass(frozen=True)
class LoraSection:
    """Low-rank adapters instead of all parameters.

    Attributes
    ----------
    r, alpha : int
        Rank, and the scale's numerator.
    dropout : float
    target_modules : str or list of str
        "all-linear", or names of modules.
    """

    r: int = field(default=16, metadata={"minimum": 1})
    alpha: int = field(default=32, metadata={"minimum": 1})
    dropout: float = field(default=0.0, metadata={"minimum": 0})
    target_modules: str | list[str] = "all-linear"


@dataclass(frozen=True)
class ModelSection:
    """The policy.

    Attributes
    ----------
    name : str
        Hub id, or a folder with model and tokenizer.
    revision : str, optional
        Branch, tag or commit on the hub.
    dtype : str
        Of the loaded weights; "auto" takes the file's.
    attention : str, optional
        "eager", "sdpa" or "flash_attention_2"; by default transformers chooses.
    lora : section, optional
    """

    name: str
    revision: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "float32"
    attention: str | None = None
    lora: LoraSection | None = None


@dataclass(frozen=True)
class DataSection:
    """Prompts; every name of `basis_rl.prompts.load_prompts`.

    Attributes
    ----------
    train, eval : str or list of str
        Files, ``reasoning-gym:<task>?…`` or hub ids.
    split, eval_split : str
        Of hub data sets.
    prompt_column, key_column, source_column : str
        Columns; dotted paths reach into nested ones.
    where : dict
        Keep rows whose column has the value, or one of the values.
    limit, eval_limit : int
        Use only the first prompts of each data set.
    template, system, chat
        What the model is shown.
    """

    train: str | list[str]
    eval: str | list[str] | None = None
    split: str = "train"
    eval_split: str = "test"
    prompt_column: str = "prompt"
    key_column: str | None = None
    source_column: str | None = None
    where: dict[str, Any] = field(default_factory=dict)
    limit: int | None = field(default=None, metadata={"minimum": 1})
    eval_limit: int | None = field(default=None, metadata={"minimum": 1})
    template: str | None = None
    system: str | None = None
    chat: bool | None = None


@dataclass(frozen=True)
class RewardItem:
    """One reward function.

    Attributes
    ----------
    name : str
        "math", "exact", "reasoning-gym", or ``module:function``.
    weight : float
    answer_column : str, optional
        By default the section's.
    """

    name: str
    weight: float = 1.0
    answer_column: str | None = None


@dataclass(frozen=True)
class RewardSection:
    """How completions are scored: the weighted sum of the functions.

    Attributes
    ----------
    functions : list of str or RewardItem
    answer_column : str
    """

    functions: list[str | RewardItem]
    answer_column: str = "answer"

    def items(self) -> list[RewardItem]:
        """All functions in the long form."""
        items = [RewardItem(f) if isinstance(f, str) else f for f in self.functions]
        return [
            dataclasses.replace(item, answer_column=item.answer_column or self.answer_column)
            for item in items
        ]


@dataclass(frozen=True)
class PassRatesSection:
    """The table of pass rates.

    Attributes
    ----------
    path : str
        File that ``basis-rl cache build`` wrote.
    min_coverage : float, optional
        Least share of the training prompts that the table must know; by default all, or half of
        them with the estimator option ``missing: prior``.
    allow : list of str
        Differences between the table's making and this run to accept: model, revision, verifier.
    """

    path: str
    min_coverage: float | None = field(default=None, metadata={"minimum": 0, "maximum": 1})
    allow: list[Literal["model", "revision", "verifier"]] = field(default_factory=list)


@dataclass(frozen=True)
class TrainConfig:
    """A whole run.

    Attributes
    ----------
    model, data, reward : sections
    output_dir : str
        Checkpoints, the resolved configuration and the final model go here.
    pass_rates : section or str, optional
        A text is its path.
    estimator : dict
        ``name`` (by default basis) and the estimator's options; a text is the name.
    objective : str, optional
        null leaves the loss to the settings under ``trl``.
    trl : dict
        Any other field of TRL's GRPOConfig, and of BasisConfig.
    """

    model: ModelSection
    data: DataSection
    reward: RewardSection
    output_dir: str
    pass_rates: PassRatesSection | str | None = None
    estimator: dict[str, Any] | str = field(default_factory=lambda: {"name": "basis"})
    objective: Literal["grpo", "gpg", "gspo", "dapo", "dr_grpo"] | None = "grpo"
    trl: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # the dataclass is frozen
        if isinstance(self.estimator, str):
            set_field(self, "estimator", {"name": self.estimator})
        elif "name" not in self.estimator:
            set_field(self, "estimator", {"name": "basis", **self.estimator})
        if isinstance(self.pass_rates, str):
            set_field(self, "pass_rates", PassRatesSection(self.pass_rates))
        _check(self)
        self._expand_paths()

    def _expand_paths(self) -> None:
        """Replace a ``~`` at the start of every path, here alone."""
        set_field, change = object.__setattr__, dataclasses.replace
        set_field(self, "output_dir", _expanded(self.output_dir))
        set_field(self, "model", change(self.model, name=_expanded(self.model.name)))
        data = {"train": _expanded(self.data.train), "eval": _expanded(self.data.eval)}
        set_field(self, "data", change(self.data, **data))
        if self.table is not None:
            set_field(self, "pass_rates", change(self.table, path=_expanded(self.table.path)))

    @property
    def estimator_name(self) -> str:
        """Registered name of the estimator."""
        assert isinstance(self.estimator, dict)
        return str(self.estimator["name"])

    @property
    def estimator_options(self) -> dict[str, Any]:
        """Keywords of the estimator."""
        assert isinstance(self.estimator, dict)
        return {name: value for name, value in self.estimator.items() if name != "name"}

    @property
    def table(self) -> PassRatesSection | None:
        """The pass rates in the long form."""
        assert not isinstance(self.pass_rates, str)
        return self.pass_rates

    def to_dict(self) -> document.Document:
        """Every key with its value, as YAML types."""
        return dataclasses.asdict(self)


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> TrainConfig:
    """Read, override and validate a configuration, without loading anything that it names.

    Parameters
    ----------
    path : str or Path
        YAML file.
    overrides : sequence of str
        ``section.key=value`` with the value in YAML.

    Raises
    ------
    ConfigError
        One line: the file, the key, its value and what to write instead.
    """
    values = document.apply_overrides(document.read_document(path), overrides)
    try:
        return schema.build(TrainConfig, values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _expanded(value: Any) -> Any:
    if isinstance(value, list):
        return [_expanded(name) for name in value]
    return os.path.expanduser(value) if isinstance(value, str) else value


def _check(config: TrainConfig) -> None:
    name = config.estimator.get("name") if isinstance(config.estimator, dict) else None
    if not isinstance(name, str) or not name:
        raise ConfigError(f"estimator.name is {name!r}: give the name of an estimator, e.g. basis")
    for key, where in OWN_TRL_FIELDS.items():
        if key in config.trl:
            raise ConfigError(f"trl.{key} is not set under trl: use {where}")
    for place, value in (
        ("output_dir", config.output_dir),
        ("model.name", config.model.name),
        ("data.train", config.data.train),
        ("data.eval", config.data.eval),
    ):
        if value in ("", []) or (isinstance(value, list) and "" in value):
            raise ConfigError(f"{place} is empty: give it a name")
    if not config.reward.functions:
        raise ConfigError("reward.functions is empty: name at least one, e.g. math")
    if config.data.chat is False and config.data.system is not None:
        raise ConfigError("data.system needs chat prompts: set data.chat to true or drop it")
