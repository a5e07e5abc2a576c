"""`BasisConfig`: TRL's `GRPOConfig` with an estimator, pass rates and an objective."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainingArguments
from trl import GRPOConfig

from basis_rl.errors import ConfigError, nearest
from basis_rl.estimators import registry
from basis_rl.trl import objectives
from basis_rl.trl.rules import MISMATCHES, RULES

# Baselines made of the other rollouts of the same prompt.
_GROUP_ESTIMATORS = ("group-mean", "leave-one-out")


class _OneRollout(TrainingArguments):
    """Runs between `TrainingArguments.__post_init__` and the checks of `GRPOConfig`.

    `GRPOConfig` refuses ``num_generations=1``. Its checks are shown a batch and a group of twice
    the size; `BasisConfig` halves both afterwards. This happens after `TrainingArguments` is
    done, so nothing else (DeepSpeed, the number of processes) sees the doubled numbers.
    """

    if TYPE_CHECKING:
        num_generations: int
        num_generations_eval: int | None
        generation_batch_size: int | None

    def __post_init__(self) -> None:
        super().__post_init__()  # type: ignore[no-untyped-call]
        if self.num_generations != 1:
            return
        per_step = self.per_device_train_batch_size * self.world_size
        if self.generation_batch_size is not None:
            if self.generation_batch_size % per_step:
                raise ConfigError(
                    f"generation_batch_size={self.generation_batch_size} is not a multiple of "
                    f"per_device_train_batch_size x processes = {per_step}: change one of them"
                )
            self.generation_batch_size *= 2
        self.num_generations = 2
        self.num_generations_eval = self.num_generations_eval or 1
        self.per_device_train_batch_size *= 2


@dataclass
class BasisConfig(GRPOConfig, _OneRollout):  # type: ignore[misc]
    """Configuration of `BasisTrainer`: everything of TRL's `GRPOConfig`, and the following.

    Parameters
    ----------
    num_generations : int
        Rollouts per prompt; here 1 is allowed, and the default.
    estimator : str
        Registered name of the estimator of baselines.
    estimator_options : dict, optional
        Keywords of the estimator.
    pass_rates : str, optional
        Path of the Parquet file with the pass rates.
    objective : str, optional
        "grpo", "gpg", "gspo", "dapo" or "dr_grpo". Sets ``loss_type`` and
        ``importance_sampling_level``, and the published ``epsilon``, ``epsilon_high`` and
        ``mask_truncated_completions`` where they are not given. None keeps TRL's own settings.
    gpg_scale : str
        GPG's factor: "paper" (1 at one rollout), "none", or "verl-nonzero".
    prompt_key_column : str, optional
        Column with the prompts' keys; by default the key is a hash of the prompt's content.
    prompt_source_column : str, optional
        Column with the prompts' sources (data set or task).
    min_coverage : float, optional
        Share of the training prompts that the pass rates must know, 0 to 1. Default: 1, or 0.5
        with the estimator option ``missing="prior"``.
    allow_mismatch : list of str
        Differences between what made the pass rates and this run that are accepted:
        "model", "revision", "verifier".
    max_zero_batches : int
        Error after this many generation batches in a row without any advantage other than 0;
        0 never stops.
    record_rewards : bool
        Write the reward of every rollout to ``basis_rewards.jsonl`` in ``output_dir``; `basis-rl
        cache absorb` reads it.
    plain_logits : bool, optional
        Compute log-probabilities from the model's own logits instead of TRL's fused head. None
        does so on a CPU, where it is faster.
    scale_rewards : str
        "none" (default) or "batch": advantages divided by the batch's reward deviation, as TRL.

    Raises
    ------
    ConfigError
        If a value is out of range or contradicts another; the message names both.
    """

    _VALID_DICT_FIELDS = [*GRPOConfig._VALID_DICT_FIELDS, "estimator_options"]  # noqa: RUF012

    num_generations: int = field(default=1, metadata={"help": "Rollouts per prompt, 1 or more."})
    scale_rewards: str = field(default="none", metadata={"help": "'none' or 'batch'."})
    # None means "not given": the objective decides.
    loss_type: str | None = field(default=None, metadata={"help": "Set by the objective."})
    importance_sampling_level: str | None = field(
        default=None, metadata={"help": "Set by the objective."}
    )
    epsilon: float | None = field(default=None, metadata={"help": "Lower clip; see objective."})
    mask_truncated_completions: bool | None = field(
        default=None, metadata={"help": "Leave truncated completions out; see objective."}
    )
    estimator: str = field(default="basis", metadata={"help": "Estimator of baselines, by name."})
    estimator_options: dict[str, Any] | str | None = field(
        default=None, metadata={"help": "Keywords of the estimator."}
    )
    pass_rates: str | None = field(
        default=None, metadata={"help": "Parquet file with the pass rates."}
    )
    objective: str | None = field(
        default="grpo", metadata={"help": "grpo, gpg, gspo, dapo or dr_grpo."}
    )
    gpg_scale: str = field(default="paper", metadata={"help": "paper, none or verl-nonzero."})
    prompt_key_column: str | None = field(
        default=None, metadata={"help": "Column with prompt keys; default: hash of the content."}
    )
    prompt_source_column: str | None = field(
        default=None, metadata={"help": "Column with the prompts' sources."}
    )
    min_coverage: float | None = field(
        default=None, metadata={"help": "Share of training prompts that need a pass rate."}
    )
    allow_mismatch: list[str] = field(
        default_factory=list, metadata={"help": "Accepted differences: model, revision, verifier."}
    )
    max_zero_batches: int = field(
        default=50, metadata={"help": "Batches of zero advantages in a row before an error."}
    )
    record_rewards: bool = field(
        default=True, metadata={"help": "Write rewards to basis_rewards.jsonl in output_dir."}
    )
    plain_logits: bool | None = field(
        default=None, metadata={"help": "Log-probabilities from plain logits; default: on a CPU."}
    )

    def __post_init__(self) -> None:
        one_line(self._check_own)
        self._check_estimator()
        settings = objectives.resolve(self.objective, vars(self))
        for name, value in settings.items():
            setattr(self, name, value)
        one_rollout = self.num_generations == 1
        one_line(super().__post_init__)
        if one_rollout:
            self.num_generations = 1
            self.per_device_train_batch_size //= 2
            assert self.generation_batch_size is not None
            self.generation_batch_size //= 2

    def _check_own(self) -> None:
        for name, (fits, wanted) in RULES.items():
            value = getattr(self, name)
            if not fits(value):
                raise ConfigError(f"{name} is {value!r}: use {wanted}")
        if self.scale_rewards in (True, "group"):
            raise ConfigError(
                f"scale_rewards={self.scale_rewards!r} scales within groups, but advantages come "
                "from the estimator: use 'none' or 'batch', or estimator='group-mean' with "
                "estimator_options={'std': True}"
            )
        if self.multi_objective_aggregation != "sum_then_normalize":
            raise ConfigError(
                f"multi_objective_aggregation={self.multi_objective_aggregation!r} normalises each "
                "reward within its group, but advantages come from the estimator: leave it out"
            )
        named = self.prompt_key_column or self.prompt_source_column
        if self.remove_unused_columns and named:
            raise ConfigError(
                f"remove_unused_columns=True drops the column {named!r} before the estimator can "
                "read it: leave remove_unused_columns out"
            )
        for name in self.allow_mismatch:
            if name not in MISMATCHES:
                raise ConfigError(
                    f"allow_mismatch names {name!r}{nearest(str(name), list(MISMATCHES))}"
                )
        if self.gpg_scale != "paper" and self.objective != "gpg":
            raise ConfigError(
                f"gpg_scale={self.gpg_scale!r} has no effect with objective={self.objective!r}: "
                "leave it out, or set objective='gpg'"
            )

    def _check_estimator(self) -> None:
        import basis_rl.estimators  # noqa: F401  (registers the estimators)

        if self.estimator not in registry.names():
            raise ConfigError(
                f"estimator is {self.estimator!r}{nearest(self.estimator, registry.names())}"
            )
        if self.estimator in _GROUP_ESTIMATORS and self.num_generations == 1:
            raise ConfigError(
                f"estimator={self.estimator!r} compares the rollouts of one prompt, and "
                "num_generations is 1: use num_generations of 2 or more, or another estimator"
            )
        if isinstance(self.estimator_options, str):
            with contextlib.suppress(ValueError):  # reported below
                self.estimator_options = json.loads(self.estimator_options)
        options = self.estimator_options
        if options is not None and not (
            isinstance(options, dict) and all(isinstance(key, str) for key in options)
        ):
            raise ConfigError(
                f"estimator_options is {options!r}: use a dict of keywords, such as "
                "{'preset': 'robust'}"
            )
        if self.pass_rates is not None and not Path(self.pass_rates).expanduser().is_file():
            raise ConfigError(
                f"pass_rates is {self.pass_rates!r}, and no file is there: make it with "
                "`basis-rl cache build`, or mend the path"
            )


def one_line(check: Callable[[], None]) -> None:
    """Run a check of TRL's or of ours; what it refuses becomes a `ConfigError` of one line."""
    try:
        check()
    except ConfigError:
        raise
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ConfigError(" ".join(str(error).split())) from error
