"""Batches of a stage, and every estimator's baselines in them (Appendix A)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from basis_rl.batch import BoolArray, FloatArray, IntArray, RewardBatch
from basis_rl.estimators import Estimator
from basis_rl.lab.figures.compared import Compared
from basis_rl.lab.record import RecordError, Stage

Progress = Callable[[], None]
# Batches that estimators with a memory see before errors count.
WARM_UP = 10


@dataclass(frozen=True)
class Draws:
    """What E estimators said in the same N batches of B prompts.

    A prompt's G baselines (G rollouts) enter through their mean and mean square, so that the
    error against any value is at hand.

    Attributes
    ----------
    stage : Stage
    compared : list of Compared, length E
    rows : int array, shape (N, B)
        Prompts.
    first, second : float64 array, shape (E, N, B)
        Mean of the prompt's baselines, and of their squares.
    zeros, ones : float64 array, shape (E, N, B)
        Share of the prompt's baselines that are exactly 0 and 1.
    betas : float64 array, shape (E, N)
        Beta that was chosen; NaN where the estimator has none.
    """

    stage: Stage
    compared: list[Compared]
    rows: IntArray
    first: FloatArray
    second: FloatArray
    zeros: FloatArray
    ones: FloatArray
    betas: FloatArray

    def squared_errors(self, values: FloatArray) -> FloatArray:
        """``mean_g (b_g - v)^2`` against values of the prompts, shape (E, N, B)."""
        v = values[self.rows]
        errors: FloatArray = self.second - 2.0 * v * self.first + v**2
        return np.maximum(errors, 0.0)

    def errors(self) -> FloatArray:
        """Squared errors against the oracle, less the oracle's own sampling variance."""
        stage = self.stage
        return self.squared_errors(stage.oracle) - stage.oracle_variance[self.rows]

    @property
    def between(self) -> BoolArray:
        """Rows whose reference pass rate is neither 0 nor 1, shape (N, B)."""
        zero, one = pass_rate_ends(self.stage)
        return ~(zero | one)[self.rows]

    @property
    def batch_of(self) -> IntArray:
        """Batch of each row, shape (N, B)."""
        return np.broadcast_to(np.arange(len(self.rows))[:, None], self.rows.shape)


def draw(
    stage: Stage,
    compared: Sequence[Compared],
    *,
    batches: int,
    batch_size: int = 64,
    seed: int = 0,
    warm_up: int = WARM_UP,
    progress: Progress | None = None,
) -> Draws:
    """Draw batches of prompts without replacement and let every estimator judge each of them.

    Each batch puts a prompt's shown rewards in a new order; an estimator with G rollouts is given
    the first G of them.

    Parameters
    ----------
    stage : Stage
    compared : sequence of Compared
    batches : int
    batch_size : int
        Prompts in a batch.
    seed : int
        The same seed draws the same batches.
    warm_up : int
        Further batches before those that count.
    progress : callable, optional
        Called after every batch.

    Raises
    ------
    RecordError
        If the stage has fewer prompts than a batch, fewer rollouts than an estimator is shown, or
        rewards other than 0 and 1.
    """
    prompts, width = stage.shown.shape
    _check(stage, compared, batches, batch_size)
    estimators = [c.make(stage) for c in compared]
    shape = (len(compared), batches, batch_size)
    first, second, zeros, ones = (np.empty(shape) for _ in range(4))
    betas = np.full(shape[:2], np.nan)
    rows = np.empty(shape[1:], dtype=np.int64)
    rng = np.random.default_rng(seed)
    for number in range(-warm_up, batches):
        batch = rng.choice(prompts, batch_size, replace=False)
        order = rng.random((batch_size, width)).argsort(axis=1)
        rewards = np.take_along_axis(stage.shown[batch], order, axis=1)
        inputs: dict[int, RewardBatch] = {}
        for e, (estimator, c) in enumerate(zip(estimators, compared, strict=True)):
            if c.rollouts not in inputs:
                inputs[c.rollouts] = _batch(stage, batch, rewards[:, : c.rollouts])
            baselines, beta = _estimate(estimator, inputs[c.rollouts])
            if number < 0:
                continue
            first[e, number] = baselines.mean(axis=1)
            second[e, number] = (baselines**2).mean(axis=1)
            zeros[e, number] = (baselines == 0.0).mean(axis=1)
            ones[e, number] = (baselines == 1.0).mean(axis=1)
            betas[e, number] = beta
        if number >= 0:
            rows[number] = batch
        if progress is not None:
            progress()
    return Draws(stage, list(compared), rows, first, second, zeros, ones, betas)


def half_of(prompts: int) -> int:
    """A batch size, 2^k, of at most half the prompts: batches of more are much alike."""
    return 1 << (max(prompts // 2, 2).bit_length() - 1)


def mean_where(values: FloatArray, inside: BoolArray) -> float:
    """Mean of the values inside; NaN where there are none."""
    return float(values[inside].mean()) if inside.any() else float("nan")


def pass_rate_ends(stage: Stage) -> tuple[BoolArray, BoolArray]:
    """Which prompts of a stage have a pass rate of exactly 0, and of exactly 1; shape (P,)."""
    rates = stage.pass_rates.means[stage.pass_rates.rows(stage.keys)]
    return rates == 0.0, rates == 1.0


def _batch(stage: Stage, rows: IntArray, rewards: FloatArray) -> RewardBatch:
    """A batch with a row for every reward, shape (B, G)."""
    repeated = np.repeat(rows, rewards.shape[1]).tolist()
    sources = None if stage.sources is None else [stage.sources[i] for i in repeated]
    return RewardBatch([stage.keys[i] for i in repeated], rewards.ravel(), sources=sources)


def _estimate(estimator: Estimator, batch: RewardBatch) -> tuple[FloatArray, float]:
    """Baselines by prompt, shape (B, G), and beta."""
    estimate = estimator.estimate(batch)
    prompts = len(dict.fromkeys(batch.keys))
    return estimate.baselines.reshape(prompts, -1), estimate.metrics.get("beta", float("nan"))


def _check(stage: Stage, compared: Sequence[Compared], batches: int, batch_size: int) -> None:
    prompts, width = stage.shown.shape
    if batches < 1 or batch_size < 2:
        raise RecordError(
            f"stage {stage.name}: {batches} batches of {batch_size} prompts: draw one or more, "
            "each of 2 prompts or more"
        )
    if batch_size > prompts:
        raise RecordError(
            f"stage {stage.name} has {prompts} prompts, fewer than a batch of {batch_size}: choose "
            f"--batch-size {half_of(prompts)}, or {prompts} at most"
        )
    most = max(c.rollouts for c in compared)
    if most > width:
        raise RecordError(
            f"stage {stage.name}: {width} rollouts are shown of each prompt, and an estimator "
            f"needs {most}: ask stages_of for more, or leave it out"
        )
    if not ((stage.shown == 0) | (stage.shown == 1)).all():
        raise RecordError(
            f"stage {stage.name} has rewards other than 0 and 1: the paper's figures are of such "
            "rewards; use `basis-rl lab replay` for others"
        )
