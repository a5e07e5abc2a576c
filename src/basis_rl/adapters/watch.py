"""What stops a run that trains nothing: advantages all zero, or a loss of no token."""

from __future__ import annotations

import warnings

import numpy as np

from basis_rl.adapters.option_names import OptionNames
from basis_rl.batch import FloatArray, RewardBatch
from basis_rl.errors import BasisError

WARN_AFTER = 5  # generation batches in a row that teach nothing


class _Watch:
    """Counts generation batches in a row that teach nothing.

    Parameters
    ----------
    limit : int
        Batches in a row before the error; 0 never stops.
    names : OptionNames
    """

    def __init__(self, limit: int, names: OptionNames) -> None:
        self.limit = limit
        self._names = names
        self.in_a_row = 0

    def _warn_or_stop(self, text: str) -> None:
        if self.limit and self.in_a_row >= self.limit:
            raise BasisError(f"{text}, or raise {self._names.max_zero_batches}={self.limit}")
        if self.in_a_row == WARN_AFTER:
            warnings.warn(text, UserWarning, stacklevel=3)


class EmptyLossWatch(_Watch):
    """Counts generation batches in a row that have no token in the loss."""

    def see(self, tokens: int, masks_truncated: bool) -> None:
        """Look at one batch, of all processes.

        Parameters
        ----------
        tokens : int
            Completion tokens in the loss.
        masks_truncated : bool
            Whether truncated completions are left out.

        Raises
        ------
        BasisError
            After ``limit`` batches.
        """
        if tokens:
            self.in_a_row = 0
            return
        self.in_a_row += 1
        remedy = (
            "completions cut off at max_completion_length are left out "
            "(mask_truncated_completions=True): raise max_completion_length, or set "
            "mask_truncated_completions to False"
            if masks_truncated
            else "look at the completions with log_completions=True"
        )
        self._warn_or_stop(
            f"no token has been in the loss for {self.in_a_row} generation batches in a row, so "
            f"nothing is trained; {remedy}"
        )


class ZeroAdvantageWatch(_Watch):
    """Counts generation batches in a row whose advantages are all zero."""

    def see(self, batch: RewardBatch, advantages: FloatArray, estimator: str) -> None:
        """Look at one batch.

        A batch without advantages can be right: all answers wrong with baseline 0, or every
        prompt's rollouts alike with a group baseline. That warns after `WARN_AFTER` batches and
        stops after ``limit``. Rewards that do differ must give an advantage to somebody.

        Raises
        ------
        BasisError
            If comparable rewards differ and all advantages are zero, or after ``limit`` batches.
        """
        if np.any(np.abs(advantages) > 1e-12):
            self.in_a_row = 0
            return
        low, high = comparable_range(batch)
        if high > low:
            raise BasisError(
                f"all {len(batch)} advantages are zero while rewards differ (from {low:g} to "
                f"{high:g}): estimator {estimator!r} gives no signal here; one that compares a "
                f"prompt's own rollouts needs {self._names.rollouts} of 2 or more"
            )
        self.in_a_row += 1
        self._warn_or_stop(
            f"all advantages have been zero for {self.in_a_row} generation batches in a row (the "
            f"last rewards: {_distinct(batch.rewards)}): check the reward function, and whether "
            "the prompts are all too hard or too easy"
        )


def comparable_range(batch: RewardBatch) -> tuple[float, float]:
    """Lowest and highest reward of the prompt whose rewards differ most.

    With one rollout per prompt, of the batch.
    """
    seen = ~np.isnan(batch.rewards)
    rewards = batch.rewards[seen]
    groups = np.unique(np.array(batch.keys)[seen], return_inverse=True)[1]
    if not len(rewards) or groups.max() == len(rewards) - 1:
        groups = np.zeros(len(rewards), dtype=np.int64)
    low = np.full(groups.max(initial=0) + 1, np.inf)
    high = np.full_like(low, -np.inf)
    np.minimum.at(low, groups, rewards)
    np.maximum.at(high, groups, rewards)
    widest = int(np.argmax(high - low))
    return float(low[widest]), float(high[widest])


def _distinct(rewards: FloatArray) -> str:
    values = np.unique(rewards[~np.isnan(rewards)])[:3]
    return ", ".join(f"{value:g}" for value in values) or "none"
