"""One batch through the filters: baselines that leave each row out, then what the rows teach."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from basis_rl.batch import FloatArray, RewardBatch
from basis_rl.estimators.online.batch import Prompts
from basis_rl.estimators.online.drift import Weights
from basis_rl.estimators.online.filter import Posterior, PromptFilters
from basis_rl.estimators.online.gaussian import MOST_REWARDS, Noise, drawn_in
from basis_rl.estimators.online.population import (
    JEFFREYS_VARIANCE,
    LEAST_NOISE_SHARE,
    Start,
)
from basis_rl.estimators.online.rewards import Form, Predicted, Rewards
from basis_rl.estimators.online.shift import CommonState, Fitted

# Standard deviation of a prompt's step, in logits or in units of the rewards' noise: from 0.06 in
# a hundred steps, which is nothing, to one that forgets a visit before the next.
DEVIATIONS = 0.006 * 2.5 ** np.arange(5)
# With a table, one filter more believes that training makes prompts as little known as without one,
# and moves them by the middle step: else a policy that learns fast looks as if it drifted for ever.
# It has to show that first: its weight starts at SWITCHING.
SCATTER = JEFFREYS_VARIANCE
# Without a table, how far apart prompts are is learned too: as far as nobody knows, or a tenth.
WITHOUT_TABLE = 0.01 * 4.0 ** np.arange(3), np.array([1.0, 0.1])
SWITCHING = 1e-3  # per step: a filter that fell behind is back after a few batches' evidence
# A guessed unit is given up when the noise is further from it than by this factor, and the next
# is worth so many rewards: few, so that a guess that was far off is mended within a few batches.
UNIT_RANGE, UNIT_WORTH = 2.0, 16.0
# A square tells little of the noise where most of it is expected from the value: where less than
# one over this is noise, it counts for less.
NOISE_TRUST = 4.0
TINY = 1e-12


class Before(NamedTuple):
    """What is known of a batch's prompts before its rewards.

    Attributes
    ----------
    posterior : Posterior
    middle, spread : arrays, shape (P,)
        Moments over the filters, at the rewards' time.
    predicted : Predicted
        At the mean of the common state.
    rewards : array, shape (R,)
        The batch's, without outliers.
    of_prompts : Rewards
    """

    posterior: Posterior
    middle: FloatArray
    spread: FloatArray
    predicted: Predicted
    rewards: FloatArray
    of_prompts: Rewards


class OnlineModel:
    """Everything that is learned.

    Parameters
    ----------
    form : Form
        `BinaryForm` or `GaussianForm`.
    start : Start
    unit : float
        Rewards are divided by it; 1 for rewards of 0 and 1.
    start_variance : float
        Of the common shift before the first batch.
    """

    def __init__(self, form: Form, start: Start, unit: float, start_variance: float) -> None:
        self.form = form
        self.unit = unit
        self.noise = Noise(start.noise_worth)
        if start.table is not None:
            deviations = np.append(DEVIATIONS, DEVIATIONS[len(DEVIATIONS) // 2])
            shares, scatter = np.ones(len(deviations)), np.zeros(len(deviations))
            scatter[-1] = SCATTER
        else:
            paces, spreads = WITHOUT_TABLE
            deviations = np.tile(paces, len(spreads))
            shares, scatter = np.repeat(spreads, len(paces)), np.zeros(len(deviations))
        self.drift = Weights(deviations, SWITCHING)
        if start.table is not None:
            self.drift.weights = np.where(
                scatter > 0, SWITCHING, (1.0 - SWITCHING) / len(DEVIATIONS)
            )
        self.filters = PromptFilters(start, self.drift, shares, scatter)
        self.common = CommonState(start_variance)

    def take_in(
        self, rollouts: RewardBatch, times: FloatArray, steps: int
    ) -> tuple[FloatArray, dict[str, float]]:
        """Baselines of the rows, shape (R,), each without its own reward; then learn from them.

        ``times`` are the rows' steps, shape (R,), and ``steps`` those since the last batch.
        """
        batch = Prompts.of(rollouts, times, self.unit)
        rows, posterior = self.filters.at(batch.keys, batch.sources, batch.times)
        stale = self.drift.variances[:, None] * posterior.lag
        middle, spread = self.drift.collapsed(posterior.mean, posterior.variance + stale)
        design = self.common.begin(batch.sources, self.form.feature(middle), steps)
        before = self._before(batch, posterior, middle, spread, design.dot_one(self.common.mean()))
        scores = before.predicted.scores(before.of_prompts)
        fitted = self.common.fit(design, *scores)
        offset, unsure = fitted.without(*scores)
        extra = stale + unsure
        log_likelihood, mean, variance, value = self.form.after(
            posterior.mean + offset, posterior.variance + extra, before.of_prompts
        )
        if batch.single and value is not None:
            baselines = self.drift.weights @ value
        else:
            baselines = self._without_each(batch, before, fitted)
        metrics = self._fit(batch, before, baselines)
        after = posterior.updated(extra, mean - offset, variance)
        self.filters.store(batch.keys, rows, self._with_noise(batch, before, after))
        self.drift.learn(log_likelihood.sum(axis=1), steps)
        metrics |= self.common.advance(fitted, steps)
        metrics["drift_std"] = self.drift.deviation
        baselines = baselines * self.unit
        if self.filters.start.is_continuous and self.filters.start.table is None:
            self._follow_unit(float(batch.rewards.std()))
        return baselines, metrics

    def _follow_unit(self, spread: float) -> None:
        """Make the noise the unit, which the first batch could but guess (docs/online.md).

        ``spread`` is the standard deviation of the batch's rewards.
        """
        # Rewards that are all alike tell no unit: only a larger one.
        most = 1.0 / (LEAST_NOISE_SHARE * spread) if spread > 0 else 0.0
        factor = min(self.noise.pooled**-0.5, max(most, 1.0))
        if 1.0 / UNIT_RANGE <= factor <= UNIT_RANGE:
            return
        self.unit /= factor
        self.noise = Noise(self.noise.worth, UNIT_WORTH)
        self.filters.rescale(factor)
        self.common.rescale(factor)

    def _before(
        self,
        batch: Prompts,
        posterior: Posterior,
        middle: FloatArray,
        spread: FloatArray,
        offset: FloatArray,
    ) -> Before:
        noise = self.noise.of(posterior.noise_sum, posterior.noise_count)
        predicted = self.form.predicted(middle + offset, spread, noise)
        rewards = batch.rewards
        if self.filters.start.is_continuous:
            of = predicted.of(batch.prompt_of)
            rewards = drawn_in(rewards, of.value, of.within + of.between)
        of_prompts = Rewards(batch.total(rewards), batch.n, noise)
        return Before(posterior, middle, spread, predicted, rewards, of_prompts)

    def _without_each(self, batch: Prompts, before: Before, fitted: Fitted) -> FloatArray:
        """Values after the prompt's other rewards, shape (R,); rows alike are computed once.

        Under the filters' mixture, taken for normal.
        """
        prompt, reward, cell_of = batch.prompt_of, before.rewards, np.arange(len(batch.rewards))
        if not self.filters.start.is_continuous:
            prompt, reward, cell_of = batch.alike(reward)
        rest = before.of_prompts.without(prompt, reward)
        g, h = before.predicted.scores(before.of_prompts)
        rest_g, rest_h = before.predicted.of(prompt).scores(rest)
        offset, unsure = fitted.without(g[prompt] - rest_g, h[prompt] - rest_h, prompt)
        mean, variance = before.middle[prompt] + offset, before.spread[prompt] + unsure
        return self.form.value(mean, variance, rest)[cell_of]

    def _with_noise(self, batch: Prompts, before: Before, after: Posterior) -> Posterior:
        """With the squares of the residuals, which tell the noise of real rewards."""
        if not self.filters.start.is_continuous:
            return after
        of = before.predicted.of(batch.prompt_of)
        # Of the square's expectation, within + between, the first part is the noise.
        total = of.within + of.between
        trust = np.minimum(NOISE_TRUST * of.within / total, 1.0)
        squares = of.within * (1.0 + trust * ((before.rewards - of.value) ** 2 / total - 1.0))
        self.noise.learn(squares)
        count = after.noise_count + batch.n
        keep = np.minimum(MOST_REWARDS / count, 1.0)
        total = (after.noise_sum + batch.total(squares)) * keep
        return after._replace(noise_sum=total, noise_count=count * keep)

    def _fit(self, batch: Prompts, before: Before, baselines: FloatArray) -> dict[str, float]:
        """How well the batch was predicted, and how sure the predictions were."""
        of = before.predicted
        # What a row's prompt's other rewards leave unknown of its value.
        unknown = of.between * of.within / (of.within + (batch.n - 1.0) * of.between)
        squares = (batch.rewards - baselines) ** 2
        metrics = {
            "posterior_std": float(np.sqrt(before.predicted.between).mean()) * self.unit,
            "new_fraction": float(before.posterior.new.mean()),
            "calibration_loss": float(squares.mean()) * self.unit**2,
            "residual_ratio": float(squares.sum() / (batch.n @ (of.within + unknown))),
        }
        if not self.filters.start.is_continuous:
            chance = np.where(batch.rewards > 0, baselines, 1.0 - baselines)
            metrics["log_loss"] = float(-np.log(np.maximum(chance, TINY)).mean())
        return metrics

    def now(
        self, keys: list[str], sources: list[str] | None, now: float
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean and standard deviation of the prompts' values, and expected spread of a reward."""
        _, posterior = self.filters.at(keys, sources, np.full(len(keys), now))
        noise = self.noise.of(posterior.noise_sum, posterior.noise_count)
        mean, variance = self.drift.collapsed(posterior.mean, posterior.variance)
        offset, unsure = self.common.now(sources, self.form.feature(mean))
        mean, variance = mean + offset, variance + unsure
        value, _, _, between = self.form.predicted(mean, variance, noise)
        spread = self.form.spread(mean, variance, noise)
        return value * self.unit, np.sqrt(between) * self.unit, spread * self.unit

    def state(self) -> dict[str, Any]:
        """What a restart needs."""
        start = self.filters.start
        return {
            "unit": self.unit,
            # Without a table the first batch made it.
            "start": start.mean.tolist() if start.table is None else None,
            "noise": self.noise.state(),
            "drift": self.drift.state(),
            "common": self.common.state(),
            "prompts": self.filters.state(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state`; a table that has grown since may have another unit."""
        unit = float(state["unit"])
        start = self.filters.start
        if not 0 < unit < float("inf") or (not start.is_continuous and unit != 1.0):
            raise ValueError(f"unit is {unit!r}")
        if start.table is None:
            mean = np.array(state["start"], dtype=np.float64)
            if mean.shape != start.mean.shape or not np.isfinite(mean).all():
                raise ValueError(f"start is {state['start']!r}")
            start.mean[:] = mean
        else:
            self.filters.start = start.rescaled(self.unit / unit)
        self.unit = unit
        self.noise.load(state["noise"])
        self.drift.load(state["drift"])
        self.common.load(state["common"])
        self.filters.load(state["prompts"])
