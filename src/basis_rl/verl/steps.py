"""What the hooks of all trainers make of a batch: its rewards with names, and the next estimate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from basis_rl.batch import FloatArray, IntArray, RewardBatch
from basis_rl.errors import BasisError
from basis_rl.verl.advantages import Estimate, Known, Step
from basis_rl.verl.run import BasisRun

Names = list[tuple[str, "str | None"]]


def estimate_of(
    run: BasisRun,
    names: Names,
    use: Callable[[dict[str, float]], None],
    *,
    step: int,
    policy_version: int | None = None,
    rollout_ids: list[str] | None = None,
    row_versions: IntArray | None = None,
) -> Estimate:
    """Advantages of a batch's rewards, once verl has them.

    Parameters
    ----------
    run : BasisRun
    names : list of (key, source)
        Of each row.
    use : callable
        Is given the metrics.
    step : int
        Steps before this one.
    policy_version : int, optional
        By default the step.
    rollout_ids, row_versions : optional
        As in `RewardBatch`.
    """

    def estimate(rewards: FloatArray, lengths: FloatArray) -> FloatArray:
        batch = RewardBatch(
            [key for key, _ in names],
            rewards,
            sources=_sources(names),
            rollout_ids=rollout_ids,
            lengths=lengths,
            step=step,
            policy_version=step if policy_version is None else policy_version,
            row_versions=row_versions,
        )
        advantages, metrics = run.advantages(batch)
        use(metrics)
        return advantages

    return estimate


def expecting(step: Step, uids: list[str]) -> Known:
    """The step, if verl computes advantages for the rows that it was made of."""

    def known(index: list[str]) -> Step:
        if index != uids:
            raise BasisError(
                f"verl asked for advantages of {len(index)} rows that are not those of its batch "
                f"of {len(uids)}: remove what takes rows out of a batch, or sorts it, within "
                "_compute_advantage"
            )
        return step

    return known


def steps_so_far(trainer: Any) -> int:
    """Steps before this one, which verl counts from 1; the version of the policy that trains."""
    return int(trainer.global_steps) - 1


def began_with(versions: Sequence[Any] | None) -> IntArray | None:
    """Version of the policy that began each row, where verl knows it."""
    if versions is None or any(version is None for version in versions):
        return None
    return np.array([int(version) for version in versions], dtype=np.int64)


def _sources(names: Names) -> list[str] | None:
    """Sources of named rows; None where no column has them."""
    if not names or names[0][1] is None:
        return None
    return [str(source) for _, source in names]
