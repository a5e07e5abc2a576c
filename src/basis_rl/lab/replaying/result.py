"""What a replay found, and how to ask it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from basis_rl.batch import FloatArray, IntArray
from basis_rl.errors import ConfigError, nearest
from basis_rl.lab.contenders import Contender
from basis_rl.lab.intervals import Mean, clustered_mean
from basis_rl.lab.replaying.bins import BINS, Bins, even_bins
from basis_rl.lab.replaying.plan import Plan
from basis_rl.lab.replaying.run import Float32Array, Run

_OF_ROW = (
    *("rewards", "targets", "target_variance", "reward_variance"),
    *("level", "level_variance"),
)


@dataclass(frozen=True)
class Replay:
    """Rows of a replay: each visit once a seed, N in all; E contenders.

    Attributes
    ----------
    name : str
        Of the record.
    contenders : list of Contender, length E
    errors : float64 array, shape (E, N)
        Squared error of the row's baselines less the oracle's sampling variance; a single one can
        be negative, their mean is unbiased.
    baselines : float64 array, shape (E, N)
        Of the first rollout shown.
    extremes, zeros : float32 arrays, shape (E, N)
        Share of the visit's shown rollouts with a baseline that is exactly the least or the
        largest reward, and with advantage 0.
    own : float64 array, shape (E, N)
        Its mean is the covariance of a baseline with its own reward, see `Run`.
    variance : float64 array, shape (E, K)
        Variance of a visit's baseline from pairs of seeds; NaN where there are none.
    spread : float64 array, shape (E,)
        Standard deviation of reward less baseline.
    shown : int array, shape (E,)
        Rollouts of a visit that each contender was given; 0 where its groups are larger than the
        visits allow, and its errors are computed: a group mean's is the variance of a reward over
        the group. It then has no baselines (NaN).
    rewards : float64 array, shape (N,)
        The first reward shown.
    targets, target_variance : float64 arrays, shape (N,)
        Oracle mean of the visit for the contenders with one rollout (or as many as the replay
        shows), and its sampling variance.
    reward_variance : float64 array, shape (N,)
        Unbiased variance of one reward of the visit.
    level, level_variance : float64 arrays, shape (N,)
        Mean reward of neighbouring visits, from rollouts that no contender and no oracle has, and
        its sampling variance; NaN where there are none.
    seed, step, batch, prompt, visit : int arrays, shape (N,)
        ``visit`` counts the record's visits; ``batch`` is a number within the seed.
    rollouts, batch_size : int
    batches : {"shuffled", "recorded"}
    left_out : dict of str to str
        Contenders that did not take part, and why.
    dropped : int
        Visits with too few rollouts.
    reward_range : (float, float)
        Least and largest reward of the record.
    """

    name: str
    contenders: list[Contender]
    errors: FloatArray
    baselines: FloatArray
    extremes: Float32Array
    zeros: Float32Array
    own: FloatArray
    variance: FloatArray
    spread: FloatArray
    shown: IntArray
    rewards: FloatArray
    targets: FloatArray
    target_variance: FloatArray
    reward_variance: FloatArray
    level: FloatArray
    level_variance: FloatArray
    seed: IntArray
    step: IntArray
    batch: IntArray
    prompt: IntArray
    visit: IntArray
    rollouts: int
    batch_size: int
    batches: str
    left_out: dict[str, str]
    dropped: int
    reward_range: tuple[float, float]

    @classmethod
    def of(
        cls,
        plan: Plan,
        runs: Sequence[Run],
        variances: Sequence[FloatArray],
        *,
        rollouts: int,
        batch_size: int,
        batches: str,
    ) -> Replay:
        """Put the seeds' rows together; contenders that dropped out are left out."""
        kept = [
            place
            for place, shown in enumerate(plan.contenders)
            if shown.contender.name not in plan.left_out
        ]
        of_contender = {
            name: np.concatenate([getattr(run, name)[kept] for run in runs], axis=-1)
            for name in ("errors", "baselines", "extremes", "zeros", "own")
        }
        of_row = {name: np.concatenate([getattr(run, name) for run in runs]) for name in _OF_ROW}
        of_visit = {
            "step": plan.record.step[plan.visits],
            "prompt": plan.record.prompt[plan.visits],
            "visit": plan.visits,
        }
        size, rewards = len(plan.visits), plan.record.rewards
        variance = (
            np.mean(variances, axis=0)
            if variances
            else np.full((len(runs[0].errors), size), np.nan)
        )
        left = (plan.record.counts - plan.cached)[plan.visits]
        for place, shown in enumerate(plan.contenders):
            variance[place, left < 2 * shown.rollouts] = np.nan
        n, total, squares = np.sum([run.spread[kept] for run in runs], axis=0).T
        n = np.where(n > 0, n, np.nan)
        return cls(
            name=plan.record.name,
            contenders=[plan.contenders[place].contender for place in kept],
            variance=variance[kept],
            spread=np.sqrt(np.maximum(squares / n - (total / n) ** 2, 0.0)),
            shown=np.array([plan.contenders[place].rollouts for place in kept]),
            seed=np.repeat(np.arange(len(runs)), size),
            batch=np.concatenate([run.batch for run in runs]),
            rollouts=rollouts,
            batch_size=batch_size,
            batches=batches,
            left_out=dict(plan.left_out),
            dropped=plan.dropped,
            reward_range=(float(rewards.min()), float(rewards.max())),
            **{name: np.tile(values, len(runs)) for name, values in of_visit.items()},
            **of_contender,
            **of_row,
        )

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def names(self) -> list[str]:
        """Names of the contenders."""
        return [contender.name for contender in self.contenders]

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return int(self.seed.max()) + 1

    def place(self, name: str) -> int:
        """Row of a contender in the arrays.

        Raises
        ------
        ConfigError
            If it did not take part.
        """
        if name in self.names:
            return self.names.index(name)
        if name in self.left_out:
            raise ConfigError(f"{name!r} was left out: {self.left_out[name]}")
        raise ConfigError(f"{name!r} did not take part{nearest(name, self.names)}")

    def mse(self, name: str, rows: IntArray | None = None) -> Mean:
        """Mean squared error with its 95% interval, see `clustered_mean`."""
        return self._mean(self.errors[self.place(name)], rows)

    def difference(self, name: str, reference: str, rows: IntArray | None = None) -> Mean:
        """MSE of one contender less that of another, row by row."""
        values = self.errors[self.place(name)] - self.errors[self.place(reference)]
        return self._mean(values, rows)

    def _mean(self, values: FloatArray, rows: IntArray | None) -> Mean:
        chosen = slice(None) if rows is None else rows
        batch = self.seed * (self.batch.max() + 1) + self.batch
        return clustered_mean(values[chosen], self.prompt[chosen], batch[chosen])

    def by_step(self, windows: int = 4) -> Bins:
        """Windows of the replayed steps, each with as many different steps (to one)."""
        steps = np.unique(self.step)
        parts = [part for part in np.array_split(steps, windows) if len(part)]
        labels = [str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts]
        rows = [np.flatnonzero((self.step >= part[0]) & (self.step <= part[-1])) for part in parts]
        return Bins("step", labels, rows)

    def by_heterogeneity(self, bins: int = BINS) -> Bins:
        """Batches by the standard deviation of their prompts' values, in bins of equal width.

        The values are `level`, whose sampling variance is taken off.
        """
        known = np.flatnonzero(~np.isnan(self.level))
        if not len(known):
            return Bins("heterogeneity", [], [])
        batch = (self.seed * (self.batch.max() + 1) + self.batch)[known]
        _, place, size = np.unique(batch, return_inverse=True, return_counts=True)
        level = self.level[known]
        means = np.bincount(place, weights=level) / size
        squares = np.bincount(place, weights=(level - means[place]) ** 2)
        noise = np.bincount(place, weights=self.level_variance[known]) / size
        spread = np.sqrt(np.maximum(squares / np.maximum(size - 1, 1) - noise, 0.0))
        # A short last batch is no batch of this size, and its spread is noise.
        whole = size >= min(self.batch_size, int(np.median(size))) / 2.0
        low, high = float(spread[whole].min()), float(spread[whole].max())
        values = np.full(len(self), np.nan)
        values[known] = np.where(whole[place], spread[place], np.nan)
        return even_bins("heterogeneity", values, low, high, bins)

    def by_difficulty(self, bins: int = BINS) -> Bins:
        """Rows by their prompt's `level`, in bins of equal width over the range of rewards."""
        known = self.level[~np.isnan(self.level)]
        if not len(known):
            return Bins("value", [], [])
        low, high = self.reward_range
        if (low, high) != (0.0, 1.0):
            low, high = float(known.min()), float(known.max())
        return even_bins("value", self.level, low, high, bins)

    def extreme(self, name: str, rows: IntArray | None = None) -> float:
        """Share of baselines that are exactly the least or largest reward."""
        return self._share(self.extremes, name, rows)

    def zero_advantage(self, name: str, rows: IntArray | None = None) -> float:
        """Share of advantages that are exactly 0."""
        return self._share(self.zeros, name, rows)

    def _share(self, shares: Float32Array, name: str, rows: IntArray | None) -> float:
        place = self.place(name)
        chosen = shares[place] if rows is None else shares[place][rows]
        return float(chosen.mean(dtype=np.float64)) if len(chosen) else float("nan")

    def advantage_spread(self, name: str) -> float:
        """Standard deviation of reward less baseline."""
        place = self.place(name)
        return float(self.spread[place])

    def own_reward(self, name: str) -> Mean:
        """How much of a row's own reward is in its baseline, as a share.

        ``Cov(b, r) / Var(r)`` given the visit: 1/G for a group's mean, 0 where the own reward is
        left out. Such a share shrinks the advantages, and its size is no error of the value.
        """
        place = self.place(name)
        scale = float(self.reward_variance.mean())
        mean = self._mean(self.own[place], None)
        if scale <= 0:
            return Mean(float("nan"), float("nan"), float("nan"), mean.rows)
        return Mean(mean.value / scale, mean.low / scale, mean.high / scale, mean.rows)

    def bias_variance(self, name: str) -> tuple[Mean, Mean]:
        """Mean squared bias and mean variance of the baseline of a visit; their sum is the MSE.

        The variance is what other shown rollouts, of this visit and of all before, and other
        batches change. It is measured between two seeds that show different rollouts of every
        visit; what they share, the cache and its luck, counts as bias. NaN without two seeds, or
        where a contender is shown more than half of a visit.
        """
        place = self.place(name)
        usable = ~np.isnan(self.variance[place])
        variance = self.variance[place][usable]
        errors = self.errors[place].reshape(self.seeds, -1)[:, usable].mean(axis=0)
        prompt = self.prompt[: self.variance.shape[1]][usable]
        alone = np.arange(len(variance))
        return (
            clustered_mean(errors - variance, prompt, alone),
            clustered_mean(variance, prompt, alone),
        )

    def best_tuned(self) -> dict[str, str]:
        """Of each estimator with settings to choose from, the one with the least MSE here.

        Published settings are among the choices.
        """
        best: dict[str, str] = {}
        tuned = {each.estimator for each in self.contenders if each.tuned}
        means = self.errors.mean(axis=1)
        for place, contender in enumerate(self.contenders):
            estimator = contender.estimator
            if estimator in tuned:
                before = best.get(estimator)
                if before is None or means[place] < means[self.place(before)]:
                    best[estimator] = contender.name
        return best
