"""Parts of a simulated record: pass rates, shifts, drifts, noise, reference rollouts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from basis_rl.batch import FloatArray
from basis_rl.lab.record import RecordError
from basis_rl.passrates.table import PassRates
from basis_rl.values import logit_of_counts

Rng = np.random.Generator

TAILS = ("normal", "student", "lognormal")
LARGEST_JUMP = 6.0
_REVERSAL_TIME = 0.05  # of the record
_DISTRIBUTIONS = ("beta", "u-shaped", "alike", "bimodal", "hopeless")


def initial_scores(
    distribution: str | npt.ArrayLike, prompts: int, rng: Rng, *, binary: bool
) -> FloatArray:
    """Scores m_i under the reference policy, shape (P,): log-odds; given values for continuous.

    Without given values, continuous scores are the log-odds of the distribution, at most 4.
    """
    if not isinstance(distribution, str):
        given = np.asarray(distribution, dtype=np.float64)
        if given.shape != (prompts,):
            raise RecordError(f"pass_rates has shape {given.shape} for {prompts} prompts")
        low, high = (0.0, 1.0) if binary else (-np.inf, np.inf)
        wrong = ~((given >= low) & (given <= high) & np.isfinite(given))
        if wrong.any():
            at = int(np.argmax(wrong))
            need = "from 0 to 1" if binary else "finite"
            raise RecordError(f"pass_rates[{at}] is {given[at]}: it must be {need}")
        return _log_odds(given) if binary else given
    scores = _log_odds(_rates(distribution, prompts, rng))
    return scores if binary else np.clip(scores, -4.0, 4.0)


def _rates(distribution: str, prompts: int, rng: Rng) -> FloatArray:
    if distribution == "beta":
        return rng.beta(0.8, 0.8, prompts)
    if distribution == "alike":
        return np.full(prompts, 0.4)
    if distribution not in _DISTRIBUTIONS:
        raise RecordError(
            f"pass_rates is {distribution!r}: give one of {', '.join(_DISTRIBUTIONS)}, or a list"
        )
    quarter = rng.permutation(prompts) / prompts
    if distribution == "bimodal":
        return np.where(quarter < 0.5, 0.1, 0.9)
    if distribution == "hopeless":
        return np.where(quarter < 0.9, 0.001, rng.random(prompts))
    between = rng.beta(0.5, 0.5, prompts)
    return np.where(quarter < 0.25, 0.0, np.where(quarter < 0.5, 1.0, between))


def _log_odds(rates: FloatArray) -> FloatArray:
    return logit_of_counts(rates, 1.0 - rates)


def shifts(times: FloatArray, tilts: FloatArray, reversals: FloatArray) -> FloatArray:
    """What the common score has gained and lost by ``times`` (T,) for each prompt; (P, T)."""
    lost = np.clip((times - 0.5) / _REVERSAL_TIME + 0.5, 0.0, 1.0)
    return tilts[:, None] * times - reversals[:, None] * lost


def drifts(prompts: int, visits: int, drift: float, jumps: float, rng: Rng) -> FloatArray:
    """Sums of each prompt's own changes, shape (P, visits)."""
    shape = (prompts, visits)
    steps = drift * rng.standard_normal(shape)
    sizes = np.clip(rng.standard_t(2, shape), -LARGEST_JUMP, LARGEST_JUMP)
    steps += np.where(rng.random(shape) < jumps, sizes, 0.0)
    return np.cumsum(steps, axis=1)


def noise(tails: str, shape: tuple[int, ...], rng: Rng) -> FloatArray:
    """Noise of mean 0 and variance 1."""
    if tails == "normal":
        return rng.standard_normal(shape)
    if tails == "student":
        return np.asarray(rng.standard_t(3, shape) / np.sqrt(3.0))  # variance df / (df - 2)
    deviation = np.sqrt((np.e - 1.0) * np.e)
    return np.asarray((rng.lognormal(0.0, 1.0, shape) - np.exp(0.5)) / deviation)


def counted_cache(
    keys: list[str], rates: FloatArray, rollouts: int, sources: list[str] | None, rng: Rng
) -> PassRates | None:
    """Counts of ``rollouts`` reference rollouts of each prompt."""
    if rollouts == 0:
        return None
    return PassRates.from_counts(keys, rng.binomial(rollouts, rates), rollouts, sources=sources)


def continuous_cache(
    keys: list[str],
    scores: FloatArray,
    rollouts: int,
    sources: list[str] | None,
    spread: tuple[str, float],
    rng: Rng,
) -> PassRates | None:
    """Rewards of ``rollouts`` reference rollouts of each prompt; ``spread``: tails, deviation."""
    if rollouts == 0:
        return None
    tails, deviation = spread
    rewards = scores[:, None] + deviation * noise(tails, (len(keys), rollouts), rng)
    return PassRates.from_rewards(keys, list(rewards), sources=sources)
