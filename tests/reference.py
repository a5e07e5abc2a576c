"""The paper's equations as printed: loops over pairs of prompts, no shared sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np


def tilted_value(p: float, beta: float) -> float:
    """Eq. 4 for a 0/1 reward."""
    if math.isinf(beta):
        return p
    tilt = math.exp(min(1.0 / beta, 700.0))
    return p * tilt / (p * tilt + 1.0 - p)


def weights_of(variant: str, V: Sequence, active: Sequence[bool], i: int) -> list:
    """Row i of w: Eq. 3/6 (unb), Prop. 3 (vop), Appendix B (rvg); 0 where i or j is inactive."""
    others = [j for j in range(len(V)) if j != i and active[j]]
    row = [0] * len(V)
    if not active[i] or not others:
        return row
    mass = sum(V[k] ** 2 / (V[k] * (1 - V[k])) for k in others)
    constant = 1 if variant == "vop" else 0
    for j in others:
        if variant == "rvg":
            row[j] = V[i] / V[j] / len(others)
        else:
            row[j] = V[i] * V[j] / (V[j] * (1 - V[j])) / (constant + mass)
    return row


def refined(variant: str, V: Sequence, r: Sequence, active: Sequence[bool]) -> list:
    """Eq. 2; 0 where no other row is active."""
    return [
        sum(wij * rj for wij, rj in zip(weights_of(variant, V, active, i), r, strict=True))
        for i in range(len(V))
    ]


def basis(
    p: Sequence[float],
    r: Sequence[float],
    betas: Sequence[float],
    *,
    variant: str = "unb",
    literal: bool = False,
    epsilon: float = 1e-6,
) -> tuple[list[float], float]:
    """Algorithm 1: baselines and beta, among equal losses the largest beta."""
    best: tuple[float, float, list[float]] | None = None
    for beta in sorted(betas):
        V = [tilted_value(pi, beta) for pi in p]
        active = [epsilon < v < 1 - epsilon for v in V]
        b = V if variant == "initial" else refined(variant, V, r, active)
        rows = [i for i in range(len(p)) if active[i] or not literal]
        loss = sum((r[i] - b[i]) ** 2 for i in rows) / len(rows) if rows else math.inf
        if best is None or loss <= best[0]:
            best = (loss, beta, list(b))
    assert best is not None
    return best[2], best[1]


def exact_unbiased(p: Sequence[Fraction], r: Sequence[int]) -> list[Fraction]:
    """Eq. 6 in rational arithmetic, where taking a row off the total is exact."""
    numerator = sum(rj / (1 - pj) for pj, rj in zip(p, r, strict=True))
    mass = sum(pj / (1 - pj) for pj in p)
    return [
        pi * (numerator - ri / (1 - pi)) / (mass - pi / (1 - pi))
        for pi, ri in zip(p, r, strict=True)
    ]


def leave_one_out_shift(
    logits: Sequence[float], r: Sequence[float], previous: float, drift: float
) -> list[float]:
    """One Newton step for every row, from the other rows alone."""
    V = [1.0 / (1.0 + math.exp(-(x + previous))) for x in logits]
    shifts = []
    for i in range(len(V)):
        others = [j for j in range(len(V)) if j != i]
        gradient = sum(r[j] - V[j] for j in others)
        curvature = sum(V[j] * (1.0 - V[j]) for j in others)
        step = gradient / (curvature + 1.0 / drift)
        shifts.append(previous + min(max(step, -1.0), 1.0))
    return shifts


def source_steps(
    gradients: Sequence[float],
    curvatures: Sequence[float],
    sources: Sequence[str],
    drift: float,
    between: float,
) -> dict[str, float]:
    """Step of every source: posterior mode of ``step_s = c + own_s`` with Gaussian priors.

    The log posterior is ``sum_s (G_s step_s - H_s step_s^2 / 2) - c^2 / (2 drift) -
    sum_s own_s^2 / (2 between)``: solved as one linear system in c and the own steps.
    """
    names = sorted(set(sources))
    G, H = (
        np.array([sum(x for x, s in zip(terms, sources, strict=True) if s == n) for n in names])
        for terms in (gradients, curvatures)
    )
    size = len(names)
    A, y = np.zeros((size + 1, size + 1)), np.zeros(size + 1)
    A[0, 0], y[0] = H.sum() + 1.0 / drift, G.sum()
    for k in range(size):
        A[0, k + 1] = A[k + 1, 0] = H[k]
        A[k + 1, k + 1], y[k + 1] = H[k] + 1.0 / between, G[k]
    solution = np.linalg.solve(A, y)
    return {n: float(solution[0] + solution[k + 1]) for k, n in enumerate(names)}
