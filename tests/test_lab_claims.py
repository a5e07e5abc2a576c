"""Statements where there is no error to compare: no verdict, and no failure."""

from __future__ import annotations

import numpy as np
import pytest
from lab_records import trace

from basis_rl.lab.figures.claims_bins import _flat_reason, _ratio
from basis_rl.lab.figures.difficulty import DifficultyBin
from basis_rl.lab.figures.draw.all import pictures
from basis_rl.lab.figures.paper import Settings, paper_figures
from basis_rl.lab.figures.statements import statements
from basis_rl.lab.record import RewardRecord
from basis_rl.lab.stages import stages_of

RATIOS = (
    "considerably lower MSE",
    "less sensitive to beta",
    "by 69%",
    "GRPO and RLOO with 8",
    "RLOO has a larger MSE",
    "for epsilon from",
    "candidates for beta",
)


@pytest.mark.filterwarnings("error")
def test_where_every_rollout_fails_nothing_is_said_to_hold():
    run = trace(prompts=20, visits=20)
    record = RewardRecord(run.keys, run.prompt, run.step, run.starts, np.zeros(len(run.rewards)))
    results = paper_figures(
        stages_of(record, oracle=8, cache_rollouts=16),
        record,
        settings=Settings(repeats=2, batches=12, batch_size=10, cache_rollouts=16),
    )
    verdicts = {statement.claim: statement for statement in statements(results)}
    for part in RATIOS:
        (found,) = [each for claim, each in verdicts.items() if part in claim]
        assert found.holds is None, found
        assert "not above 0" in found.because
    assert not any("nan" in each.opening for each in verdicts.values())
    assert pictures(results)


def bins(*errors: float) -> list[DifficultyBin]:
    nan = float("nan")
    return [
        DifficultyBin("s", "e", "E", 1, b, 0.0, 1.0, 9, 9, mse, nan, nan, nan, mse, nan, nan, nan)
        for b, mse in enumerate(errors)
    ]


def test_a_bin_that_is_not_above_0_has_no_ratio():
    assert _ratio(bins(0.02, 0.01)) == pytest.approx(2.0)
    assert "2.0 times its lowest" in _flat_reason(bins(0.02, 0.01))
    assert "above 0, its lowest not (0.0200 and -0.0010)" in _flat_reason(bins(0.02, -0.001))
