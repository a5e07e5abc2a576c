"""The function that verl calls for advantages, and the batch that it is meant for."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from basis_rl.batch import BoolArray, FloatArray, IntArray
from basis_rl.errors import BasisError

# Rewards and lengths (both of the rows that are no padding) to advantages.
Estimate = Callable[[FloatArray, FloatArray], FloatArray]


@dataclass
class Step:
    """What verl does not tell about a batch.

    Attributes
    ----------
    real : bool array, shape (rows,)
        False in padding rows.
    lengths : float64 array, optional
        Tokens of each real row, where verl knows them without its mask.
    estimate : callable
    counts_mask : bool
        Whether a row has tokens that are not the policy's (a tool's), so that they are counted in
        the mask; ``lengths`` is then for rows whose mask is empty.
    reward_rows : int array, shape (real rows,), optional
        Of each real row, the real row with its rollout's reward: verl scores the last turn, and a
        colocated reward model or a penalty gives every turn its own.
    seconds : float
        The adapter's own time.
    unverified : bool array, shape (rows,)
        Rows without a verdict; None until advantages were computed.
    """

    real: BoolArray
    lengths: FloatArray | None
    estimate: Estimate
    counts_mask: bool = True
    reward_rows: IntArray | None = None
    seconds: float = 0.0
    unverified: BoolArray | None = None


# From verl's names of the prompts of a batch's rows, in order, to what is known of these rows.
Known = Callable[[list[str]], Step]
_KNOWN: ContextVar[Known | None] = ContextVar("basis_rl_verl_batch", default=None)


@contextlib.contextmanager
def next_batch(known: Known) -> Iterator[None]:
    """Within it, `estimated` is called for this batch."""
    token = _KNOWN.set(known)
    try:
        yield
    finally:
        _KNOWN.reset(token)


def announce(known: Known) -> None:
    """As `next_batch`, where no method of the trainer encloses the call."""
    _KNOWN.set(known)


def estimated(
    token_level_rewards: Any,
    response_mask: Any,
    config: Any = None,
    index: Any = None,
    **more: Any,
) -> tuple[Any, Any]:
    """Advantages of a batch, as verl's own estimators return them.

    Parameters
    ----------
    token_level_rewards, response_mask : tensors, shape (rows, tokens)
    config, **more
        As verl passes them; not used.
    index : array of str
        verl's name of each row's prompt in this step.

    Returns
    -------
    advantages, returns : tensors, shape (rows, tokens)
        The same: the row's advantage in its tokens, 0 elsewhere and in padding rows.

    Raises
    ------
    BasisError
        If the adapter's hooks were not called, or the rows are others.
    """
    known = _KNOWN.get()
    if known is None or index is None:
        raise BasisError(
            "verl asked basis-rl for advantages, and the trainer's hooks were not called: run "
            "verl.trainer.main_ppo with one of its own trainers (trainer.v1.trainer_mode), or let "
            "_compute_advantage and _init_dataloader of a trainer of your own call super()"
        )
    start = time.perf_counter()
    step = known([str(uid) for uid in index])
    rewards = token_level_rewards.sum(-1).double().cpu().numpy()
    if step.reward_rows is not None:
        rewards[step.real] = rewards[step.real][step.reward_rows]
    lengths = _lengths(response_mask, step)
    of_real = step.estimate(rewards[step.real], lengths)
    advantages = np.zeros(len(rewards))
    advantages[step.real] = of_real
    step.unverified = np.isnan(rewards) & step.real
    if step.unverified.any():
        _empty(response_mask, step.unverified)
    tokens = _in_tokens(advantages, token_level_rewards, response_mask)
    step.seconds += time.perf_counter() - start
    return tokens, tokens


def _lengths(response_mask: Any, step: Step) -> FloatArray:
    """Tokens of each real row; rejection sampling empties the mask of rows that have some."""
    if step.lengths is not None and not step.counts_mask:
        return step.lengths
    counted: FloatArray = response_mask.sum(-1).double().cpu().numpy()[step.real]
    known = np.ones_like(counted) if step.lengths is None else step.lengths
    return np.where(counted > 0, counted, known)


def _empty(response_mask: Any, rows: BoolArray) -> None:
    """Take rows out of the loss, in verl's own tensor."""
    import torch

    response_mask[torch.from_numpy(rows).to(response_mask.device)] = 0


def _in_tokens(advantages: FloatArray, token_level_rewards: Any, response_mask: Any) -> Any:
    import torch

    like = token_level_rewards
    rows = torch.as_tensor(advantages, dtype=like.dtype).to(like.device)
    # In place: at 512 x 4096 a second tensor of this size costs a millisecond.
    return response_mask.to(like.dtype, copy=True).mul_(rows.unsqueeze(-1))
