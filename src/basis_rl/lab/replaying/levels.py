"""How difficult a visit's prompt is, told by rollouts that neither estimators nor oracle have."""

from __future__ import annotations

import numpy as np

from basis_rl.batch import FloatArray
from basis_rl.lab.replaying.draw import Draw
from basis_rl.lab.replaying.plan import Plan

REACH = 3  # visits before and after


def levels(plan: Plan, draw: Draw) -> tuple[FloatArray, FloatArray]:
    """Mean reward of the prompt's neighbouring visits, and that mean's sampling variance.

    Rows sorted into bins by their own oracle are sorted by its noise too, and rows sorted by what
    an estimator has seen by the estimator's error. So the bins are of the rollouts that nobody is
    shown, of up to three visits before and three after. Of a prompt with a single visit it is that
    of the visit's reserved rollouts, and NaN where it is too small to reserve any.

    Returns
    -------
    level, variance : float64 array, shape (K,)
    """
    size, mean, variance = draw.after(plan.largest)
    prompt = plan.record.prompt[plan.visits]
    order = np.argsort(prompt, kind="stable")
    owner = prompt[order]
    n = np.zeros(len(order))
    total, noise = np.zeros(len(order)), np.zeros(len(order))
    count, sums = size[order].astype(np.float64), (size * mean)[order]
    squares = (variance * size**2)[order]
    for shift in range(1, REACH + 1):
        same = owner[shift:] == owner[:-shift]
        for here, there in (
            (slice(shift, None), slice(None, -shift)),
            (slice(None, -shift), slice(shift, None)),
        ):
            n[here] += np.where(same, count[there], 0.0)
            total[here] += np.where(same, sums[there], 0.0)
            noise[here] += np.where(same, squares[there], 0.0)
    n[n == 0] = np.nan
    level, level_variance = np.empty(len(order)), np.empty(len(order))
    level[order], level_variance[order] = total / n, noise / n**2
    some = plan.reserved > 0
    _, level[some], level_variance[some] = draw.reserved()
    return level, level_variance
