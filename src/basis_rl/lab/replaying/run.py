"""One seed of a replay: all batches, shown to every contender."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from basis_rl.batch import FloatArray, IntArray, RewardBatch
from basis_rl.errors import BasisError
from basis_rl.estimators.base import Estimator
from basis_rl.lab.contenders import Contender
from basis_rl.lab.record import RecordError
from basis_rl.lab.replaying.draw import Draw
from basis_rl.lab.replaying.levels import levels
from basis_rl.lab.replaying.plan import Plan

Float32Array = npt.NDArray[np.float32]


@dataclass
class Run:
    """Columns of one seed, in the order of the plan's visits; E contenders, K visits.

    Attributes
    ----------
    errors, baselines : float64 arrays, shape (E, K)
        See `Replay`.
    means, squares : float64 arrays, shape (E, K)
        Mean over the rows of a visit of the baseline and of its square.
    extremes, zeros : float32 arrays, shape (E, K)
        Share of a visit's rows with an extreme baseline, with advantage 0.
    own : float64 array, shape (E, K)
        ``(b - level) (r - target)``: its mean is the covariance of a baseline with its own reward,
        for any level that has not seen the target (0 where it is NaN).
    spread : float64 array, shape (E, 3)
        Number, sum and sum of squares of reward less baseline.
    rewards, targets, target_variance, reward_variance, level, level_variance : float64, shape (K,)
    batch : int array, shape (K,)
    """

    errors: FloatArray
    baselines: FloatArray
    means: FloatArray
    squares: FloatArray
    extremes: Float32Array
    zeros: Float32Array
    own: FloatArray
    spread: FloatArray
    rewards: FloatArray
    targets: FloatArray
    target_variance: FloatArray
    reward_variance: FloatArray
    level: FloatArray
    level_variance: FloatArray
    batch: IntArray

    def forget(self) -> None:
        """Free what pairs of seeds alone are asked for."""
        self.means = self.squares = np.empty((0, 0))


def batches(plan: Plan, seed: int, batch_size: int, how: str) -> Iterator[IntArray]:
    """Rows of the plan's visits, batch by batch, in the order of the steps.

    Parameters
    ----------
    plan : Plan
    seed, batch_size : int
    how : {"shuffled", "recorded"}
        A step's visits in random order, cut into batches; or a step's visits as one batch.
    """
    rng = np.random.default_rng([seed, 1])
    step = plan.record.step[plan.visits]
    edges = np.flatnonzero(np.diff(step, prepend=step[0] - 1, append=step[-1] + 1))
    for low, high in itertools.pairwise(edges.tolist()):
        rows = np.arange(low, high)
        if how == "recorded":
            yield rows
            continue
        rows = rng.permutation(rows)
        # A last batch of one row has no others to learn from: it joins the one before.
        cuts = [cut for cut in range(batch_size, len(rows), batch_size) if len(rows) - cut > 1]
        yield from np.split(rows, cuts)


def run(
    plan: Plan, draw: Draw, rows: list[IntArray], rollouts: int, tell: Callable[[int], None]
) -> Run:
    """Replay one seed.

    Parameters
    ----------
    plan : Plan
        Contenders that refuse a batch are noted in ``plan.left_out``.
    draw : Draw
    rows : list of int array
        Batches.
    rollouts : int
        Shown to contenders without groups.
    tell : callable
        Called with the number of batches done.

    Raises
    ------
    RecordError
        If no contender is left.
    """
    return _Seed(plan, draw, rows, rollouts).run(tell)


class _Seed:
    def __init__(self, plan: Plan, draw: Draw, rows: list[IntArray], rollouts: int) -> None:
        self.plan, self.draw, self.rows, self.rollouts = plan, draw, rows, rollouts
        groups = {0, rollouts, *(shown.rollouts for shown in plan.contenders)}
        self.after = {group: draw.after(group) for group in groups}
        self.range = (plan.record.rewards.min(), plan.record.rewards.max())
        shape = (len(plan.contenders), len(plan.visits))
        level, level_variance = levels(plan, draw)
        size, targets, noise = self.after[rollouts]
        self.centre = np.where(np.isnan(level), 0.0, level)
        self.out = Run(
            errors=np.full(shape, np.nan),
            baselines=np.full(shape, np.nan),
            means=np.full(shape, np.nan),
            squares=np.full(shape, np.nan),
            extremes=np.full(shape, np.nan, dtype=np.float32),
            zeros=np.full(shape, np.nan, dtype=np.float32),
            own=np.full(shape, np.nan),
            spread=np.zeros((shape[0], 3)),
            rewards=draw.rewards[draw.places(plan.visits, 1)],
            targets=targets,
            target_variance=noise,
            reward_variance=noise * size,
            level=level,
            level_variance=level_variance,
            batch=np.zeros(shape[1], dtype=np.int64),
        )

    def run(self, tell: Callable[[int], None]) -> Run:
        plan = self.plan
        estimators = self._estimators()
        for number, rows in enumerate(self.rows):
            self.out.batch[rows] = number
            given: dict[int, RewardBatch] = {}
            for place, estimator in list(estimators.items()):
                group = plan.contenders[place].rollouts
                if group not in given:
                    given[group] = self._batch(rows, group, number)
                try:
                    baselines = estimator.estimate(given[group]).baselines
                except BasisError as error:
                    self._leave_out(plan.contenders[place].contender, error)
                    del estimators[place]
                    continue
                self._take_in(place, rows, given[group].rewards, baselines)
            tell(number + 1)
        if np.isnan(self.out.errors).all():
            reasons = "; ".join(f"{name}: {why}" for name, why in plan.left_out.items())
            raise RecordError(f"{plan.record.name}: no estimator can be replayed ({reasons})")
        return self.out

    def _estimators(self) -> dict[int, Estimator]:
        """New estimators by their place; those that refuse the record's pass rates are noted.

        Where groups are larger than visits no estimator is made: the error of the mean is the
        variance of a reward, which the whole visit tells, over the group.
        """
        table = self.draw.pass_rates()
        made = {}
        for place, shown in enumerate(self.plan.contenders):
            if shown.contender.name in self.plan.left_out:
                continue
            if shown.rollouts == 0:
                size, _, variance = self.after[0]
                self.out.errors[place] = shown.variance * variance * size
                continue
            try:
                made[place] = shown.contender.make(table)
            except BasisError as error:
                self._leave_out(shown.contender, error)
        return made

    def _leave_out(self, contender: Contender, error: BasisError) -> None:
        self.plan.left_out[contender.name] = str(error)

    def _batch(self, rows: IntArray, group: int, number: int) -> RewardBatch:
        record, visits = self.plan.record, self.plan.visits[rows]
        places = self.draw.places(visits, group)
        prompts = np.repeat(record.prompt[visits], group).tolist()
        lengths = self.draw.lengths
        return RewardBatch(
            [record.keys[i] for i in prompts],
            self.draw.rewards[places],
            sources=None if record.sources is None else [record.sources[i] for i in prompts],
            lengths=None if lengths is None else lengths[places],
            # A step of training is a batch of the replay.
            step=number,
            policy_version=number,
        )

    def _take_in(
        self, place: int, rows: IntArray, rewards: FloatArray, baselines: FloatArray
    ) -> None:
        """Put a batch's baselines into the columns."""
        out, shown = self.out, self.plan.contenders[place]
        b, r = baselines.reshape(-1, shown.rollouts), rewards.reshape(-1, shown.rollouts)
        _, mean, variance = self.after[shown.rollouts]
        target, centre = mean[rows, None], self.centre[rows, None]
        out.errors[place, rows] = ((b - target) ** 2).mean(axis=1) - variance[rows]
        out.baselines[place, rows] = b[:, 0]
        out.means[place, rows] = b.mean(axis=1)
        out.squares[place, rows] = (b**2).mean(axis=1)
        out.extremes[place, rows] = ((b == self.range[0]) | (b == self.range[1])).mean(axis=1)
        out.zeros[place, rows] = (b == r).mean(axis=1)
        out.own[place, rows] = ((b - centre) * (r - target)).mean(axis=1)
        advantages = r - b
        out.spread[place] += (advantages.size, advantages.sum(), (advantages**2).sum())


def paired_variance(one: Run, other: Run) -> FloatArray:
    """Variance of each visit's baselines, from two seeds that show different rollouts.

    ``(b^2 + b'^2) / 2 - b b'`` with the means over a visit's rows: unbiased, since b and b' are
    independent given the cache.
    """
    variance: FloatArray = (one.squares + other.squares) / 2.0 - one.means * other.means
    return variance
