"""Training the demo's model with one method: BASIS, or what it is compared with."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from basis_rl.demo.display import Display
from basis_rl.demo.policy import ANSWER_TOKENS, SAMPLING, Policy
from basis_rl.demo.settings import GROUP, DemoSettings
from basis_rl.passrates import PassRates
from basis_rl.prompts import Prompt
from basis_rl.verifiers import NamedVerifier, trl_reward

WEIGHTS = "weights"
WARM_UP = 2  # steps
# What TRL logs -> its name in the report.
METRICS = {
    "reward": "reward",
    "basis/baseline_mean": "baseline",
    "basis/tau": "tau",
    "basis/beta": "beta",
    "basis/advantage_std": "advantage_std",
    "basis/reward_std": "reward_std",
    "entropy": "entropy",
    "completions/mean_length": "mean_length",
    "grad_norm": "grad_norm",
    "step_time": "seconds",
}


@dataclass(frozen=True)
class Method:
    """An estimator and how many rollouts of a prompt it wants."""

    label: str
    estimator: str
    rollouts_per_prompt: int


METHODS = {
    "basis": Method("BASIS", "basis", 1),
    "grpo": Method("GRPO", "group-mean", GROUP),
    "reinforce++": Method("REINFORCE++ (batch mean)", "batch-mean", 1),
    "zero": Method("no baseline", "zero", 1),
}


def train(
    method: Method,
    policy: Policy,
    prompts: Sequence[Prompt],
    table: PassRates,
    verifier: NamedVerifier,
    settings: DemoSettings,
    folder: Path,
    display: Display,
) -> dict[str, Any]:
    """Train, going on from a checkpoint in ``folder`` if there is one.

    The trained weights (bfloat16) are left in ``folder/weights``.

    Returns
    -------
    dict
        ``history``: one dict of metrics for each step.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C, once the checkpoint is written.
    """
    from datasets import Dataset
    from transformers import PrinterCallback, ProgressCallback

    from basis_rl.train import checkpoints
    from basis_rl.train.interrupt import StopOnSignal
    from basis_rl.trl import BasisTrainer

    stop = StopOnSignal(_write_at_once)
    found = checkpoints.find(folder)
    with stop, display.bar(settings.steps, "steps") as update:
        model, tokenizer = policy.for_training()
        trainer = BasisTrainer(
            model,
            trl_reward(verifier),
            configuration(method, settings, folder),
            Dataset.from_list([prompt.columns for prompt in prompts]),
            processing_class=tokenizer,
            pass_rates=table if method.estimator == "basis" else None,
            callbacks=[stop, _recorder(update)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.remove_callback(ProgressCallback)
        trainer.train(resume_from_checkpoint=str(found.newest) if found.newest else None)
    if trainer.state.global_step < settings.steps:
        raise KeyboardInterrupt
    _save(trainer.accelerator.unwrap_model(trainer.model), tokenizer, folder)
    history = [_step(entry) for entry in trainer.state.log_history if "reward" in entry]
    return {"history": history}


def configuration(method: Method, settings: DemoSettings, folder: Path) -> Any:
    """`BasisConfig` of a training run of the demo."""
    import torch

    from basis_rl.trl import BasisConfig

    return BasisConfig(
        output_dir=str(folder),
        estimator=method.estimator,
        num_generations=method.rollouts_per_prompt,
        num_generations_eval=method.rollouts_per_prompt,
        prompt_source_column="task",
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=1,
        max_steps=settings.steps,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",  # else the last few batches decide what is tested
        warmup_steps=min(WARM_UP, settings.steps - 1),
        temperature=SAMPLING.temperature,
        max_completion_length=ANSWER_TOKENS,
        seed=settings.seed,
        use_cpu=not torch.cuda.is_available(),
        bf16=True,
        gradient_checkpointing=False,
        logging_steps=1,
        report_to="none",
        save_strategy="no",  # Ctrl-C writes a checkpoint all the same
        disable_tqdm=True,
    )


def _recorder(update: Any) -> Any:
    from transformers import TrainerCallback

    class Recorder(TrainerCallback):
        """Shows the reward of each step."""

        def on_log(
            self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any
        ) -> None:
            if logs and "reward" in logs:
                update(state.global_step, f"reward {float(logs['reward']):.2f}")

    return Recorder()


def _write_at_once(line: str) -> None:
    # From a signal handler: the console may be in the middle of printing something else.
    os.write(2, f"\n{line}\n".encode())


def _step(entry: dict[str, Any]) -> dict[str, float]:
    """A step's metrics under the report's names; what is missing or not finite is left out."""
    row = {"step": entry["step"]}
    for name, ours in METRICS.items():
        value = entry.get(name)
        if value is not None and math.isfinite(float(value)):
            row[ours] = float(value)
    return row


def _save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write the weights, and drop the checkpoints that they make superfluous."""
    import torch

    weights = folder / WEIGHTS
    shutil.rmtree(weights, ignore_errors=True)
    model.to(torch.bfloat16).save_pretrained(weights)
    tokenizer.save_pretrained(weights)
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
