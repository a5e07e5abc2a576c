"""Accuracy on the test prompts before and after, and how sure the difference is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from basis_rl.batch import FloatArray
from basis_rl.errors import ConfigError
from basis_rl.prompts import Prompt
from basis_rl.rollouts import Engine, SamplingSettings
from basis_rl.verifiers import NamedVerifier

NORMAL_95 = 1.959963984540054  # 97.5% quantile of the standard normal distribution
_PROMPTS_AT_A_TIME = 32
Progress = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Comparison:
    """Accuracy of two policies on the same prompts.

    Attributes
    ----------
    before, after : float
        Mean reward.
    difference : float
        ``after - before``.
    low, high : float
        95% interval of the difference.
    prompts : int
    """

    before: float
    after: float
    difference: float
    low: float
    high: float
    prompts: int

    @property
    def improved(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.low > 0

    def to_dict(self) -> dict[str, Any]:
        """JSON types."""
        return {**asdict(self), "improved": self.improved}


def compare(before: FloatArray, after: FloatArray) -> Comparison:
    """Paired difference of mean rewards, prompt by prompt.

    ``d_i = mean_k after_ik - mean_k before_ik``; the interval is ``mean(d) +- 1.96 s / sqrt(P)``, s
    the sample standard deviation of d. Prompts are the unit: a prompt's samples are not
    independent of each other.

    Parameters
    ----------
    before, after : float array, shape (P, K)
        Rewards of K completions of each prompt.

    Raises
    ------
    ConfigError
        If the shapes differ or there are fewer than two prompts.
    """
    if before.shape != after.shape or before.ndim != 2 or len(before) < 2:
        raise ConfigError(
            f"rewards before have shape {before.shape}, after {after.shape}: give both the same "
            "prompts, two or more, and as many samples"
        )
    differences = after.mean(axis=1) - before.mean(axis=1)
    mean = float(differences.mean())
    half = NORMAL_95 * float(differences.std(ddof=1)) / len(differences) ** 0.5
    return Comparison(
        before=float(before.mean()),
        after=float(after.mean()),
        difference=mean,
        low=mean - half,
        high=mean + half,
        prompts=len(differences),
    )


def by_task(
    prompts: Sequence[Prompt], before: FloatArray, after: FloatArray
) -> dict[str, Comparison]:
    """`compare` for each task, in order of appearance."""
    tasks = [prompt.source or "" for prompt in prompts]
    rows = {task: [i for i, other in enumerate(tasks) if other == task] for task in tasks}
    return {task: compare(before[indices], after[indices]) for task, indices in rows.items()}


def rewards(
    engine: Engine,
    prompts: Sequence[Prompt],
    verifier: NamedVerifier,
    settings: SamplingSettings,
    *,
    samples: int,
    seed: int,
    progress: Progress,
) -> FloatArray:
    """Rewards of sampled completions, shape (P, K).

    The same seed gives every policy the same random numbers, so that a difference between two
    is the policies' own.
    """
    given: list[list[float]] = []
    for start in range(0, len(prompts), _PROMPTS_AT_A_TIME):
        some = prompts[start : start + _PROMPTS_AT_A_TIME]
        completions = engine.sample(
            [prompt.prompt for prompt in some],
            samples,
            settings,
            seed=seed,
            keys=[prompt.key for prompt in some],
        )
        given += [
            [verifier(text, prompt.columns) for text in texts]
            for prompt, texts in zip(some, completions, strict=True)
        ]
        progress(len(given), len(prompts), float(np.mean(given)))
    return np.array(given, dtype=np.float64)
