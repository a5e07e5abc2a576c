"""Hooks of verl's trainers with workers apart (verl.experimental): fully async, one step off.

Their batches come with the prompts, and without the data's other columns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from basis_rl.adapters.rows import RowNames, shorten
from basis_rl.errors import BatchError, ConfigError
from basis_rl.verl.advantages import Step, next_batch
from basis_rl.verl.attach import (
    as_config,
    load_checkpoint,
    plainly,
    run_of,
    save_checkpoint,
    start_run,
    training_rows,
)
from basis_rl.verl.option_names import VERL
from basis_rl.verl.options import Config, is_ours, section, whole_number
from basis_rl.verl.rows import column_names, media_columns, with_columns
from basis_rl.verl.run import RAW_PROMPT, BasisRun, row_names
from basis_rl.verl.settings import trainer_mode, uses_basis
from basis_rl.verl.steps import Names, began_with, estimate_of, expecting, steps_so_far

# Name of a training prompt, by the hash of its content.
ByPrompt = dict[str, tuple[str, "str | None"]]
_PROMPTS, _RESUMED = "_basis_prompts", "_basis_resumed"
_HASHED = RowNames(None, None, RAW_PROMPT, words=VERL)


def create_dataloader(trainer: Any, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Check a run one step off the policy as soon as its data are there."""
    result = original(*args, **kwargs)
    # The fully asynchronous one loads data where it samples, in another process than it trains.
    if trainer_mode(as_config(trainer.config)) != "fully_async":
        start_run(trainer)
        remember_prompts(trainer)
    return result


def init_resource_pools(trainer: Any, original: Callable[[], Any]) -> Any:
    """Check a fully asynchronous run before there are workers, on data that are read for it."""
    config = as_config(trainer.config)
    if _versions_of(trainer) and uses_basis(config):
        if is_ours(config.get("algorithm") or {}):
            trainer.train_dataset = _dataset(trainer, config)
        start_run(trainer)
        remember_prompts(trainer)
        trainer.train_dataset = None
        # Of the trainer, as Ray makes its class from a copy.
        trainer._save_checkpoint = partial(save_checkpoint, trainer, trainer._save_checkpoint)
    return original()


def start_profile(trainer: Any, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Go on from a checkpoint as the first step begins: Ray itself calls what loads it."""
    if _versions_of(trainer) and run_of(trainer) and not getattr(trainer, _RESUMED, False):
        load_checkpoint(trainer, lambda: None)
        setattr(trainer, _RESUMED, True)
    return original(*args, **kwargs)


def compute_advantage(trainer: Any, original: Callable[[Any], Any], batch: Any) -> Any:
    """Name the rows of a batch by their prompts, let verl compute their advantages, and log."""
    run = run_of(trainer)
    if run is None:
        return original(batch)
    start = time.perf_counter()
    logged: dict[str, float] = {}
    with plainly():
        columns = batch.non_tensor_batch
        uids = [str(uid) for uid in columns["uid"]]
        names = _names(getattr(trainer, _PROMPTS), columns[RAW_PROMPT])
        step = _step(trainer, run, names, columns.get("min_global_steps"), logged)
        step.seconds = time.perf_counter() - start
        with next_batch(expecting(step, uids)):
            result = original(batch)
    trainer.metrics.update(logged)
    trainer.metrics["basis/time_ms"] = 1e3 * step.seconds
    return result


HOOKS: dict[str, Callable[..., Any]] = {
    "_create_dataloader": create_dataloader,
    "_init_resource_pools": init_resource_pools,
    "_fit_start_profile": start_profile,
    "_fit_compute_advantage": compute_advantage,
}


def remember_prompts(trainer: Any) -> None:
    """Keep the names of a trainer's training prompts.

    Raises
    ------
    ConfigError
        If a prompt does not tell its name.
    """
    run = run_of(trainer)
    if run is not None:
        with plainly():
            rows, column = training_rows(trainer.train_dataset, run.config)
            setattr(trainer, _PROMPTS, by_prompt(run, rows, column or RAW_PROMPT))


def by_prompt(run: BasisRun, rows: Sequence[Mapping[str, Any]], column: str) -> ByPrompt:
    """Key and source of each training prompt, by the hash of its content.

    Parameters
    ----------
    run : BasisRun
    rows : sequence of mappings
        The training data.
    column : str
        With the prompts.

    Raises
    ------
    ConfigError
        If one prompt has two names, or prompts hold more than text.
    """
    trainer = "verl's fully asynchronous and one-step-off trainers give the text of a prompt alone"
    media = set(media_columns(run.config).values()) & set(column_names(rows))
    if media:
        raise ConfigError(
            f"{trainer}, and the training data have the column {min(media)!r}: run "
            "verl.trainer.main_ppo with trainer.v1.trainer_mode=separate_async"
        )
    names, hashed = row_names(run.options, column), RowNames(None, None, column, words=VERL)
    found: ByPrompt = {}
    for row in with_columns(rows, [*names.needed, column]):
        name = names.name(row)
        before = found.setdefault(hashed.key(row), name)
        if before != name:
            raise ConfigError(
                f"{trainer}, and the prompt {shorten(row[column])} has more than one key or "
                f"source, {_shown(before)} and {_shown(name)}: leave out {VERL.key_column} and "
                f"{VERL.source_column}, or all but one of these rows"
            )
    return found


def _shown(name: tuple[str, str | None]) -> str:
    return " of ".join(repr(part) for part in name if part is not None)


def _names(known: ByPrompt, prompts: Sequence[Any]) -> Names:
    """Key and source of each row of a batch."""
    names: Names = []
    strangers: list[int] = []
    for row, prompt in enumerate(prompts):
        name = known.get(_HASHED.key({RAW_PROMPT: prompt}))
        if name is None:
            strangers.append(row)
        else:
            names.append(name)
    if strangers:
        raise BatchError(
            f"{len(strangers)} of a batch's {len(prompts)} rows have prompts that are not of the "
            f"training data (the first is {shorten(prompts[strangers[0]])}): something, such as "
            f"an agent loop, changes the column {RAW_PROMPT!r} of the rows; let it change a copy"
        )
    return names


def _step(trainer: Any, run: BasisRun, names: Names, began: Any, logged: dict[str, float]) -> Step:
    """The next batch, whose estimate is logged."""
    version, versions = None, None
    if _versions_of(trainer):
        version, versions = trainer.current_param_version, began_with(began)
    estimate = estimate_of(
        run,
        names,
        logged.update,
        step=steps_so_far(trainer),
        policy_version=version,
        row_versions=versions,
    )
    return Step(np.ones(len(names), dtype=bool), None, estimate)


def _versions_of(trainer: Any) -> bool:
    """Whether it is the fully asynchronous trainer, which counts the versions of its weights."""
    return hasattr(trainer, "current_param_version")


def _dataset(trainer: Any, config: Config) -> Any:
    """Training data of verl, as the process that samples makes them."""
    from verl.trainer.ppo.utils import create_rl_dataset

    data = section(config, "data")
    most = whole_number(config, "data.train_max_samples") or -1
    if data.get("shuffle") and whole_number(config, "data.seed", 0) is None:
        most = -1  # the other process draws others
    given = trainer.config["data"]
    return create_rl_dataset(given["train_files"], given, trainer.tokenizer, None, max_samples=most)
