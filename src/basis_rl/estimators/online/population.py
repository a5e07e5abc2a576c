r"""What is known of prompts before their first visit: the table's, and populations for the rest.

Prompts of a source are a sample of a population, a mixture for logits and a normal N(M, S) for real
rewards, fitted to the table by empirical Bayes; a prompt's own rollouts then give its posterior
(docs/online.md, Eq. 2). A prompt that the table does not know starts from its source's
population, or from the whole table's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np

from basis_rl.batch import BoolArray, FloatArray, IntArray, sum_by
from basis_rl.estimators.basis_prior import Priors, with_priors
from basis_rl.estimators.online.gaussian import after_rewards
from basis_rl.estimators.online.mixture import Counts, normal_weights
from basis_rl.estimators.online.rewards import Rewards
from basis_rl.passrates.table import PassRates
from basis_rl.smoothing import credibility_pseudo_count

# Jeffreys' Beta(1/2, 1/2) as logits has mean 0 and this variance: what one knows without a table.
JEFFREYS_VARIANCE = float(np.pi**2)
# Rollouts behind a rate that does not say.
RATE_ROLLOUTS = 8
# Prompts that the wider population is worth: Jeffreys for the table, the table for a source.
TABLE_PROMPTS, SOURCE_PROMPTS = 2.0, 10.0
# Rewards that hardly vary for a prompt would make every change of the policy look enormous.
LEAST_NOISE_SHARE = 0.2
_ITERATIONS, _TOLERANCE, _LEAST = 200, 1e-4, 1e-4


class Normal(NamedTuple):
    """A population's mean M and variance S."""

    mean: float
    variance: float


# Weights of a mixture, or a normal.
Population = TypeVar("Population", FloatArray, Normal)
# Fits the population of some rows, a wider population standing in for so many prompts.
Fit = Callable[[IntArray, Population, float], Population]


@dataclass(frozen=True)
class Start:
    """Posteriors of the table's prompts, then the populations of its sources, then of all.

    Attributes
    ----------
    mean, variance : arrays, shape (P + Q,)
    noise_sum, noise_count : arrays, shape (P + Q,)
        Squared residuals of the stored rewards, for real rewards.
    table : PassRates or None
    places : Priors
        Where a source's population stands.
    noise_worth : float
        Rewards that the noise of all prompts is worth for a prompt's own; 0 for rewards of 0 and 1.
    """

    mean: FloatArray
    variance: FloatArray
    noise_sum: FloatArray
    noise_count: FloatArray
    table: PassRates | None
    places: Priors
    noise_worth: float

    @property
    def is_continuous(self) -> bool:
        """Whether rewards are real numbers."""
        return self.noise_worth > 0

    def rescaled(self, factor: float) -> Start:
        """The same with everything in units that are ``factor`` times as small."""
        return replace(
            self,
            mean=self.mean * factor,
            variance=self.variance * factor**2,
            noise_sum=self.noise_sum * factor**2,
        )

    def rows(self, keys: list[str], sources: list[str] | None) -> tuple[IntArray, BoolArray]:
        """Row of each prompt, and whether the table knows it."""
        if self.table is None:
            return np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=np.bool_)
        rows = self.table.rows(keys).copy()
        known = rows >= 0
        for i in np.flatnonzero(~known):
            rows[i] = self.places.place(sources[i] if sources else "")
        return rows, known


def start_without_table(population: Normal, noise_worth: float = 0.0) -> Start:
    """Every prompt from one population."""
    mean, variance = (np.array([moment]) for moment in population)
    none = np.zeros(1)
    return Start(mean, variance, none, none, None, Priors({}, 0, None), noise_worth)


def binary_start(table: PassRates) -> Start:
    """Posteriors of logits from counts of 0/1 rewards, or from rates as if of 8 rollouts."""
    if table.successes is None:
        k, n = np.round(table.means * RATE_ROLLOUTS, 3), np.full(len(table), float(RATE_ROLLOUTS))
    else:
        k, n = table.successes.astype(np.float64), table.n.astype(np.float64)
    pairs, pair_of = np.unique(k + 1j * n, return_inverse=True)
    # Last, a prompt of which nothing is known: its posterior is the population.
    pairs = np.append(pairs, 0.0)
    counts = Counts(pairs.real, pairs.imag)
    places = with_priors(table)

    def fit(members: IntArray, wider: FloatArray, worth: float) -> FloatArray:
        count = np.bincount(pair_of[members], minlength=len(pairs)).astype(np.float64)
        return counts.fit(count, wider, worth)

    populations = _populations(places, fit, normal_weights(0.0, JEFFREYS_VARIANCE))
    posteriors = [counts.posteriors(weights) for weights in populations]
    mean, variance = np.empty(len(table)), np.empty(len(table))
    own = places.members()[: max(len(places.names), 1)]
    for (means, variances), members in zip(posteriors, own, strict=False):
        mean[members], variance[members] = means[pair_of[members]], variances[pair_of[members]]
    unmet = [Normal(float(means[-1]), float(variances[-1])) for means, variances in posteriors]
    return _start(table, places, unmet, mean, variance)


