"""Training as a configuration says: start, stop, resume, save."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from basis_rl.errors import BasisError, ConfigError
from basis_rl.train import checkpoints, lock, resolved
from basis_rl.train.config import TrainConfig
from basis_rl.train.plan import Plan, as_rows, prepare

Echo = Callable[[str], None]


def check(config: TrainConfig, echo: Echo) -> Plan:
    """Validate a run without loading weights, and say what it would do.

    Raises
    ------
    BasisError
        One line that names the key and the remedy.
    """
    plan = prepare(config)
    check_model(plan)
    found = checkpoints.find(config.output_dir)
    resolved.check(config.output_dir, plan.resolved())
    for line in summary(plan, found):
        echo(line)
    return plan


def train(config: TrainConfig, echo: Echo) -> Path | None:
    """Train, going on from the newest complete checkpoint of the output folder.

    Parameters
    ----------
    config : TrainConfig
    echo : callable
        Told what is done and what is written where; silent on all processes but the first.

    Returns
    -------
    Path or None
        Folder of the final model; None if the run was stopped before its end.

    Raises
    ------
    BasisError
        One line that names the key and the remedy.
    """
    is_first = int(os.environ.get("RANK", "0")) == 0
    say: Echo = echo if is_first else _silent
    plan = check(config, say)
    with lock.hold(config.output_dir) if is_first else contextlib.nullcontext():
        found = checkpoints.find(config.output_dir)
        for path, reason in found.skipped.items():
            say(f"passing over {path}: {reason}")
        if is_first:
            say(f"configuration: {resolved.write(config.output_dir, plan.resolved())}")
        return _run(plan, found, say)


def _run(plan: Plan, found: checkpoints.Found, say: Echo) -> Path | None:
    import torch
    from transformers import PrinterCallback, ProgressCallback

    from basis_rl.train.interrupt import StopOnSignal
    from basis_rl.train.progress import ShowProgress

    output_dir = Path(plan.config.output_dir)
    progress = ShowProgress(output_dir, say)
    stop = StopOnSignal(progress.say)
    # From here on: loading a large model takes long, and a signal must not be lost.
    with stop:
        trainer = make_trainer(plan, callbacks=[stop, progress])
        trainer.remove_callback(ProgressCallback)
        trainer.remove_callback(PrinterCallback)
        try:
            trainer.train(resume_from_checkpoint=str(found.newest) if found.newest else None)
        except torch.OutOfMemoryError as error:
            raise ConfigError(
                "the GPU's memory is too small: halve trl.per_device_train_batch_size and double "
                "trl.gradient_accumulation_steps, or set trl.gradient_checkpointing to true"
            ) from error
        finally:
            progress.close()
    for verifier in plan.verifiers:
        verifier.close()
        if verifier.failures:
            counts = ", ".join(f"{count} {kind}" for kind, count in verifier.failures.items())
            say(f"verifier {verifier.name}: failed on some completions (reward 0): {counts}")
    say(f"metrics: {progress.path}")
    if stop.requested and trainer.state.global_step < trainer.state.max_steps:
        return None
    final = output_dir / checkpoints.FINAL
    trainer.save_model(str(final))
    say(f"model: {final}")
    return final


def make_trainer(plan: Plan, *, callbacks: list[Any]) -> Any:
    """Load the model and build the trainer of a plan."""
    from datasets import Dataset

    from basis_rl.trl import BasisTrainer

    lora = plan.config.model.lora
    adapter = None
    if lora is not None:
        from peft import LoraConfig

        adapter = LoraConfig(
            r=lora.r,
            lora_alpha=lora.alpha,
            lora_dropout=lora.dropout,
            target_modules=lora.target_modules,
            task_type="CAUSAL_LM",
        )
    evaluation = Dataset.from_list(as_rows(plan.evaluation)) if plan.evaluation else None
    try:
        return BasisTrainer(
            model=plan.config.model.name,
            reward_funcs=plan.functions(),
            args=plan.arguments,
            train_dataset=Dataset.from_list(as_rows(plan.train)),
            eval_dataset=evaluation,
            pass_rates=plan.pass_rates,
            peft_config=adapter,
            callbacks=callbacks,
        )
    except BasisError:
        raise
    # What TRL, PEFT and the loggers find out only now: a module that LoRA cannot find, a package
    # that is not installed, a damaged file of weights, too little memory.
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ConfigError(
            f"the trainer refuses this configuration ({reason}): change what it names under "
            "model or trl; BASIS_RL_TRACEBACK=1 shows where"
        ) from error


def check_model(plan: Plan) -> None:
    """Refuse a model whose configuration or tokenizer cannot be loaded, weights left alone.

    Raises
    ------
    ConfigError
        If it is not found, or chat prompts meet a tokenizer without a chat template.
    """
    from transformers import AutoConfig, AutoTokenizer

    model = plan.config.model
    try:
        AutoConfig.from_pretrained(model.name, revision=model.revision or "main")
        tokenizer = AutoTokenizer.from_pretrained(model.name, revision=model.revision or "main")
    # Each way to fail has its own type: a missing folder, the hub, a damaged file.
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ConfigError(
            f"model.name is {model.name!r}, which cannot be loaded ({reason}): name a folder with "
            "a model and its tokenizer, or a hub id"
        ) from None
    if isinstance(plan.train[0].prompt, list) and not tokenizer.chat_template:
        raise ConfigError(
            f"the prompts are chat messages and the tokenizer of {model.name} has no chat template:"
            " use text prompts (data.template), or a model with a template"
        )


def summary(plan: Plan, found: checkpoints.Found) -> list[str]:
    """What a run will do, one line a topic."""
    config, arguments = plan.config, plan.arguments
    kind = "chat" if isinstance(plan.train[0].prompt, list) else "text"
    sources = {prompt.source for prompt in plan.train} - {None}
    lora = config.model.lora
    batch = arguments.generation_batch_size
    lines = [
        f"model: {config.model.name} ({config.model.dtype}, "
        + (f"LoRA of rank {lora.r})" if lora else "all parameters)"),
        f"prompts: {len(plan.train)} to train on ({kind}"
        + (f", {len(sources)} sources" if sources else "")
        + f"), {len(plan.evaluation)} to evaluate on",
        "reward: " + " + ".join(f"{item.weight:g} x {item.name}" for item in config.reward.items()),
        f"estimator: {config.estimator_name} {config.estimator_options or ''}".rstrip()
        + f", objective {config.objective or 'as set under trl'}",
    ]
    if plan.pass_rates is not None and config.table is not None:
        lines.append(
            f"pass rates: {config.table.path}, {len(plan.pass_rates.keys)} prompts, "
            f"{plan.pass_rates.coverage([p.key for p in plan.train]):.1%} of the training prompts "
            "known"
        )
    lines.append(
        f"batch: {batch} rollouts, {arguments.num_generations} per prompt; "
        f"learning rate {arguments.learning_rate:g}"
        + (f"; prompts drawn by {arguments.prompt_sampler}" if arguments.prompt_sampler else "")
    )
    lines.append(
        f"resuming from {found.newest}" if found.newest else f"starting afresh: {config.output_dir}"
    )
    return lines


def _silent(message: str) -> None:
    return None
