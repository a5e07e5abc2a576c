"""Optional columns of a batch that some estimators cannot do without."""

from __future__ import annotations

from collections.abc import Sequence

from basis_rl.batch import RewardBatch
from basis_rl.errors import BatchError

_WHAT = {
    "lengths": "each completion's number of tokens",
    "greedy_rewards": "the reward of one greedy completion of each row's prompt",
    "values": "the critic's value of each row's prompt",
    "divergences": "how far the policy moved since each prompt's last visit",
    "row_versions": "the version of the policy that sampled each row",
    "sources": "the data set or task of each row",
}


def check_columns(batch: RewardBatch, needed: Sequence[str], estimator: str) -> None:
    """Refuse a batch without a column that the estimator needs.

    Raises
    ------
    BatchError
        Naming the first missing column and what it holds.
    """
    for name in needed:
        if getattr(batch, name) is None:
            raise BatchError(
                f"{estimator!r} needs {name}, and the batch has none: pass RewardBatch(keys, "
                f"rewards, {name}=...), {_WHAT.get(name, 'one number per row')}"
            )
