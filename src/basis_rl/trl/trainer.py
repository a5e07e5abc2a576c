"""`BasisTrainer`: TRL's `GRPOTrainer` with advantages from an estimator."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer
from trl.trainer.utils import RepeatSampler

from basis_rl.adapters.record import RewardRecord
from basis_rl.adapters.rows import RowNames
from basis_rl.adapters.state import SAMPLER, load_state, save_state
from basis_rl.adapters.watch import EmptyLossWatch, ZeroAdvantageWatch
from basis_rl.batch import BoolArray, FloatArray
from basis_rl.errors import BasisError, ConfigError
from basis_rl.estimators.base import Estimator
from basis_rl.trl.advantages import centred, in_the_loss, make_batch
from basis_rl.trl.config import BasisConfig
from basis_rl.trl.logprobs import plain_log_probs, supports_plain_logits
from basis_rl.trl.objectives import ROW_NORMALISED
from basis_rl.trl.option_names import TRL
from basis_rl.trl.paper import PAPER
from basis_rl.trl.prompt_sampler import SpreadSampler, make_prompt_sampler
from basis_rl.trl.sampler import EpochSampler
from basis_rl.trl.setup import check_data, check_run, make_estimator, make_record

if TYPE_CHECKING:
    from basis_rl.passrates import PassRates


class BasisTrainer(GRPOTrainer):  # type: ignore[misc]
    """`GRPOTrainer` whose advantages come from an estimator, over the whole generation batch.

    Generation, rewards, losses, logging and PEFT are TRL's. In evaluation the estimator is left
    alone: advantages are rewards minus the batch's mean.

    Parameters
    ----------
    model, reward_funcs, train_dataset, *more, **kwargs
        As in `GRPOTrainer`.
    args : BasisConfig, optional
    pass_rates : PassRates, optional
        The table itself, in place of the configuration's path.
    estimator : Estimator, optional
        An estimator, in place of the configuration's name, options and pass rates.

    Attributes
    ----------
    estimator : Estimator
    pass_rates : PassRates or None
    prompt_sampler : PromptSampler or None

    Raises
    ------
    ConfigError
        If the configuration is not a `BasisConfig`, or something is given twice.
    PassRatesError
        If the pass rates do not fit the run: too few of the training prompts, another model or
        verifier.
    BasisError
        In training: all advantages zero, or the estimator not called.
    """

    _tag_names: ClassVar[list[str]] = ["trl", "grpo", "basis"]
    _name = "BASIS"
    _paper: ClassVar[dict[str, str]] = PAPER

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: BasisConfig | None = None,
        train_dataset: Any = None,
        *more: Any,
        pass_rates: PassRates | None = None,
        estimator: Estimator | None = None,
        **kwargs: Any,
    ) -> None:
        if args is None:
            name = model if isinstance(model, str) else model.config._name_or_path
            args = BasisConfig(f"{name.rstrip('/').split('/')[-1] or 'model'}-BASIS")
        if not isinstance(args, BasisConfig):
            raise ConfigError(
                f"args is a {type(args).__name__}: BasisTrainer needs a BasisConfig, which takes "
                "the same arguments and more"
            )
        # Before the model is loaded: what is wrong with the table shows at once.
        self.estimator, self.pass_rates = make_estimator(args, pass_rates, estimator)
        self._row_names = RowNames(args.prompt_key_column, args.prompt_source_column, words=TRL)
        check_data(args, self._row_names, train_dataset)
        check_run(
            args,
            self.estimator,
            self.pass_rates,
            self._row_names,
            model=model,
            reward_funcs=reward_funcs,
            train_dataset=train_dataset,
        )
        self.prompt_sampler = make_prompt_sampler(
            args, self.estimator, self._row_names, train_dataset
        )
        self._zero_watch = ZeroAdvantageWatch(args.max_zero_batches, TRL)
        self._empty_watch = EmptyLossWatch(args.max_zero_batches, TRL)
        self._estimates_made = 0
        self._rewards: torch.Tensor | None = None
        self._lengths: list[int] = []
        super().__init__(model, reward_funcs, args, train_dataset, *more, **kwargs)
        self._record: RewardRecord | None = make_record(args, model, reward_funcs)
        self._plain_logits = self._wants_plain_logits()

    # Rewards and advantages

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> torch.Tensor:
        per_function: torch.Tensor = super()._calculate_rewards(
            inputs, prompts, completions, completion_ids_list
        )
        # TRL's weighted sum; no verdict only where no function gave one.
        rewards = (per_function * self.reward_weights.to(per_function.device)).nansum(dim=1)
        rewards[torch.isnan(per_function).all(dim=1)] = torch.nan
        self._rewards = rewards
        self._lengths = [max(len(tokens), 1) for tokens in completion_ids_list]
        return per_function

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        training = self.model.training
        mode = "train" if training else "eval"
        # Named before generation: tools and environments may change the rows.
        names = [self._row_names.name(row) for row in inputs] if training else []
        output = super()._generate_and_score_completions(inputs)
        if self._rewards is None:
            return output  # training_step reports it
        rewards = self._rewards.cpu().double().numpy()
        self._rewards = None
        if training:
            advantages, baselines = self._estimated(rewards, names)
        else:
            advantages, baselines = centred(rewards)
        self._write_table(advantages, baselines)
        self._put_advantages(output, advantages, ~np.isnan(rewards))
        if training:
            tokens = int(output["num_items_in_batch"])
            self._empty_watch.see(tokens, self.mask_truncated_completions)
        if (self.num_generations if training else self.num_generations_eval) == 1:
            # A group of one has no spread.
            self._metrics[mode].pop("frac_reward_zero_std", None)
        if training and self.args.objective == "gpg":
            # Without old log-probabilities TRL's ratio is 1, and the loss is -A log pi.
            output.pop("old_per_token_logps", None)
        return output

    def _estimated(
        self, rewards: FloatArray, names: list[tuple[str, str | None]]
    ) -> tuple[FloatArray, FloatArray]:
        """Advantages and baselines of the generation batch of all processes, alike on each."""
        local = [(*name, length) for name, length in zip(names, self._lengths, strict=True)]
        batch = make_batch(gather_object(local), rewards, step=self.state.global_step)
        if self._record is not None and self.is_world_process_zero():
            self._record.write(batch)
        estimate = self.estimator.estimate(batch)
        self._estimates_made += 1
        self._zero_watch.see(batch, estimate.advantages, self.estimator.name)
        metrics = dict(estimate.metrics)
        if self.pass_rates is not None:
            metrics.setdefault("coverage", self.pass_rates.coverage(batch.keys))
        weights = None
        if self.prompt_sampler is not None:
            weights, drawn = self.prompt_sampler.used(batch.keys)
            metrics |= {f"sampler_{name}": value for name, value in drawn.items()}
        advantages, more = in_the_loss(self.args, batch, estimate, weights)
        metrics |= more
        for name, value in metrics.items():
            self._metrics["train"][f"basis/{name}"].append(float(value))
        return advantages, estimate.baselines

    def _write_table(self, advantages: FloatArray, baselines: FloatArray) -> None:
        """Replace TRL's advantages of this batch in the completions table; add baselines."""
        table = self._logs["advantages"]
        for _ in range(min(len(table), len(advantages))):
            table.pop()
        table.extend(advantages.tolist())
        self._logs["extra"]["baseline"].extend(baselines.tolist())

    def _put_advantages(self, output: Any, advantages: FloatArray, verified: BoolArray) -> None:
        """Put this process's rows into TRL's batch; rows without a verdict leave the loss."""
        rows = len(output["advantages"])
        first = self.accelerator.process_index * rows
        mine = slice(first, first + rows)
        if not verified.all():
            mask = output["completion_mask"]
            kept = torch.as_tensor(verified[mine], device=mask.device, dtype=mask.dtype)
            mask = output["completion_mask"] = mask * kept.unsqueeze(1)
            if "tool_mask" in output:
                mask = mask * output["tool_mask"]
            output["num_items_in_batch"] = self.accelerator.gather(mask.sum()).sum()
            if self.loss_type in ROW_NORMALISED:
                # These losses divide by all rows, masked or not (a KL term too, still).
                advantages = advantages * (len(verified) / verified.sum())
        # The type first: not every device has float64.
        old = output["advantages"]
        output["advantages"] = torch.as_tensor(advantages[mine], dtype=old.dtype).to(old.device)

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """One step of TRL's; then make sure that the advantages were the estimator's."""
        loss: torch.Tensor = super().training_step(*args, **kwargs)
        if not self._estimates_made:
            raise BasisError(
                f"estimator {self.estimator.name!r} was not called in the first training step: "
                "something replaces _generate_and_score_completions or _calculate_rewards of "
                "BasisTrainer; remove it, or call super() there"
            )
        return loss

    # Checkpoints and resuming

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        sampler = super()._get_train_sampler(dataset)
        if not isinstance(sampler, RepeatSampler):
            return sampler
        if self.prompt_sampler is not None:
            return SpreadSampler(sampler, self.prompt_sampler, lambda: self.state.epoch)
        return EpochSampler(sampler, lambda: self.state.epoch)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save:
            save_state(self.estimator, output_dir)
            if self.prompt_sampler is not None:
                save_state(self.prompt_sampler, output_dir, SAMPLER)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        load_state(self.estimator, checkpoint, names=TRL)
        if self.prompt_sampler is not None:
            load_state(self.prompt_sampler, checkpoint, SAMPLER, names=TRL)
        done = self.state.global_step * self.args.gradient_accumulation_steps
        every = self.args.steps_per_generation * self.num_iterations
        if done % every:
            warnings.warn(
                f"{checkpoint} lies within a generation batch: TRL samples its prompts again, and "
                "the estimator sees them twice; make save_steps x gradient_accumulation_steps a "
                f"multiple of steps_per_generation x num_iterations = {every}",
                UserWarning,
                stacklevel=2,
            )

    # Log-probabilities

    def _wants_plain_logits(self) -> bool:
        wanted = self.args.plain_logits
        if wanted is None:
            wanted = self.accelerator.device.type == "cpu"
        fused_only = self._is_vlm or self.aux_loss_enabled or self.args.cast_lm_head_to_fp32
        model = self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model
        return bool(wanted and not fused_only and supports_plain_logits(model))

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **kwargs: Any,
    ) -> Any:
        if not self._plain_logits:
            return super()._get_per_token_logps_and_entropies(
                model,
                input_ids,
                attention_mask,
                logits_to_keep,
                batch_size=batch_size,
                compute_entropy=compute_entropy,
                **kwargs,
            )
        with self.accelerator.autocast():
            log_probs, entropies = plain_log_probs(
                model,
                input_ids,
                attention_mask,
                logits_to_keep,
                temperature=self.temperature,
                batch_size=batch_size,
                entropy=compute_entropy,
                entropy_gradient=self._entropy_bonus_enabled,
            )
        return log_probs, entropies, None
