"""The best few baselines in the course of a record."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from basis_rl.lab.recommend.choice import Choice
from basis_rl.lab.recommend.noise import Shown, interval_of, resampled

WINDOWS = 8
BASELINES = 4
_LEAST_ROWS = 64


@dataclass(frozen=True)
class Curves:
    """Noise by windows of the record's steps.

    Attributes
    ----------
    names, labels : list of str, length C
        The chosen baseline first.
    steps : list of (int, int), length T
        First and last step of each window.
    noise, low, high : lists of C lists of T floats
        With 95% interval.
    within : float
        Noise of a perfect baseline; NaN if unknown.
    """

    names: list[str]
    labels: list[str]
    steps: list[tuple[int, int]]
    noise: list[list[float]]
    low: list[list[float]]
    high: list[list[float]]
    within: float


def curves_of(shown: Shown, choice: Choice, *, always: tuple[str, ...] = ("batch-mean",)) -> Curves:
    """Curves of the chosen baseline, of the best others and of the batch mean."""
    others = [each for each in choice.distinct if each is not choice.chosen]
    extra = [each for each in others if each.option.name in always]
    picked = [choice.chosen, *[e for e in others if e not in extra][: BASELINES - 1], *extra]
    rows = [shown.names.index(each.option.name) for each in picked]
    steps = np.unique(shown.step)
    windows = int(np.clip(len(shown.step) // _LEAST_ROWS, 1, min(WINDOWS, len(steps))))
    spans, noise, bounds = [], [], []
    for part in np.array_split(steps, windows):
        inside = (shown.step >= part[0]) & (shown.step <= part[-1])
        values = shown.noise[rows][:, inside]
        spans.append((int(part[0]), int(part[-1])))
        noise.append(values.mean(axis=1))
        bounds.append(interval_of(resampled(values, shown.prompt[inside], draws=400)))
    low, high = np.moveaxis(np.array(bounds), 2, 0)
    return Curves(
        [each.option.name for each in picked],
        [each.option.label for each in picked],
        spans,
        np.array(noise).T.tolist(),
        low.T.tolist(),
        high.T.tolist(),
        shown.within,
    )
