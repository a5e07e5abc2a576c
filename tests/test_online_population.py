"""Populations of logits, and the normals that stand for posteriors under them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basis_rl import PassRates
from basis_rl.estimators import BasisOnline
from basis_rl.estimators.online.binary import NODES, WEIGHTS
from basis_rl.estimators.online.mixture import (
    CENTRES,
    LARGEST_VARIANCE,
    WIDTH,
    Counts,
    normal_logit,
    normal_weights,
)
from basis_rl.values import sigmoid


def moments(mean, variance):
    values = sigmoid(np.asarray(mean)[..., None] + np.sqrt(variance)[..., None] * NODES)
    value = values @ WEIGHTS
    return value, (values - value[..., None]) ** 2 @ WEIGHTS


@settings(max_examples=100, deadline=None)
@given(st.floats(-9, 9), st.floats(1e-6, 20))
def test_the_normal_of_a_values_moments_has_them(mean, variance):
    wanted = moments(np.array([mean]), np.array([variance]))
    found = moments(*normal_logit(*wanted))
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-3)


def test_a_variance_out_of_reach_gives_the_widest():
    _, variance = normal_logit(np.array([0.5]), np.array([0.2499]))
    assert variance[0] == pytest.approx(LARGEST_VARIANCE)


@pytest.mark.parametrize(
    ("k", "n"), [(0, 0), (0, 8), (8, 8), (3, 8), (64, 64), (500, 1000), (0, 100_000)]
)
def test_posteriors_agree_with_dense_integrals(k, n):
    weights = 0.5 * normal_weights(-2.0, 0.5) + 0.5 * normal_weights(1.0, 1.0)
    mean, variance = Counts(np.array([float(k)]), np.array([float(n)])).posteriors(weights)
    x = np.linspace(-16, 16, 200_001)
    prior = np.zeros_like(x)
    for weight, centre in zip(weights, CENTRES, strict=True):
        prior += weight * np.exp(-0.5 * ((x - centre) / WIDTH) ** 2)
    log_likelihood = -k * np.logaddexp(0, -x) - (n - k) * np.logaddexp(0, x)
    density = prior * np.exp(log_likelihood - log_likelihood.max())
    density /= density.sum()
    values = sigmoid(x)
    expected = density @ values
    found = moments(mean, variance)
    np.testing.assert_allclose(found[0], [expected], rtol=1e-3)
    np.testing.assert_allclose(found[1], [density @ (values - expected) ** 2], rtol=1e-2)


def test_two_heaps_are_found_and_a_prompt_is_put_into_one():
    rng = np.random.default_rng(0)
    rates = np.where(np.arange(400) < 200, 0.1, 0.9)
    online = BasisOnline(PassRates.from_counts(range(400), rng.binomial(8, rates), 8))
    value, _ = online.posterior(range(400))
    # The pass rate of 8 has an error of 0.0112, Laplace's rule one of 0.0102.
    assert ((value - rates) ** 2).mean() < 0.004


def test_a_source_is_drawn_to_its_own_population():
    sources = ["easy"] * 40 + ["hard"] * 40
    counts = [2] * 36 + [1] * 4 + [0] * 36 + [1] * 4
    table = PassRates.from_counts(range(80), counts, 2, sources=sources)
    value, _ = BasisOnline(table).posterior([39, 79], ["easy", "hard"])
    assert value[0] - value[1] > 0.2
