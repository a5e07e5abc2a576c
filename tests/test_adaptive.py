"""The stopping rule: its limits, its allocation, and what it saves on a real run."""

from __future__ import annotations

import numpy as np
import pytest
from adaptive_trace import (
    adaptive_n,
    known_rate_share,
    measure,
    read_trace,
    share_at_equal_error,
    shuffled,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_data import shared_data

from basis_rl import PassRatesError
from basis_rl.passrates.adaptive import expected_error, next_rollouts, savings


def counts(successes, n, **options):
    options.setdefault("limit", 64)
    return next_rollouts(successes, successes, n, n, **options).tolist()


def test_every_prompt_starts_with_first_rollouts():
    assert counts([0, 0, 0], [0, 0, 0]) == [8, 8, 8]
    assert counts([0, 0], [0, 0], first=4) == [4, 4]
    assert counts([0, 0], [0, 3], limit=5) == [5, 2]


def test_uncertain_prompts_go_on_and_settled_ones_stop():
    more = counts([i % 17 for i in range(170)], [16] * 170, limit=32)
    assert more[8] == 16  # half right: doubled
    assert more[0] == more[16] == 0
    done = counts([0, 24, 12, *range(25)] * 4, [24] * 112, limit=32)
    assert done[0] == 0
    assert done[1] == 0
    assert done[2] == 8


def test_no_success_in_eight_does_not_prove_a_pass_rate_of_zero():
    # All prompts seem settled, and still 8 alike are not enough.
    assert counts([0] * 50 + [8] * 50, [8] * 100, limit=32) == [8] * 100
    assert counts([0] * 50 + [32] * 50, [32] * 100) == [0] * 100


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_order_of_prompts_does_not_matter_and_limits_hold(data):
    prompts = data.draw(st.integers(1, 30))
    limit = data.draw(st.integers(1, 80))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    sampled = rng.integers(0, limit + 1, prompts)
    verdicts = rng.integers(0, sampled + 1)
    if data.draw(st.booleans()):
        sums = squares = rng.integers(0, verdicts + 1).astype(float)
    else:
        rewards = [rng.normal(size=n) for n in verdicts]
        sums = np.array([r.sum() for r in rewards])
        squares = np.array([(r**2).sum() for r in rewards])
    more = next_rollouts(sums, squares, verdicts, sampled, limit=limit)
    assert more.dtype == np.int64
    assert (more >= 0).all()
    assert (sampled + more <= limit).all()
    assert (more <= np.maximum(sampled, 8)).all()
    order = rng.permutation(prompts)
    shuffled_more = next_rollouts(
        sums[order], squares[order], verdicts[order], sampled[order], limit=limit
    )
    assert shuffled_more.tolist() == more[order].tolist()


def test_it_ends_within_few_stages():
    rng = np.random.default_rng(3)
    rollouts = rng.random((2000, 256)) < rng.beta(0.4, 0.6, (2000, 1))
    n, stages = adaptive_n(rollouts, 256)
    assert n.max() == 256
    assert n.min() >= 8
    assert stages <= 12


def test_n_is_proportional_to_the_standard_deviation():
    rates = np.repeat([0.02, 0.1, 0.5, 0.9], 200)
    rollouts = np.random.default_rng(0).random((800, 256)) < rates[:, None]
    n, _ = adaptive_n(rollouts, 256)
    got = n.reshape(4, 200).mean(axis=1)
    np.testing.assert_allclose(got, 256 * 2 * np.sqrt([0.0196, 0.09, 0.25, 0.09]), rtol=0.25)


def test_rollouts_without_a_verdict_are_sampled_again_up_to_the_limit():
    sums = [0.0, 4.0] * 20
    whole = next_rollouts(sums, sums, [16] * 40, [16] * 40, limit=32)
    some = next_rollouts(sums, sums, [8] * 40, [16] * 40, limit=32)
    none = next_rollouts([0.0], [0.0], [0], [16], limit=32)
    assert (some >= whole).all()
    assert none.tolist() == [16]
    assert next_rollouts([0.0], [0.0], [0], [32], limit=32).tolist() == [0]


def test_real_rewards_go_by_their_variance():
    rng = np.random.default_rng(1)
    deviations = np.repeat([0.0, 0.05, 0.3], 40)
    rewards = 0.5 + deviations[:, None] * rng.normal(size=(120, 64))
    n = np.zeros(120, dtype=np.int64)
    for _ in range(20):
        inside = np.arange(64) < n[:, None]
        sums, squares = (rewards * inside).sum(axis=1), (rewards**2 * inside).sum(axis=1)
        more = next_rollouts(sums, squares, n, n, limit=64)
        n += more
    assert not more.any()
    means = n.reshape(3, 40).mean(axis=1)
    assert means[0] <= 24
    assert means[1] <= 28
    assert means[2] > 55


def test_rewards_that_are_all_alike_need_no_more():
    half = [0.5 * 8] * 5
    assert next_rollouts(half, [0.25 * 8] * 5, [8] * 5, [8] * 5, limit=64).tolist() == [0] * 5


def test_expected_error_is_the_error():
    rng = np.random.default_rng(5)
    rates = rng.beta(0.5, 0.8, 20000)
    for n in (8, 32):
        found = rng.binomial(n, rates)
        error = float(np.sqrt(np.mean((found / n - rates) ** 2)))
        assert expected_error(found, found, [n] * 20000) == pytest.approx(error, rel=0.03)
        at_64 = expected_error(found, found, [n] * 20000, n=64)
        assert at_64 == pytest.approx(np.sqrt(np.mean(rates * (1 - rates)) / 64), rel=0.03)
    rewards = rng.normal(rates[:, None], 0.2, (20000, 8))
    error = expected_error(rewards.sum(axis=1), (rewards**2).sum(axis=1), [8] * 20000)
    assert error == pytest.approx(0.2 / np.sqrt(8), rel=0.03)
    assert np.isnan(expected_error([0.0], [0.0], [0]))


def test_expected_error_takes_the_prior_from_all_prompts():
    rng = np.random.default_rng(6)
    rates = rng.beta(40, 160, 20000)
    found = rng.binomial(4, rates)
    error = float(np.sqrt(np.mean((found / 4 - rates) ** 2)))
    assert expected_error(found, found, [4] * 20000) == pytest.approx(error, rel=0.03)


def test_not_a_bit_depends_on_the_order_of_prompts():
    rewards = np.random.default_rng(7).normal(size=(5000, 3))
    sums, squares, n = rewards.sum(axis=1), (rewards**2).sum(axis=1), np.full(5000, 3)
    errors = set()
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(5000)
        errors.add(expected_error(sums[order], squares[order], n))
    assert len(errors) == 1


def test_savings_add_up():
    successes, n = np.array([0, 0, 16, 31] * 50), np.array([16, 16, 32, 32] * 50)
    report = savings(successes, successes, n, n, limit=32)
    assert report.rollouts == 96 * 50
    assert report.fixed_rollouts == 128 * 50
    assert report.share_saved == pytest.approx(0.25)
    assert report.error > report.fixed_error > 0
    assert 24 < report.equivalent_n < 32
    assert report.equivalent_n == pytest.approx(32 * (report.fixed_error / report.error) ** 2)
    whole = savings(successes, successes, [32] * 200, [32] * 200, limit=32)
    assert (whole.share_saved, whole.equivalent_n) == (0.0, pytest.approx(32))


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (([1], [1], [8], [8]), {"limit": 0}, ["limit is 0", "positive"]),
        (([1], [1], [8], [8]), {"limit": 8, "first": 0}, ["first 0", "positive"]),
        (([1, 2], [1], [8], [8]), {"limit": 8}, ["shapes (2,), (1,)", "one number per prompt"]),
        (([1], [1], [9], [8]), {"limit": 8}, ["row 0", "9 rollouts with a verdict of 8"]),
        (([np.nan], [1], [8], [8]), {"limit": 8}, ["row 0 has sum nan", "finite"]),
    ],
)
def test_numbers_that_make_no_sense_are_refused(arguments, options, words):
    with pytest.raises(PassRatesError) as caught:
        next_rollouts(*arguments, **options)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.fixture(scope="module")
