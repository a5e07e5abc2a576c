"""Generalised advantages and token whitening against naive loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basis_rl import BatchError, ConfigError
from basis_rl.gae import gae
from basis_rl.whitening import weighted_moments, whiten_tokens


def naive(rewards, values, mask, gamma, lam):
    """Eq. 16 as it is printed, a sum of TD errors, for each row's own tokens."""
    advantages = np.zeros(np.shape(mask))
    for row, (r, v, m) in enumerate(zip(rewards, values, mask, strict=True)):
        tokens = [t for t in range(len(m)) if m[t]]
        own = [v[t] for t in tokens] + [0.0]
        deltas = [r[t] + gamma * own[k + 1] - own[k] for k, t in enumerate(tokens)]
        for k, t in enumerate(tokens):
            later = range(k, len(tokens))
            advantages[row, t] = sum((gamma * lam) ** (n - k) * deltas[n] for n in later)
    return advantages


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    rows=st.integers(1, 4),
    tokens=st.integers(1, 7),
    gamma=st.sampled_from([1.0, 0.9, 0.0]),
    lam=st.sampled_from([1.0, 0.8, 0.0]),
)
def test_against_the_sum_of_td_errors(seed, rows, tokens, gamma, lam):
    rng = np.random.default_rng(seed)
    mask = rng.integers(0, 2, (rows, tokens))
    mask[0, 0] = 1
    rewards, values = rng.normal(size=mask.shape), rng.normal(size=mask.shape)
    advantages, returns = gae(rewards, values, mask, gamma, lam)
    np.testing.assert_allclose(advantages, naive(rewards, values, mask, gamma, lam), atol=1e-12)
    np.testing.assert_allclose(returns, advantages + values * mask, atol=1e-12)


def test_by_hand():
    # One row of three tokens; the middle one is a tool's, with a reward that is dropped.
    advantages, returns = gae([[0, 9, 1]], [[0.5, 7, 0.25]], [[1, 0, 1]], gamma=0.5, lam=0.5)
    last = 1 - 0.25
    first = 0 + 0.5 * 0.25 - 0.5 + 0.25 * last
    np.testing.assert_allclose(advantages, [[first, 0, last]])
    np.testing.assert_allclose(returns, [[first + 0.5, 0, 1]])
    advantages, returns = gae([[0, 0, 1]], [[0.5, 0.1, 0.25]], np.ones((1, 3)))
    np.testing.assert_allclose(advantages, [[0.5, 0.9, 0.75]])
    np.testing.assert_allclose(returns, 1.0)


def test_padding_may_hold_anything():
    nothing = np.nan
    advantages, _ = gae([[1, nothing]], [[0.5, nothing]], [[1, 0]])
    np.testing.assert_array_equal(advantages, [[0.5, 0]])


def test_bad_input_is_named():
    good = np.ones((2, 3))
    with pytest.raises(ConfigError, match=r"gamma is 1\.5"):
        gae(good, good, good, gamma=1.5)
    with pytest.raises(ConfigError, match="lam is nan"):
        gae(good, good, good, lam=float("nan"))
    with pytest.raises(BatchError, match=r"values has shape \(2, 2\) and the mask \(2, 3\)"):
        gae(good, good[:, :2], good)
    bad = good.copy()
    bad[1, 2] = np.inf
    with pytest.raises(BatchError, match=r"rewards\[1, 2\] is inf"):
        gae(bad, good, good)
    for mask in (good * 2, good * 0, good[0]):
        with pytest.raises(BatchError, match="mask has shape"):
            gae(good, good, mask)


def test_whitening_has_mean_0_and_variance_1_over_the_mask():
    rng = np.random.default_rng(0)
    values, mask = rng.normal(3, 2, (5, 9)), rng.integers(0, 2, (5, 9))
    white = whiten_tokens(values, mask)
    inside = white[mask == 1]
    assert abs(inside.mean()) < 1e-12
    assert inside.var(ddof=1) == pytest.approx(1, abs=1e-7)
    assert not white[mask == 0].any()
    kept = whiten_tokens(values, mask, shift_mean=False)[mask == 1]
    np.testing.assert_allclose(kept - inside, values[mask == 1].mean())


def test_weighted_moments_count_a_weight_as_so_many_observations():
    values, weights = np.array([1.0, 4.0, 2.0]), np.array([3.0, 1.0, 2.0])
    repeated = np.repeat(values, weights.astype(int))
    mean, variance = weighted_moments(values, weights)
    assert (mean, variance) == pytest.approx((repeated.mean(), repeated.var(ddof=1)))
    assert weighted_moments(values, weights, unbiased=False)[1] == pytest.approx(repeated.var())
    assert weighted_moments(np.array([2.0]), np.array([1.0])) == (2.0, 0.0)
