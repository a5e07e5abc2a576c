from __future__ import annotations

import math

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

from basis_rl.errors import ConfigError
from basis_rl.smoothing import credibility_pseudo_count, fit_beta_binomial, pseudo_counts
from basis_rl.values import (
    active_set,
    beta_grid,
    check_betas,
    logit_of_counts,
    sigmoid,
    tilted_moments,
    tilted_value,
)


def test_beta_grid_is_the_papers():
    grid = beta_grid()
    assert len(grid) == 230
    assert grid[0] == 0.01
    assert grid[199] == 2.0
    assert grid[200] == 2.1
    assert grid[-1] == 5.0
    assert (np.diff(grid) > 0).all()


@given(st.integers(1, 63), st.floats(0.02, 50))
def test_tilted_value_is_proposition_2(successes, beta):
    logit = logit_of_counts(successes, 64 - successes)
    expected = reference.tilted_value(successes / 64, beta)
    assert tilted_value(logit, 1 / beta) == pytest.approx(expected, rel=1e-12)


def test_tilted_value_by_hand():
    # p = 1/4, beta = 1/ln 3: odds 1/3 * 3 = 1.
    assert tilted_value(logit_of_counts(1, 3), math.log(3)) == pytest.approx(0.5, rel=1e-15)


def test_tilted_value_at_the_ends_and_at_tiny_beta():
    logits = logit_of_counts([0, 64, 1], [64, 0, 63])
    np.testing.assert_array_equal(tilted_value(logits, 100.0), [0.0, 1.0, 1.0])
    np.testing.assert_array_equal(tilted_value(logits, 1e6), [0.0, 1.0, 1.0])
    np.testing.assert_array_equal(tilted_value(logits, -1e6), [0.0, 1.0, 0.0])


def test_sigmoid_keeps_relative_precision_when_small():
    assert sigmoid(-30.0) == pytest.approx(math.exp(-30) / (1 + math.exp(-30)), rel=1e-15)


def test_active_set_is_open():
    np.testing.assert_array_equal(
        active_set(np.array([0.0, 0.1, 0.11, 0.9, 1.0]), 0.1), [False, False, True, False, False]
    )


def test_tilted_moments_by_hand():
    # rewards 0, 1, 2 with e^(1/beta) = 2: weights 1, 2, 4.
    means, variances = tilted_moments(np.array([[0.0, 1.0, 2.0]]), math.log(2))
    assert means[0] == pytest.approx(10 / 7)
    assert variances[0] == pytest.approx(18 / 7 - (10 / 7) ** 2)


@given(
    st.lists(st.floats(-5, 5), min_size=1, max_size=6),
    st.floats(-3, 3),
    st.integers(0, 3),
)
def test_tilted_moments_ignore_padding_and_repeat_like_weights(rewards, tilt, padding):
    row = np.array([rewards + [99.0] * padding])
    weights = np.array([[1.0] * len(rewards) + [0.0] * padding])
    q = [math.exp(tilt * r) for r in rewards]
    mean = sum(w * r for w, r in zip(q, rewards, strict=True)) / sum(q)
    second = sum(w * r * r for w, r in zip(q, rewards, strict=True)) / sum(q)
    means, variances = tilted_moments(row, tilt, weights)
    assert means[0] == pytest.approx(mean, rel=1e-9, abs=1e-9)
    assert variances[0] == pytest.approx(second - mean**2, rel=1e-6, abs=1e-6)
    assert variances[0] >= 0


def test_tilted_moments_of_0_and_1_are_the_tilted_value():
    means, variances = tilted_moments(np.array([[0.0, 0.0, 0.0, 1.0]]), 0.7)
    value = tilted_value(logit_of_counts(1, 3), 0.7)
    assert means[0] == pytest.approx(value, rel=1e-14)
    assert variances[0] == pytest.approx(value * (1 - value), rel=1e-13)


def test_tilted_moments_do_not_overflow():
    means, variances = tilted_moments(np.array([[0.0, 1.0, 1000.0]]), 100.0)
    assert means[0] == 1000.0
    assert variances[0] == 0.0


def test_pseudo_counts():
    k, n = np.array([0, 4]), np.array([4, 4])
    assert pseudo_counts("none", k, n) == (0.0, 0.0)
    assert pseudo_counts("jeffreys", k, n) == (0.5, 0.5)
    with pytest.raises(ConfigError, match="jeffreys"):
        pseudo_counts("jeffrey", k, n)


@pytest.mark.parametrize(("a", "b"), [(0.4, 0.8), (3.0, 1.0)])
def test_empirical_bayes_finds_the_beta_distribution(a, b):
    rng = np.random.default_rng(0)
    n = rng.integers(4, 40, 20_000)
    fitted = fit_beta_binomial(rng.binomial(n, rng.beta(a, b, 20_000)), n)
    assert fitted == pytest.approx((a, b), rel=0.05)


def test_empirical_bayes_maximises_the_marginal_likelihood():
    rng = np.random.default_rng(1)
    n = np.full(400, 8)
    k = rng.binomial(n, rng.beta(0.7, 1.5, 400))

    def log_likelihood(a, b):
        lg = math.lgamma
        return sum(
            lg(ki + a) + lg(8 - ki + b) - lg(8 + a + b) - lg(a) - lg(b) + lg(a + b) for ki in k
        )

    a, b = fit_beta_binomial(k, n)
    best = log_likelihood(a, b)
    for factor in (0.9, 1.1):
        assert log_likelihood(a * factor, b) < best
        assert log_likelihood(a, b * factor) < best


@pytest.mark.parametrize("k", [[0, 0, 0], [4, 4, 4], [2, 2, 2]])
def test_empirical_bayes_stays_finite_where_all_prompts_are_alike(k):
    a, b = fit_beta_binomial(np.array(k), np.array([4, 4, 4]))
    assert 0.05 <= a <= 1000
    assert 0.05 <= b <= 1000


def test_credibility_is_within_over_between():
    rng = np.random.default_rng(2)
    means = rng.normal(0, 0.5, 4000)
    values = np.repeat(means, 10) + rng.normal(0, 2.0, 40_000)
    fitted = credibility_pseudo_count(values, np.arange(0, 40_001, 10))
    assert fitted == pytest.approx(16.0, rel=0.1)


@pytest.mark.parametrize("betas", [[], [0.0], [-1.0], [float("nan")], [1.0, float("nan")]])
def test_bad_betas_are_refused(betas):
    with pytest.raises(ConfigError, match="positive"):
        check_betas(betas)
