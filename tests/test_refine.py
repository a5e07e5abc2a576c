from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

from basis_rl.refine import (
    WEIGHTINGS,
    bernoulli_variance,
    bernoulli_weighting,
    exclusive_sums,
    exclusive_sums_of_counts,
    refined_baselines,
    weight_matrix,
)

VARIANTS = ["unb", "vop", "rvg"]
values_and_rewards = st.lists(
    st.tuples(st.floats(0.01, 0.99), st.integers(0, 1), st.booleans()), min_size=1, max_size=9
)


def weighting_of(variant, values):
    return WEIGHTINGS[variant](values, bernoulli_variance(values))


@pytest.mark.parametrize("variant", VARIANTS)
@given(rows=values_and_rewards)
def test_refined_baselines_equal_the_double_loop(variant, rows):
    values, rewards, active = (np.array(x) for x in zip(*rows, strict=True))
    expected = reference.refined(variant, values, rewards, active)
    actual = refined_baselines(values, rewards, active, weighting_of(variant, values))
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("variant", VARIANTS)
@given(rows=values_and_rewards)
def test_weight_matrix_equals_the_double_loop(variant, rows):
    values, _, active = (np.array(x) for x in zip(*rows, strict=True))
    expected = [reference.weights_of(variant, values, active, i) for i in range(len(values))]
    matrix = weight_matrix(values, active, weighting_of(variant, values))
    np.testing.assert_allclose(matrix, expected, rtol=1e-12)
    assert (np.diagonal(matrix) == 0).all()


@pytest.mark.parametrize("variant", VARIANTS)
@given(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=6))
def test_weighting_from_odds_is_the_weighting_from_values(variant, values):
    V = np.array(values)
    x, y, prior = bernoulli_weighting(variant, V / (1 - V))
    x0, y0, prior0 = weighting_of(variant, V)
    np.testing.assert_allclose(x, x0, rtol=1e-12)
    np.testing.assert_allclose(y, y0, rtol=1e-12)
    assert prior == prior0


def test_unbiased_baselines_by_hand():
    # V = 1/2, 1/2, 2/3: V/s2 = 2, 2, 3 and V^2/s2 = 1, 1, 2; rewards 1, 0, 1.
    V = np.array([0.5, 0.5, 2 / 3])
    actual = refined_baselines(
        V, np.array([1.0, 0.0, 1.0]), np.ones(3, bool), weighting_of("unb", V)
    )
    np.testing.assert_allclose(actual, [0.5 * 3 / 3, 0.5 * 5 / 3, 2 / 3 * 2 / 2], rtol=1e-15)


def test_shrinkage_and_ratio_baselines_by_hand():
    V = np.array([0.5, 0.5, 2 / 3])
    r, everyone = np.array([1.0, 0.0, 1.0]), np.ones(3, bool)
    vop = refined_baselines(V, r, everyone, weighting_of("vop", V))
    np.testing.assert_allclose(vop, [0.5 * 3 / 4, 0.5 * 5 / 4, 2 / 3 * 2 / 3], rtol=1e-15)
    rvg = refined_baselines(V, r, everyone, weighting_of("rvg", V))
    np.testing.assert_allclose(rvg, [0.5 * 1.5 / 2, 0.5 * 3.5 / 2, 2 / 3 * 2 / 2], rtol=1e-15)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_exclusive_sums(terms):
    array = np.array(terms)
    expected = [sum(terms[:i] + terms[i + 1 :]) for i in range(len(terms))]
    np.testing.assert_allclose(exclusive_sums(array), expected, rtol=1e-9, atol=1e-6)


@given(
    st.lists(st.tuples(st.floats(0, 1e9), st.integers(0, 3)), min_size=1, max_size=8).filter(
        lambda rows: any(count for _, count in rows)
    )
)
def test_exclusive_sums_of_counts(rows):
    terms, counts = (np.array(x, dtype=float) for x in zip(*rows, strict=True))
    totals, rest = exclusive_sums_of_counts(terms, counts)
    exact = [Fraction(t) * int(c) for t, c in zip(terms, counts, strict=True)]
    assert totals == pytest.approx(float(sum(exact)), rel=1e-12)
    for i, count in enumerate(counts):
        if count:
            others = float(sum(exact) - Fraction(terms[i]))
            assert rest[i] == pytest.approx(others, rel=1e-12, abs=1e-300)


def all_rewards(V):
    """Every reward vector of a batch and its probability."""
    for rewards in itertools.product([0.0, 1.0], repeat=len(V)):
        r = np.array(rewards)
        yield r, float(np.prod(np.where(r == 1, V, 1 - V)))


def bias_and_mse(V, baselines_of):
    """Exact bias and MSE of each baseline, by enumeration."""
    bias, mse = np.zeros(len(V)), np.zeros(len(V))
    for r, probability in all_rewards(V):
        b = baselines_of(r)
        bias += probability * (b - V)
        mse += probability * (b - V) ** 2
    return bias, mse


@pytest.mark.parametrize("seed", range(3))
def test_unb_is_unbiased_and_of_least_variance_among_unbiased_weightings(seed):
    rng = np.random.default_rng(seed)
    V = rng.uniform(0.05, 0.95, 6)
    everyone = np.ones(6, bool)
    bias, best = bias_and_mse(
        V,
        lambda r: refined_baselines(V, r, everyone, weighting_of("unb", V)),
    )
    np.testing.assert_allclose(bias, 0, atol=1e-12)
    for _ in range(50):
        W = rng.normal(size=(6, 6))
        np.fill_diagonal(W, 0)
        W *= (V / (W @ V))[:, None]  # unbiased: W V = V
        bias, mse = bias_and_mse(V, lambda r, W=W: W @ r)
        np.testing.assert_allclose(bias, 0, atol=1e-9)
        assert (mse >= best - 1e-12).all()
    # A small unbiased change of the weights makes it worse: the minimum is strict.
    W = weight_matrix(V, everyone, weighting_of("unb", V))
    W[0, 1] += 0.01
    W[0, 2] -= 0.01 * V[1] / V[2]
    _, mse = bias_and_mse(V, lambda r: W @ r)
    assert mse[0] > best[0]


@pytest.mark.parametrize("seed", range(3))
def test_vop_is_of_least_mse_among_all_weightings(seed):
    rng = np.random.default_rng(seed)
    V = rng.uniform(0.05, 0.95, 6)
    W = weight_matrix(V, np.ones(6, bool), weighting_of("vop", V))
    _, best = bias_and_mse(V, lambda r: W @ r)
    unbiased = weight_matrix(V, np.ones(6, bool), weighting_of("unb", V))
    for _ in range(50):
        other = W + rng.normal(scale=0.05, size=W.shape)
        np.fill_diagonal(other, 0)
        _, mse = bias_and_mse(V, lambda r, other=other: other @ r)
        assert (mse > best).all()
    _, mse = bias_and_mse(V, lambda r: unbiased @ r)
    assert (mse > best).all()
