"""The expected error of pass rates against the error that simulated tables have."""

from __future__ import annotations

import numpy as np
import pytest

from basis_rl.passrates import PassRates, Provenance
from basis_rl.passrates.adaptive import expected_error as of_raw_means
from basis_rl.passrates.inspect.check import Run, check
from basis_rl.passrates.inspect.check_text import lines
from basis_rl.passrates.inspect.expected_error import ExpectedError, expected_error
from basis_rl.prompts import Prompt
from basis_rl.smoothing import pseudo_counts

PROMPTS = 20_000


@pytest.mark.parametrize("smoothing", ["none", "jeffreys", "empirical-bayes"])
@pytest.mark.parametrize("n", [2, 8, "mixed"])
def test_counts(smoothing: str, n: int | str) -> None:
    rng = np.random.default_rng(3)
    rates = rng.beta(0.4, 0.7, PROMPTS)
    counts = rng.integers(1, 20, PROMPTS) if n == "mixed" else np.full(PROMPTS, n)
    successes = rng.binomial(counts, rates)
    table = PassRates.from_counts(range(PROMPTS), successes, counts)
    a, b = pseudo_counts(smoothing, successes, counts)
    true = float(np.sqrt(np.mean(((successes + a) / (counts + a + b) - rates) ** 2)))
    found = expected_error(table, smoothing, at=(32,))
    assert found is not None
    assert found.error == pytest.approx(true, rel=0.03)
    variance = float(np.mean(rates * (1 - rates)))
    assert found.reward_variance == pytest.approx(variance, rel=0.03)
    assert found.excess == pytest.approx(true**2 / variance, rel=0.08)
    later = rng.binomial(32, rates)
    at_32 = float(np.sqrt(np.mean(((later + a) / (32 + a + b) - rates) ** 2)))
    assert found.at[32] == pytest.approx(at_32, rel=0.03)
    if smoothing == "none":  # the adaptive build states the same
        assert found.error == pytest.approx(of_raw_means(successes, successes, counts), rel=1e-9)


@pytest.mark.parametrize("smoothing", ["none", "jeffreys", "empirical-bayes"])
def test_rewards(smoothing: str) -> None:
    rng = np.random.default_rng(4)
    prompts = PROMPTS
    truth = rng.normal(scale=2.0, size=prompts)
    n = rng.integers(1, 9, prompts)
    rewards = [rng.normal(mean, 2.0, size) for mean, size in zip(truth, n, strict=True)]
    table = PassRates.from_rewards(range(prompts), rewards)
    found = expected_error(table, smoothing, at=())
    assert found is not None
    assert found.reward_variance == pytest.approx(4.0, rel=0.1)
    pseudo = {"none": 0.0, "jeffreys": 1.0, "empirical-bayes": 1.0}[smoothing]
    estimate = (n * table.means + pseudo * table.means.mean()) / (n + pseudo)
    true = float(np.sqrt(np.mean((estimate - truth) ** 2)))
    assert found.error == pytest.approx(true, rel=0.03)


def test_what_cannot_be_told() -> None:
    assert expected_error(PassRates.from_rates(["a"], [0.5]), "none") is None
    assert expected_error(PassRates.from_rewards(["a", "b"], [[0.5], [0.1]]), "none") is None


def test_rewards_that_never_vary() -> None:
    found = expected_error(PassRates.from_rewards(["a", "b"], [[1.0, 1.0], [1.0, 1.0]]), "jeffreys")
    assert found is not None
    assert (found.error, found.reward_variance, found.excess) == (0.0, 0.0, 0.0)
    assert ExpectedError(0.1, 0.0).excess == float("inf")


def test_rewards_that_differ_between_prompts_alone() -> None:
    """No share of a variance of 0 is stated."""
    table = PassRates.from_rewards(["a", "b"], [[0.5, 0.5], [0.2, 0.2]])
    prompts = [Prompt("a", "a", None, {}), Prompt("b", "b", None, {})]
    text = " ".join(lines(check(table, prompts, Run()), "x"))
    assert "expected baseline error: 0.0500 (root mean square, smoothing jeffreys)" in text
    assert "inf" not in text


@pytest.mark.parametrize("smoothing", ["none", "jeffreys", "empirical-bayes"])
def test_counts_of_an_adaptive_table(smoothing: str) -> None:
    """Stopping at agreement: the formula of a fixed n would be far off for raw rates."""
    rng = np.random.default_rng(5)
    rates = rng.beta(0.4, 0.7, PROMPTS)
    first = rng.binomial(4, rates)
    n = np.where((first == 0) | (first == 4), 4, 32)
    successes = first + rng.binomial(n - 4, rates)
    made = Provenance(extra={"adaptive": {}})
    table = PassRates.from_counts(range(PROMPTS), successes, n, provenance=made)
    a, b = pseudo_counts(smoothing, successes, n)
    true = float(np.sqrt(np.mean(((successes + a) / (n + a + b) - rates) ** 2)))
    found = expected_error(table, smoothing)
    assert found is not None
    assert found.error == pytest.approx(true, rel=0.03)
