"""A batch's rewards by prompt, what is predicted of them, and what the kind of reward decides."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from basis_rl.batch import FloatArray, IntArray


class Rewards(NamedTuple):
    """Rewards of prompts, or of prompts without one row; shape (P,) each.

    Attributes
    ----------
    total, n : arrays
        Sum and number; n may be 0.
    noise : array
        Variance of one around the prompt's value; real rewards only.
    """

    total: FloatArray
    n: FloatArray
    noise: FloatArray

    def without(self, prompts: IntArray, rewards: FloatArray) -> Rewards:
        """Those of some prompts, less one row each."""
        return Rewards(self.total[prompts] - rewards, self.n[prompts] - 1.0, self.noise[prompts])


class Predicted(NamedTuple):
    """What is known of one reward of each prompt before the batch; shape (P,) each.

    Attributes
    ----------
    value, slope : arrays
        Expected value, and its derivative in the shift.
    within, between : arrays
        Variance of a reward around the value, and of the value itself.
    """

    value: FloatArray
    slope: FloatArray
    within: FloatArray
    between: FloatArray

    def scores(self, rewards: Rewards) -> tuple[FloatArray, FloatArray]:
        """Quasi-score g and information h of the rewards for the shift (docs/online.md, Eq. 5)."""
        pull = self.slope / (self.within + rewards.n * self.between)
        return pull * (rewards.total - rewards.n * self.value), rewards.n * self.slope * pull

    def of(self, prompts: IntArray) -> Predicted:
        """Those of some prompts."""
        return Predicted(*(part[prompts] for part in self))


class Form(Protocol):
    """Values normal on the logit's scale (`BinaryForm`) or the reward's (`GaussianForm`)."""

    def feature(self, mean: FloatArray) -> FloatArray:
        """How hard (-1) to easy (1) prompts are, shape (P,)."""

    def predicted(self, mean: FloatArray, variance: FloatArray, noise: FloatArray) -> Predicted:
        """First two moments of the prompts' rewards, shape (P,)."""

    def after(
        self, mean: FloatArray, variance: FloatArray, rewards: Rewards
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray | None]:
        """Log-likelihood of the rewards, mean and variance after them, shape (K, P).

        And the value before them, or None where that is not at hand.
        """

    def value(self, mean: FloatArray, variance: FloatArray, rewards: Rewards) -> FloatArray:
        """Expected value after the rewards, shape (C,)."""

    def spread(self, mean: FloatArray, variance: FloatArray, noise: FloatArray) -> FloatArray:
        """Expected standard deviation of a reward, shape (P,)."""
