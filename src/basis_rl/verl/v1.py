"""Hooks of verl's V1 trainers (sync, colocate_async, separate_async): rows in TransferQueue."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from basis_rl.batch import FloatArray, IntArray
from basis_rl.verl.advantages import Step, next_batch
from basis_rl.verl.attach import load_checkpoint, plainly, run_of, save_checkpoint, start_run
from basis_rl.verl.run import BasisRun
from basis_rl.verl.steps import Names, began_with, estimate_of, expecting, steps_so_far


def init_dataloader(trainer: Any, original: Callable[[], Any]) -> Any:
    """Check the run as soon as its data are there: no worker, no model and no rollout is yet."""
    result = original()
    start_run(trainer)
    return result


def compute_advantage(
    trainer: Any, original: Callable[..., Any], batch: Any, metrics: dict[str, Any]
) -> Any:
    """Name the rows of a batch, let verl compute their advantages with them, and log."""
    run = run_of(trainer)
    if run is None:
        return original(batch, metrics=metrics)
    with plainly():
        logged: dict[str, float] = {}
        start = time.perf_counter()
        real = [row for row, tag in enumerate(batch.tags) if not tag.get("is_padding", False)]
        uids = [key.rsplit("_", 2)[0] for key in batch.keys]
        columns, waited = prompt_columns(
            run, batch.partition_id, {uids[row]: batch.keys[row] for row in real}
        )
        named = {uid: run.names.name(row) for uid, row in columns.items()}
        step = _step(trainer, run, batch, real, [named[uids[row]] for row in real], logged)
        step.seconds = time.perf_counter() - start - waited
        with next_batch(expecting(step, uids)):
            result = original(batch, metrics=metrics)
        if step.unverified is not None and step.unverified.any():
            _leave_out(result, [batch.keys[row] for row in np.flatnonzero(step.unverified)])
    metrics.update(logged)
    metrics["basis/time_ms"] = 1e3 * step.seconds
    metrics["basis/fetch_ms"] = 1e3 * waited
    return result


HOOKS: dict[str, Callable[..., Any]] = {
    "_init_dataloader": init_dataloader,
    "_compute_advantage": compute_advantage,
    "_save_checkpoint": save_checkpoint,
    "_load_checkpoint": load_checkpoint,
}


def prompt_columns(
    run: BasisRun, partition: str, rows: Mapping[str, str]
) -> tuple[dict[str, dict[str, Any]], float]:
    """Columns of one row of each prompt, and the seconds it took.

    Parameters
    ----------
    run : BasisRun
    partition : str
        Of TransferQueue.
    rows : mapping
        Key of one row for verl's name of each prompt, ``{uid}_{session}_{turn}`` for ``uid``.
    """
    import transfer_queue

    start = time.perf_counter()
    wanted = run.columns
    data = transfer_queue.kv_batch_get(
        keys=list(rows.values()), partition_id=partition, select_fields=wanted
    )
    lists = [plain_list(data[column]) for column in wanted]
    columns = {
        uid: dict(zip(wanted, values, strict=True))
        for uid, values in zip(rows, zip(*lists, strict=True), strict=True)
    }
    return columns, time.perf_counter() - start


def plain_list(values: Any) -> list[Any]:
    """Rows of a column of TransferQueue: a tensor, a stack of objects, or a list."""
    nested = getattr(values, "is_nested", False)  # tensors of different lengths have no tolist
    rows = values.tolist() if hasattr(values, "tolist") and not nested else list(values)
    return [row.data if type(row).__name__ == "NonTensorData" else row for row in rows]


def _step(
    trainer: Any,
    run: BasisRun,
    batch: Any,
    real: list[int],
    names: Names,
    logged: dict[str, float],
) -> Step:
    """The next batch, whose estimate is logged."""
    tags = [batch.tags[row] for row in real]
    rollouts, last_turns = _rollouts([batch.keys[row] for row in real])
    mask = np.zeros(len(batch.keys), dtype=bool)
    mask[real] = True

    estimate = estimate_of(
        run,
        names,
        logged.update,
        step=steps_so_far(trainer),
        rollout_ids=rollouts,
        row_versions=began_with([tag.get("min_global_steps") for tag in tags]),
    )
    return Step(
        mask,
        _lengths(tags),
        estimate,
        counts_mask=run.multi_turn,
        reward_rows=last_turns,
    )


def _rollouts(keys: list[str]) -> tuple[list[str] | None, IntArray | None]:
    """Rollout of each row, and the row of its last turn; None where every row is one."""
    split = [key.rsplit("_", 1) for key in keys]
    rollouts = [rollout for rollout, _ in split]
    if len(set(rollouts)) == len(rollouts):
        return None, None
    by_turn = sorted(range(len(keys)), key=lambda row: int(split[row][1]))
    last = {rollouts[row]: row for row in by_turn}  # later turns replace earlier ones
    return rollouts, np.array([last[rollout] for rollout in rollouts], dtype=np.int64)


def _lengths(tags: list[Mapping[str, Any]]) -> FloatArray:
    return np.array([tag.get("response_len") or 1 for tag in tags], dtype=np.float64)


def _leave_out(batch: Any, keys: list[str]) -> None:
    """Take rows out of the loss, and out of verl's metrics as its padding rows are."""
    import torch
    import transfer_queue
    from tensordict import TensorDict

    data = transfer_queue.kv_batch_get(
        keys=keys, partition_id=batch.partition_id, select_fields=["response_mask"]
    )
    empty = torch.nested.as_nested_tensor(
        [torch.zeros_like(mask) for mask in data["response_mask"].unbind()], layout=torch.jagged
    )
    # The loss is over the first, its denominator counts the second.
    fields = TensorDict({"response_mask": empty, "loss_mask": empty.clone()}, batch_size=len(keys))
    transfer_queue.kv_batch_put(keys=keys, partition_id=batch.partition_id, fields=fields)
    left_out = set(keys)
    for key, tag in zip(batch.keys, batch.tags, strict=True):
        if key in left_out:
            tag["is_padding"] = True
