"""The table of baselines on a real GRPO run: one rollout a prompt against group means."""

from __future__ import annotations

import numpy as np
import pytest
from shared_data import shared_data
from trace_replay import ESTIMATORS, group_mean_error, read_trace, replay

SEEDS = 5
# Quarters of the run, mean of three seeds, measured before this package was written.
MEASURED = {
    "batch-mean": ([0.1299, 0.1397, 0.1433, 0.1464], 0.004),
    "paper-literal": ([0.2455, 0.2504, 0.2554, 0.2406], 0.03),
    "paper": ([0.0315, 0.0345, 0.0363, 0.0399], 0.002),
    "paper, jeffreys": ([0.0082, 0.0110, 0.0129, 0.0162], 0.001),
    "initial, jeffreys": ([0.0072, 0.0104, 0.0123, 0.0160], 0.001),
    "robust": ([0.0063, 0.0087, 0.0109, 0.0141], 0.0008),
}


@pytest.fixture(scope="module")
def trace():
    return read_trace(shared_data("traces/qwen25math15b_grpo_trace.jsonl"))


@pytest.mark.parametrize("name", MEASURED)
def test_errors_are_those_measured(trace, name):
    expected, tolerance = MEASURED[name]
    errors = np.mean([replay(trace, ESTIMATORS[name], seed=s) for s in range(SEEDS)], axis=0)
    np.testing.assert_allclose(errors, expected, atol=tolerance)
    if name == "robust":
        assert errors.max() <= 0.0150


@pytest.mark.parametrize(
    ("group", "expected"),
    [(8, [0.0133, 0.0128, 0.0128, 0.0127]), (16, [0.0067, 0.0064, 0.0064, 0.0064])],
)
def test_group_means_are_those_measured(trace, group, expected):
    errors = np.mean([group_mean_error(trace, group, seed=s) for s in range(SEEDS)], axis=0)
    np.testing.assert_allclose(errors, expected, atol=0.0008)
