"""The estimators that the paper's figures compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from basis_rl.batch import FloatArray, RewardBatch
from basis_rl.estimators import Basis, BatchMean, Estimator, GroupMean, LeaveOneOut
from basis_rl.lab.record import Stage

GROUPS = (1, 2, 4, 8)
LEAVE_ONE_OUT_GROUPS = (2, 4, 8)


@dataclass(frozen=True)
class Compared:
    """An estimator of a figure.

    Attributes
    ----------
    name : str
        In CSV files.
    label : str
        In pictures.
    make : callable
        A new estimator for a stage.
    rollouts : int
        Rewards of each prompt that it is shown.
    """

    name: str
    label: str
    make: Callable[[Stage], Estimator]
    rollouts: int = 1


class OwnReward(Estimator):
    """GRPO's baseline with one rollout: the reward itself, so that every advantage is 0.

    `GroupMean` refuses such a batch. The paper's figures show it.
    """

    name: ClassVar[str] = "own-reward"

    def _baselines(self, rollouts: RewardBatch) -> tuple[FloatArray, dict[str, float]]:
        return rollouts.rewards.copy(), {}


def basis_paper(stage: Stage) -> Estimator:
    """The published recipe, Eq. 5 over the whole batch."""
    return Basis(stage.pass_rates, preset="paper")


def the_papers() -> list[Compared]:
    """BASIS and what the paper compares it with."""
    return [
        Compared("basis-paper", "BASIS", basis_paper),
        Compared("batch-mean", "REINFORCE++", lambda _: BatchMean()),
        Compared("group-mean-1", "GRPO 1", lambda _: OwnReward()),
        *(_group_mean(size) for size in GROUPS[1:]),
        *(_leave_one_out(size) for size in LEAVE_ONE_OUT_GROUPS),
    ]


def compared(stage: Stage) -> list[Compared]:
    """The paper's estimators that the stage has rollouts for, and this package's default."""
    papers = [c for c in the_papers() if c.rollouts <= stage.shown.shape[1]]
    if stage.pass_rates.kind == "rates":
        return papers  # without the number of rollouts nothing can be smoothed
    return [*papers, Compared("basis-robust", "BASIS robust", basis_robust)]


def basis_robust(stage: Stage) -> Estimator:
    """Preset of the package: smoothed pass rates and one common shift."""
    return Basis(stage.pass_rates)


def named(everyone: Sequence[Compared], *names: str) -> list[Compared]:
    """Some of them, in the order of the names; a missing one is left out."""
    by_name = {c.name: c for c in everyone}
    return [by_name[name] for name in names if name in by_name]


def _group_mean(size: int) -> Compared:
    return Compared(f"group-mean-{size}", f"GRPO {size}", lambda _: GroupMean(), size)


def _leave_one_out(size: int) -> Compared:
    return Compared(f"leave-one-out-{size}", f"RLOO {size}", lambda _: LeaveOneOut(), size)
