"""Choosing among baselines whose noise is known with some uncertainty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from basis_rl.lab.recommend.noise import Shown, exceeding, interval_of

# One hundredth more noise is made up for by one hundredth more rollouts.
TOLERANCE = 0.01
FEW_PROMPTS = 8  # fewer, drawn again and again, do not tell how others would differ


@dataclass(frozen=True)
class Option:
    """A baseline that could be used.

    Attributes
    ----------
    name, label : str
    uses_cache : bool
        Whether it takes pass rates of a reference policy.
    remembers : bool
        Whether it keeps numbers for every prompt between steps.
    follows : bool
        Whether it follows a policy that changes: all but fixed functions of the pass rates.
    """

    name: str
    label: str
    uses_cache: bool
    remembers: bool
    follows: bool = True

    @property
    def parts(self) -> int:
        """What has to be built, kept and restored for it: 0 to 2 things."""
        return int(self.uses_cache) + int(self.remembers)


@dataclass(frozen=True)
class Ranked:
    """One baseline's figures.

    Attributes
    ----------
    option : Option
    noise : float
        ``E (r - b)^2``.
    low, high : float
        95% interval of it.
    mse, mse_low, mse_high : float
        Mean squared error of the baseline; NaN if the record does not tell.
    excess : float
        Share by which the noise exceeds that of a perfect baseline, ``MSE / E Var(r)``: as many
        more rollouts make up for it.
    rollouts : float
        The mean of that many other rollouts of the prompt is as good a baseline; infinite if it
        cannot be told from a perfect one.
    behind, behind_low, behind_high : float
        Share by which its noise exceeds that of the chosen baseline, with 95% interval.
    best : float
        Share of the bootstrap draws in which no other has less noise.
    """

    option: Option
    noise: float
    low: float
    high: float
    mse: float
    mse_low: float
    mse_high: float
    excess: float
    rollouts: float
    behind: float
    behind_low: float
    behind_high: float
    best: float


@dataclass(frozen=True)
class Choice:
    """The baseline to use.

    Attributes
    ----------
    ranked : list of Ranked
        Least noise first.
    chosen : Ranked
        The simplest of those within the tolerance of the least noise.
    sure : float
        Share of the bootstrap draws in which it is within the tolerance of the least noise; NaN
        with fewer than 8 prompts.
    close : float
        The same for twice the tolerance.
    tolerance : float
    """

    ranked: list[Ranked]
    chosen: Ranked
    sure: float
    close: float
    tolerance: float

    def find(self, name: str) -> Ranked | None:
        """Figures of a baseline by name."""
        return next((each for each in self.ranked if each.option.name == name), None)

    @property
    def distinct(self) -> list[Ranked]:
        """Without those that came to the same baselines as one before them."""
        return [
            each
            for each, before in zip(self.ranked, [None, *self.ranked], strict=False)
            if before is None or each.noise != before.noise or each is self.chosen
        ]

    @property
    def best(self) -> Ranked:
        """The baseline with the least noise, which may be less simple than the chosen one."""
        return self.ranked[0]

    @property
    def best_by(self) -> float:
        """Share by which the least noise is below that of the chosen baseline."""
        return -self.best.behind

    @property
    def runner_up(self) -> Ranked | None:
        """The best of the others."""
        others = [each for each in self.ranked if each is not self.chosen]
        return others[0] if others else None


def choose(shown: Shown, options: list[Option], *, tolerance: float = TOLERANCE) -> Choice:
    """The simplest of the baselines whose noise is within a tolerance of the least.

    Parameters
    ----------
    shown : Shown
    options : list of Option, length E
        In the order of ``shown.names``.
    tolerance : float
        Share of the noise, 0.01 being one rollout in a hundred.
    """
    means, drawn = shown.means, shown.drawn
    near = np.flatnonzero(means <= means.min() * (1.0 + tolerance))
    at = min(near.tolist(), key=lambda i: (options[i].parts, not options[i].follows, means[i]))
    least = drawn.min(axis=1)
    bounds = shown.interval()
    behind = interval_of(exceeding(drawn, drawn[:, at : at + 1]))
    ahead = exceeding(means, means[at])
    best = (drawn <= least[:, None]).mean(axis=0)
    mse = shown.mse()
    ranked = [
        Ranked(
            option,
            float(means[i]),
            float(bounds[i, 0]),
            float(bounds[i, 1]),
            float(mse[i]),
            float(bounds[i, 0] - shown.within),
            float(bounds[i, 1] - shown.within),
            float(mse[i] / shown.within) if shown.within > 0 else float("nan"),
            float(shown.within / mse[i]) if mse[i] > 0 else float("inf"),
            float(ahead[i]),
            float(behind[i, 0]),
            float(behind[i, 1]),
            float(best[i]),
        )
        for i, option in enumerate(options)
    ]
    chosen = ranked[at]
    sure = close = float("nan")
    if len(np.unique(shown.prompt)) >= FEW_PROMPTS:
        sure, close = (
            float((drawn[:, at] <= least * (1.0 + times * tolerance)).mean()) for times in (1, 2)
        )
    return Choice(sorted(ranked, key=lambda each: each.noise), chosen, sure, close, tolerance)
