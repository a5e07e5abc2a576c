"""Hooks of verl's legacy trainer (trainer.use_v1=False): rows in a `DataProto`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from basis_rl.batch import FloatArray
from basis_rl.errors import BasisError
from basis_rl.verl.advantages import Estimate, Known, Step, announce
from basis_rl.verl.attach import (
    load_checkpoint,
    plainly,
    run_of,
    save_checkpoint,
    start_run,
)
from basis_rl.verl.run import BasisRun
from basis_rl.verl.steps import Names, estimate_of, steps_so_far

_LOGGED = "_basis_logged"


def create_dataloader(trainer: Any, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Check the run as soon as its data are there; no worker is yet."""
    result = original(*args, **kwargs)
    if not hasattr(trainer, "_fit_compute_advantage"):  # see `fully_async`
        start_run(trainer)
    return result


def get_gen_batch(trainer: Any, original: Callable[..., Any], batch: Any) -> Any:
    """Remember the columns of a batch's prompts, which verl takes away before the advantages."""
    run = run_of(trainer)
    columns = batch.non_tensor_batch
    if run is not None and "uid" in columns:
        # A batch of the validation comes here too, and is never asked for.
        kept = {name: columns[name] for name in run.columns if name in columns}
        announce(_known(trainer, run, [str(uid) for uid in columns["uid"]], kept))
    return original(batch)


def update_actor(trainer: Any, original: Callable[..., Any], batch: Any) -> Any:
    """Add the estimate's metrics to the actor's, which verl logs."""
    output = original(batch)
    logged = getattr(trainer, _LOGGED, None)
    if logged:
        output.meta_info["metrics"].update(logged)
        setattr(trainer, _LOGGED, None)
    return output


HOOKS: dict[str, Callable[..., Any]] = {
    "_create_dataloader": create_dataloader,
    "_get_gen_batch": get_gen_batch,
    "_update_actor": update_actor,
    "_save_checkpoint": save_checkpoint,
    "_load_checkpoint": load_checkpoint,
}


def _known(trainer: Any, run: BasisRun, uids: list[str], columns: dict[str, Any]) -> Known:
    """Names the rows that come back from the rollout by verl's name of their prompt."""
    rows = {uid: number for number, uid in enumerate(uids)}

    def name(uid: str) -> tuple[str, str | None]:
        if uid not in rows:
            raise BasisError(
                f"verl asked for the advantage of a rollout whose prompt ({uid!r}) is not of this "
                "step's batch: use a trainer that makes its batch with _get_gen_batch"
            )
        return run.names.name({column: values[rows[uid]] for column, values in columns.items()})

    def known(index: list[str]) -> Step:
        start = time.perf_counter()
        with plainly():
            named = {uid: name(uid) for uid in dict.fromkeys(index)}
        names = [named[uid] for uid in index]
        spent = time.perf_counter() - start
        return Step(np.ones(len(index), dtype=bool), None, _estimate(trainer, run, names, spent))

    return known


def _estimate(trainer: Any, run: BasisRun, names: Names, spent: float) -> Estimate:
    logged: dict[str, float] = {}
    estimate = estimate_of(run, names, logged.update, step=steps_so_far(trainer))

    def timed(rewards: FloatArray, lengths: FloatArray) -> FloatArray:
        start = time.perf_counter()
        with plainly():
            advantages = estimate(rewards, lengths)
        logged["basis/time_ms"] = 1e3 * (spent + time.perf_counter() - start)
        setattr(trainer, _LOGGED, logged)
        return advantages

    return timed
