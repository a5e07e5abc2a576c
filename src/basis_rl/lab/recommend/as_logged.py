"""Judging baselines by rewards as they were logged, with as few as one rollout a visit."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from basis_rl.batch import FloatArray, IntArray, RewardBatch
from basis_rl.estimators.base import Estimator
from basis_rl.lab.recommend.facts import within_variance
from basis_rl.lab.recommend.noise import Shown
from basis_rl.lab.record import RewardRecord

if TYPE_CHECKING:
    from basis_rl.lab.contenders import Contender

# Batches in which one reward is changed, to see whether it moves its own baseline.
CHANGED = 128
ENOUGH_ZEROS = 8  # batches without any effect: there is none
_ROUNDING = 1e-9


def replay_as_logged(
    record: RewardRecord,
    contenders: Sequence[Contender],
    *,
    batch_size: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Shown:
    r"""Noise of each baseline where no other rollouts tell the prompts' values V.

    ``E (r - b)^2 = Var(r) + (b - V)^2`` for a baseline that does not know r: each reward is the
    oracle of its own baseline, and differences between baselines are those of their squared
    errors. A baseline that its own reward moves by ``b' = db/dr`` gets ``2 Var(r) E b'`` added,
    which the reward would otherwise hide; b' is measured by changing one reward in up to 128
    batches.

    Parameters
    ----------
    record : RewardRecord
        With its pass rates, if a contender needs them.
    contenders : sequence of Contender
        All rollouts of a visit are shown to them.
    batch_size : int, optional
        Visits in a batch, in the record's order; by default the record's own steps.
    progress : callable, optional
        Called with the batches done and their number, over all contenders.
    """
    batches = _batches(record, batch_size)
    within = within_variance(record)
    spread = within if np.isfinite(within) else float(record.rewards.var())
    noise = np.empty((len(contenders), len(record.rewards)))
    for number, contender in enumerate(contenders):

        def done(batch: int, number: int = number) -> None:
            if progress is not None:
                progress(number * len(batches) + batch, len(contenders) * len(batches))

        baselines, slope = _run(contender, batches, record, done)
        noise[number] = (record.rewards - baselines) ** 2 + 2.0 * spread * slope
    counts = record.counts
    return Shown(
        [contender.name for contender in contenders],
        noise,
        np.repeat(record.prompt, counts),
        np.repeat(record.step, counts),
        np.repeat(visit_numbers(record.prompt), counts),
        # A policy that moves fast looks like chance where nothing else tells them apart.
        within if counts.max() > 1 else float("nan"),
    )


def visit_numbers(prompt: IntArray) -> IntArray:
    """Which visit of its prompt each visit is, from 0."""
    order = np.argsort(prompt, kind="stable")
    ordered = prompt[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    sizes = np.diff(np.append(starts, len(prompt)))
    numbers = np.empty(len(prompt), dtype=np.int64)
    numbers[order] = np.arange(len(prompt)) - np.repeat(starts, sizes)
    return numbers


def _batches(record: RewardRecord, batch_size: int | None) -> list[slice]:
    """Rewards of each batch."""
    if batch_size is None:
        cuts = np.flatnonzero(np.diff(record.step)) + 1
    else:
        cuts = np.arange(batch_size, len(record), batch_size)
    edges = record.starts[np.r_[0, cuts, len(record)]].tolist()
    return [slice(low, high) for low, high in itertools.pairwise(edges)]


def _run(
    contender: Contender,
    batches: list[slice],
    record: RewardRecord,
    done: Callable[[int], None],
) -> tuple[FloatArray, float]:
    """Baseline of every reward, and the mean slope of a baseline in its own reward."""
    rng = np.random.default_rng(0)
    estimator = contender.make(record.pass_rates)
    changed = set(np.linspace(0, len(batches) - 1, CHANGED).astype(int).tolist())
    prompt = np.repeat(record.prompt, record.counts)
    baselines = np.empty(len(record.rewards))
    slopes: list[float] = []
    for number, rows in enumerate(batches):
        batch = _batch(record, prompt[rows], rows, number)
        before = None
        if number in changed and (len(slopes) < ENOUGH_ZEROS or any(slopes)):
            # The table is never changed, and may be large.
            before = copy.deepcopy(estimator, {id(record.pass_rates): record.pass_rates})
        baselines[rows] = estimator.estimate(batch).baselines
        if before is not None:
            at = int(rng.integers(len(batch)))
            slopes.append(_slope(before, batch, at, float(baselines[rows][at])))
        done(number + 1)
    return baselines, float(np.mean(slopes))


def _slope(estimator: Estimator, batch: RewardBatch, at: int, baseline: float) -> float:
    """Change of a row's baseline by a change of its reward, to 0 or 1 if it is the other."""
    change = -1.0 if batch.rewards[at] == 1.0 else 1.0
    rewards = batch.rewards.copy()
    rewards[at] += change
    other = RewardBatch(
        batch.keys,
        rewards,
        sources=batch.sources,
        lengths=batch.lengths,
        step=batch.step,
        policy_version=batch.policy_version,
    )
    slope = float((estimator.estimate(other).baselines[at] - baseline) / change)
    return slope if abs(slope) > _ROUNDING else 0.0


def _batch(record: RewardRecord, prompt: IntArray, rows: slice, number: int) -> RewardBatch:
    prompts = prompt.tolist()
    return RewardBatch(
        [record.keys[i] for i in prompts],
        record.rewards[rows],
        sources=None if record.sources is None else [record.sources[i] for i in prompts],
        lengths=None if record.lengths is None else record.lengths[rows],
        step=number,
        policy_version=number,
    )