def trace():
    return read_trace(shared_data("traces/qwen25math15b_grpo_trace.jsonl"))


@pytest.fixture(scope="module")
def results(trace):
    options = {"visits": 16, "seeds": 30}
    fixed = {n: measure(trace, n, adaptive=False, **options) for n in (16, 24, 32, 48)}
    return fixed, measure(trace, 40, adaptive=True, **options)


def test_on_a_real_run_the_error_of_32_rollouts_takes_under_nine_tenths(trace, results):
    fixed, adaptive = results
    assert adaptive.n.mean() / 32 < 0.90
    assert adaptive.errors["jeffreys"].mean() <= fixed[32].errors["jeffreys"].mean()
    everyone = np.arange(len(trace.keys))
    assert share_at_equal_error(adaptive, fixed, "jeffreys", everyone) < 0.87
    # What nobody can go under: 70% is out of reach even where every pass rate is known.
    assert 0.70 < known_rate_share(trace, 16) < 0.80


def test_on_a_real_run_stopping_hardly_biases_the_raw_rate(results):
    fixed, adaptive = results
    assert abs(fixed[32].bias.mean()) < 0.001
    assert abs(adaptive.bias.mean()) < 0.005
    assert adaptive.expected == pytest.approx(adaptive.errors["jeffreys"].mean(), rel=0.1)


def test_the_shuffles_of_a_real_run_keep_its_successes(trace):
    assert (shuffled(trace, 4, 0).sum(axis=1) == trace.successes[:, :4].sum(axis=1)).all()
