"""`BasisConfig`: TRL's `GRPOConfig` with an estimator, pass rates and an objective."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainingArguments
from trl import GRPOConfig

from basis_rl.errors import ConfigError, nearest
from basis_rl.estimators import registry
from basis_rl.trl import objectives

MISMATCHES = ("model", "revision", "verifier")


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
        for name, (fits, wanted) in _RULES.items():
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


def _whole(least: int, *, none: bool = False) -> tuple[Callable[[Any], bool], str]:
    def fits(value: Any) -> bool:
        if value is None:
            return none
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    return fits, f"a whole number of at least {least}" + (" or None" if none else "")


def _number(
    low: float,
    high: float = math.inf,
    *,
    open_low: bool = False,
    none: bool = False,
) -> tuple[Callable[[Any], bool], str]:
    def fits(value: Any) -> bool:
        if value is None:
            return none
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return (
            math.isfinite(value) and (low < value if open_low else low <= value) and value <= high
        )

    wanted = f"a number {'above' if open_low else 'of at least'} {low:g}"
    if high < math.inf:
        wanted += f" and at most {high:g}"
    return fits, wanted + (" or None" if none else "")


def _one_of(*choices: Any) -> tuple[Callable[[Any], bool], str]:
    shown = [repr(choice) for choice in choices]
    return (
        lambda value: any(value is choice or value == choice for choice in choices),
        f"{', '.join(shown[:-1])} or {shown[-1]}",
    )


def _text(*, none: bool = False) -> tuple[Callable[[Any], bool], str]:
    def fits(value: Any) -> bool:
        return none if value is None else isinstance(value, str) and value != ""

    return fits, "a non-empty string" + (" or None" if none else "")


_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "num_generations": _whole(1),
    "num_generations_eval": _whole(1, none=True),
    "per_device_train_batch_size": _whole(1),
    "per_device_eval_batch_size": _whole(1),
    "gradient_accumulation_steps": _whole(1),
    "steps_per_generation": _whole(1, none=True),
    "generation_batch_size": _whole(1, none=True),
    "num_iterations": _whole(1),
    "max_completion_length": _whole(1),
    "max_zero_batches": _whole(0),
    "learning_rate": _number(0),
    "temperature": _number(0, open_low=True),
    "top_p": _number(0, 1, open_low=True),
    "beta": _number(0),
    "epsilon": _number(0, none=True),
    "epsilon_high": _number(0, none=True),
    "min_coverage": _number(0, 1, none=True),
    "importance_sampling_level": _one_of("token", "sequence", None),
    "loss_type": _one_of(
        "grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo", None
    ),
    "scale_rewards": _one_of("none", "batch", "group", True, False),
    "mask_truncated_completions": _one_of(True, False, None),
    "plain_logits": _one_of(True, False, None),
    "gpg_scale": _one_of(*objectives.GPG_SCALES),
    "estimator": _text(),
    "pass_rates": _text(none=True),
    "prompt_key_column": _text(none=True),
    "prompt_source_column": _text(none=True),
    "allow_mismatch": (
        lambda value: isinstance(value, list | tuple),
        f"a list of names out of {', '.join(MISMATCHES)}",
    ),
}
