"""How many prompts and rollouts a run of verl has: in a step, and in one estimate."""

from __future__ import annotations

from collections.abc import Mapping

from basis_rl.errors import ConfigError
from basis_rl.verl.option_names import VERL
from basis_rl.verl.options import Config, section, whole_number

_BATCH, _MOST = "data.train_batch_size", "data.train_max_samples"


def rows_seen(config: Config) -> int:
    """Rollouts that one estimate sees.

    The whole batch; with ``separate_async`` one of ``parameter_sync_step`` parts of it, and in the
    fully asynchronous trainer ``require_batches`` mini-batches.
    """
    fully_async = config.get("async_training")
    if isinstance(fully_async, Mapping):
        mini_batch = _needed(config, "actor_rollout_ref.actor.ppo_mini_batch_size")
        prompts = mini_batch * int(fully_async.get("require_batches", 1))
    else:
        prompts = _needed(config, _BATCH) // parts(config)
    return prompts * rollouts(config)


def parts(config: Config) -> int:
    """Parts of a batch whose advantages are computed one after the other."""
    if trainer_mode(config) != "separate_async":
        return 1
    return _needed(config, "trainer.v1.separate_async.parameter_sync_step")


def trainer_mode(config: Config) -> str:
    """Mode of the V1 trainer, "fully_async", or "legacy"."""
    if isinstance(config.get("async_training"), Mapping):
        return "fully_async"
    if not section(config, "trainer").get("use_v1", True):
        return "legacy"
    return str(section(config, "trainer", "v1").get("trainer_mode", "sync"))


def rollouts(config: Config) -> int:
    """Rollouts per prompt."""
    return _needed(config, VERL.rollouts)


def check_enough(config: Config, rows: int) -> None:
    """Refuse training data that do not fill one batch.

    verl's trainers count in whole batches, and stop at the first step (by a division by 0) where
    there is none. The fully asynchronous one has no batches of prompts.

    Parameters
    ----------
    config : mapping
    rows : int
        Of the training data.

    Raises
    ------
    ConfigError
    """
    mode = trainer_mode(config)
    if mode == "fully_async":
        return
    path, batch = _BATCH, _needed(config, _BATCH)
    fetched = whole_number(config, "data.gen_batch_size", 1) if mode == "legacy" else None
    if fetched is not None:
        path, batch = "data.gen_batch_size", fetched
    most = whole_number(config, _MOST)
    source = "data.train_files"
    if most is not None and 0 < most < batch <= rows:
        rows, source = most, _MOST
    if rows < batch:
        raise ConfigError(
            f"{path} is {batch}, and the job has {rows} training prompts ({source}), which verl "
            f"drops as no whole batch: give {path}={rows} or less (and "
            "actor_rollout_ref.actor.ppo_mini_batch_size too), or more prompts"
        )


def _needed(config: Config, path: str) -> int:
    value = whole_number(config, path, 1)
    if value is None:
        raise ConfigError(f"{path} is None: give a whole number of 1 or more")
    return value
