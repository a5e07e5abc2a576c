"""KRPO: a Kalman filter over the rewards of a prompt's rollouts.

Source: arXiv 2505.07527.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from basis_rl.batch import FloatArray, IntArray, RewardBatch, group_index
from basis_rl.errors import BatchError
from basis_rl.estimators.base import ScaledEstimator, check_number, check_share


class Krpo(ScaledEstimator):
    r"""Kalman filter within the group, ``b_i = x_i``, the row's own reward included.

    The rollouts of a prompt are filtered in the order of the batch. From mean x = 0 and variance
    P = 1, each step is ``P <- P + Q``, ``K = P / (P + R)``, ``x <- x + K (r - x)``,
    ``P <- (1 - K) P``, and the row's advantage is ``(r - x) / (sqrt(P) + epsilon)`` with x and P
    after it.

    Parameters
    ----------
    std : bool
        Divide the advantage by ``sqrt(P) + epsilon``, as published. The baseline is the same.
    process_variance, measurement_variance : float
        Q = 1e-5 and R = 1e-2.
    start_mean, start_variance : float
        0 and 1.
    epsilon : float
        1e-8.
    max_unverified : float
        Largest share of NaN rewards accepted.

    Raises
    ------
    ConfigError, BatchError
        If an option is out of range; if no prompt of a batch has a second rollout.

    Notes
    -----
    Nothing is kept from one batch to the next, so a restart needs nothing. The first rollout of a
    group gets 99% of its own reward as baseline, and the k-th about 1/k: the baseline depends on
    the order of the group's rows, and not leaving the own reward out shrinks the advantage by a
    factor that depends on it. A filter that follows a prompt across steps is `KrpoTracking`.

    Source: H. Wang et al., arXiv 2505.07527, and its code, ``train.py`` of
    billhhh/KRPO_LLMs_RL.
    """

    name: ClassVar[str] = "krpo"
    min_rollouts: ClassVar[int] = 2

    def __init__(
        self,
        *,
        std: bool = True,
        process_variance: float = 1e-5,
        measurement_variance: float = 1e-2,
        start_mean: float = 0.0,
        start_variance: float = 1.0,
        epsilon: float = 1e-8,
        max_unverified: float = 0.1,
    ) -> None:
        self.std = std
        self.process_variance = check_number("process_variance", process_variance, 0.0, 1e100)
        self.measurement_variance = check_number(
            "measurement_variance", measurement_variance, 1e-12, 1e100
        )
        self.start_mean = check_number("start_mean", start_mean, -1e100, 1e100)
        self.start_variance = check_number("start_variance", start_variance, 0.0, 1e100)
        self.epsilon = check_number("epsilon", epsilon, 1e-300)
        self.max_unverified = check_share("max_unverified", max_unverified)

    def _scaled_baselines(
        self, rollouts: RewardBatch
    ) -> tuple[FloatArray, FloatArray | None, dict[str, float]]:
        order = _Order.of(rollouts.keys)
        if len(order.steps) == 1:
            raise BatchError(
                f"every prompt has one rollout, of whose reward {self.name!r} makes its own "
                "baseline: sample 2 or more per prompt, or use 'krpo-tracking'"
            )
        gains, variances = self._gains(len(order.steps))
        means, scale = np.empty((2, len(rollouts)))
        x = np.full(int(order.prompt.max()) + 1, self.start_mean)
        # One step of all groups at a time: the rows that are k-th in their group.
        for gain, variance, rows in zip(gains, variances, order.steps, strict=True):
            prompt = order.prompt[rows]
            x[prompt] += gain * (rollouts.rewards[rows] - x[prompt])
            means[rows] = x[prompt]
            scale[rows] = 1.0 / (np.sqrt(variance) + self.epsilon)
        metrics = {"single_fraction": order.single_fraction}
        return means, scale if self.std else None, metrics

    def _gains(self, steps: int) -> tuple[list[float], list[float]]:
        """K and P of each step: the same for every group."""
        gains, variances, P = [], [], self.start_variance
        for _ in range(steps):
            P += self.process_variance
            gains.append(P / (P + self.measurement_variance))
            P *= 1.0 - gains[-1]
            variances.append(P)
        return gains, variances


class _Order(NamedTuple):
    """Place of each row in its group.

    Attributes
    ----------
    prompt : int array, shape (B,)
    steps : list of int arrays
        Rows that come first, second, … of their prompt.
    """

    prompt: IntArray
    steps: list[IntArray]

    @classmethod
    def of(cls, keys: list[str]) -> _Order:
        """Count each prompt's rows in the order of the batch."""
        prompt = group_index(keys)
        counts = np.bincount(prompt)
        by_prompt = np.argsort(prompt, kind="stable")
        place = np.empty(len(keys), dtype=np.int64)
        place[by_prompt] = np.arange(len(keys)) - np.repeat(np.cumsum(counts) - counts, counts)
        ends = np.cumsum(np.bincount(place))[:-1]
        return cls(prompt, np.split(np.argsort(place, kind="stable"), ends))

    @property
    def single_fraction(self) -> float:
        """Share of rollouts that are alone with their prompt."""
        return float((np.bincount(self.prompt) == 1).sum() / len(self.prompt))
