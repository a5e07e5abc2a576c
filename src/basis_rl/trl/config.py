"""`BasisConfig`: TRL's `GRPOConfig` with an estimator, pass rates and an objective."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainingArguments
from trl import GRPOConfig

from basis_rl.adapters.checks import check_columns, check_rollouts
from basis_rl.errors import ConfigError, nearest
from basis_rl.estimators import registry
from basis_rl.sampling import check_options
from basis_rl.trl import objectives
from basis_rl.trl.option_names import TRL
from basis_rl.trl.rules import (
    MISMATCHES,
    RULES,
    check_scaling,
    keywords,
)


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
        Registered name of the estimator of baselines: "basis", "basis-online", "spo", …; see
        `basis_rl.estimators.names`.
    estimator_options : dict, optional
        Keywords of the estimator.
    pass_rates : str, optional
        Path of the Parquet file with the pass rates; some estimators need it, some can use it.
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
        with the estimator option ``missing="prior"`` and for estimators that can do without a
        table.
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
    normalize_advantages : str
        How `basis_rl.normalize.normalize_advantages` treats the generation batch: "none"
        (default), "batch" or "tokens" (as REINFORCE++).
    prompt_sampler : str, optional
        "spread" draws prompts whose rewards the estimator expects to spread, and weighs their
        advantages to make up for it; see `basis_rl.sampling.PromptSampler`. None (default) takes
        each prompt once an epoch.
    prompt_sampler_options : dict, optional
        ``floor``, ``clip`` and ``self_normalised`` of the prompt sampler.

    Raises
    ------
    ConfigError
        If a value is out of range or contradicts another; the message names both.
    """

    _VALID_DICT_FIELDS = [  # noqa: RUF012
        *GRPOConfig._VALID_DICT_FIELDS,
        "estimator_options",
        "prompt_sampler_options",
    ]

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
    normalize_advantages: str = field(default="none", metadata={"help": "none, batch or tokens."})
    prompt_sampler: str | None = field(
        default=None, metadata={"help": "spread, or None for every prompt once an epoch."}
    )
    prompt_sampler_options: dict[str, Any] | str | None = field(
        default=None, metadata={"help": "Keywords of the prompt sampler."}
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
        check_scaling(self.scale_rewards, self.normalize_advantages)
        self._check_prompt_sampler()

    def _check_prompt_sampler(self) -> None:
        self.prompt_sampler_options = keywords(
            "prompt_sampler_options", self.prompt_sampler_options, "{'floor': 0.05}"
        )
        if self.prompt_sampler_options is not None and self.prompt_sampler is None:
            raise ConfigError(
                "prompt_sampler_options are given and prompt_sampler is not: leave them out, or "
                "set prompt_sampler='spread'"
            )
        check_options(**(self.prompt_sampler_options or {}))
        if self.prompt_sampler is not None and not self.shuffle_dataset:
            raise ConfigError(
                f"shuffle_dataset=False keeps the data's order, and prompt_sampler="
                f"{self.prompt_sampler!r} chooses prompts: leave one of them out"
            )

    def _check_estimator(self) -> None:
        import basis_rl.estimators  # noqa: F401  (registers the estimators)

        if self.estimator not in registry.names():
            raise ConfigError(
                f"estimator is {self.estimator!r}{registry.nearest_name(self.estimator)}"
            )
        check_rollouts(
            self.estimator, registry.min_rollouts(self.estimator), self.num_generations, TRL
        )
        check_columns(self.estimator, registry.needed_columns(self.estimator), TRL)
        self.estimator_options = keywords(
            "estimator_options", self.estimator_options, "{'preset': 'robust'}"
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
