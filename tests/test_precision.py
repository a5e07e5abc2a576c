"""One prompt near V = 1 dominates every sum; what is left without it must keep its digits."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import reference

from basis_rl import Basis, PassRates, RewardBatch

N = 10_000_000
SURE = N - 20  # V = 1 - 2e-6
HARD = 100  # V = 1e-5


def batch_and_exact(passed_hard):
    successes = [SURE] + [HARD] * 511
    rewards = [1] + [1 if i in passed_hard else 0 for i in range(511)]
    exact = reference.exact_unbiased([Fraction(k, N) for k in successes], rewards)
    return successes, rewards, exact


@pytest.mark.parametrize("passed_hard", [{5}, set(range(0, 511, 3))])
@pytest.mark.parametrize("distinct_n", [False, True])
def test_baselines_equal_the_exact_rational_computation(passed_hard, distinct_n, monkeypatch):
    if distinct_n:
        # Too many different pass rates for the exact levels: the way through rows.
        monkeypatch.setattr("basis_rl.levels.MOST_EXACT_LEVELS", 1)
    successes, rewards, exact = batch_and_exact(passed_hard)
    keys = [f"p{i}" for i in range(512)]
    table = PassRates.from_counts(keys, successes, N)
    # At beta = infinity the value is the pass rate itself, a rational number.
    basis = Basis(table, preset="paper", betas=[float("inf")], epsilon=1e-7)
    assert basis._form.levels.exact != distinct_n
    baselines = basis.estimate(RewardBatch(keys, rewards)).baselines
    relative = [abs(Fraction(b) / e - 1) for b, e in zip(baselines, exact, strict=True)]
    assert max(relative) < Fraction(1, 10**12)
    if passed_hard == {5}:
        assert subtraction_error(successes, rewards, exact) > 1e-9


def subtraction_error(successes, rewards, exact):
    """What taking row i off the total loses: the case tells the two ways apart."""
    p = np.array(successes) / N
    r = np.array(rewards, float)
    numerator, mass = r / (1 - p), p / (1 - p)
    naive = p * (numerator.sum() - numerator) / (mass.sum() - mass)
    return max(abs(float(Fraction(b) / e - 1)) for b, e in zip(naive, exact, strict=True))