def gaussian_start(table: PassRates) -> tuple[Start, float]:
    """Posteriors of values from stored rewards, and the unit that they are in.

    The unit is the standard deviation of a reward around its prompt's value, but at least a fifth
    of all rewards'.
    """
    assert table.reward_values is not None
    assert table.reward_offsets is not None
    values, n = table.reward_values, np.diff(table.reward_offsets).astype(np.float64)
    owner = np.repeat(np.arange(len(n)), np.diff(table.reward_offsets))
    total = sum_by(owner, values, len(n))
    residuals = (values - (total / n)[owner]) ** 2
    squares = sum_by(owner, residuals, len(n))
    worth = credibility_pseudo_count(residuals, table.reward_offsets)
    unit = noise_unit(float(squares.sum()), float((n - 1.0).sum()), float(values.std()))
    total, squares = total / unit, squares / unit**2
    places = with_priors(table)

    def fit(members: IntArray, wider: Normal, worth: float) -> Normal:
        return fit_values(total[members] / n[members], 1.0 / n[members], wider, worth)

    whole = Normal(float((total / n).mean()), max(float((total / n).var()), _LEAST))
    populations = _populations(places, fit, whole)
    own = places.source_of if places.source_of is not None else np.zeros(len(n), np.int64)
    middle, spread = np.array(populations).T[:, own]
    _, mean, variance = after_rewards(middle, spread, Rewards(total, n, np.ones(len(n))))
    return _start(table, places, populations, mean, variance, squares, n - 1.0, worth), unit


def noise_unit(squares: float, freedom: float, spread: float) -> float:
    """Standard deviation of a reward around its prompt's value, from residuals' squares.

    Half of the rewards' variance where there are no residuals; 1 where all rewards are alike.
    """
    noise = squares / freedom if freedom else 0.5 * spread**2
    return max(noise**0.5, LEAST_NOISE_SHARE * spread) or 1.0


def fit_values(means: FloatArray, sampling: FloatArray, wider: Normal, worth: float) -> Normal:
    """N(M, S) of values by expectation maximisation, from means of rewards and their variances.

    ``wider`` stands in for ``worth`` prompts.
    """
    mean, variance = wider
    count = np.ones(len(means))
    for _ in range(_ITERATIONS):
        gain = variance / (variance + sampling)
        found = _moments(mean + gain * (means - mean), gain * sampling, count, wider, worth)
        change = max(abs(found.mean - mean), abs(found.variance / variance - 1.0))
        mean, variance = found
        if change < _TOLERANCE:
            break
    return Normal(mean, variance)


def _moments(
    means: FloatArray, variances: FloatArray, count: FloatArray, wider: Normal, worth: float
) -> Normal:
    total = float(count.sum()) + worth
    mean = (float(count @ means) + worth * wider.mean) / total
    squares = float(count @ (variances + (means - mean) ** 2))
    return Normal(mean, max((squares + worth * wider.variance) / total, _LEAST))


def _populations(places: Priors, fit: Fit[Population], jeffreys: Population) -> list[Population]:
    """Populations of every source, then of all; a source is drawn towards all."""
    *sources, everyone = places.members()
    whole = fit(everyone, jeffreys, TABLE_PROMPTS)
    populations = [fit(members, whole, SOURCE_PROMPTS) for members in sources]
    populations.append(whole)
    return populations


def _start(
    table: PassRates,
    places: Priors,
    populations: list[Normal],
    mean: FloatArray,
    variance: FloatArray,
    noise_sum: FloatArray | None = None,
    noise_count: FloatArray | None = None,
    noise_worth: float = 0.0,
) -> Start:
    size, more = len(table), len(populations)
    padding = np.zeros(more)
    return Start(
        np.append(mean, [population.mean for population in populations]),
        np.append(variance, [population.variance for population in populations]),
        np.append(noise_sum if noise_sum is not None else np.zeros(size), padding),
        np.append(noise_count if noise_count is not None else np.zeros(size), padding),
        table,
        places,
        noise_worth,
    )
