r"""A variance, learned: a few filters side by side, weighted by how well they predict.

Each filter believes in another variance q of a random walk's step. Its weight is multiplied by
the likelihood of every batch given what it knew before, and a small share a is dealt out anew at
each step, for a pace that changes, so that no filter is ever lost (docs/online.md, Eq. 9):

    w_k <- (1 - a) w_k L_k / sum_l w_l L_l + a / K

Source: Herbster and Warmuth, Tracking the best expert, Machine Learning 32, 1998.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from basis_rl.batch import FloatArray


class Weights:
    """Weights of K filters.

    Parameters
    ----------
    deviations : array, shape (K,)
        Standard deviation of a step under each filter.
    switching : float
        The share a, per step.
    """

    def __init__(self, deviations: npt.ArrayLike, switching: float) -> None:
        self.variances: FloatArray = np.asarray(deviations, dtype=np.float64) ** 2
        self.switching = switching
        self.weights: FloatArray = np.full(len(self.variances), 1.0 / len(self.variances))

    def learn(self, log_likelihood: FloatArray, steps: int) -> None:
        """Take in the log-likelihood of a batch under each filter, shape (K,), after some steps."""
        weights = self.weights * np.exp(log_likelihood - log_likelihood.max())
        kept = (1.0 - self.switching) ** steps
        self.weights = kept * weights / weights.sum() + (1.0 - kept) / len(weights)

    @property
    def deviation(self) -> float:
        """Standard deviation of a step: the filters' geometric mean, weighted."""
        return float(np.exp(0.5 * (self.weights @ np.log(self.variances))))

    def collapsed(self, mean: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Moments of the filters' mixture; (K, B) to (B,)."""
        middle = self.weights @ mean
        return middle, self.weights @ (variance + (mean - middle) ** 2)

    def state(self) -> dict[str, Any]:
        """What a restart needs."""
        return {"weights": self.weights.tolist(), "variances": self.variances.tolist()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state`."""
        weights = np.array(state["weights"], dtype=np.float64)
        if not np.allclose(state["variances"], self.variances, rtol=1e-9, atol=0):
            raise ValueError("the filters' variances are others")
        fits = weights.shape == self.variances.shape and (weights >= 0).all()
        if not fits or abs(weights.sum() - 1.0) > 1e-6:
            raise ValueError(f"the filters' weights are {weights.tolist()}")
        self.weights = weights
