"""What verl's own estimators make of one rollout a prompt, as the checks say it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

from basis_rl.verl.settings import _ALONE, _ONLY_WHITENED

ROWS, LENGTH = 6, 3
REWARDS = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0, 0.0])


def advantages(name: str) -> torch.Tensor:
    """Advantages of the first tokens, shape (6,), each row another prompt."""
    import numpy as np

    token_rewards = torch.zeros(ROWS, LENGTH)
    token_rewards[:, -1] = REWARDS
    half = torch.full((ROWS, LENGTH), 0.5)
    given: dict[str, Any] = {
        "token_level_rewards": token_rewards,
        "response_mask": torch.ones(ROWS, LENGTH),
        "index": np.array([f"prompt-{row}" for row in range(ROWS)], dtype=object),
        "config": AlgoConfig(),
    }
    if "optimal_token" in name:
        given |= {"old_log_probs": half.log(), "sum_pi_squared": half}
    found: torch.Tensor = get_adv_estimator_fn(name)(**given)[0]
    return found[:, 0]


@pytest.mark.parametrize("name", [name for name, says in _ALONE.items() if "baseline 0" in says])
def test_baseline_0(name: str) -> None:
    factor = ROWS / 2 if name == "gpg" else 1.0  # of all rewards over those that are not 0
    torch.testing.assert_close(advantages(name), factor * REWARDS, atol=1e-5, rtol=0)


def test_advantage_0() -> None:
    assert _ALONE["rloo_vectorized"] == "gives every rollout advantage 0 then"
    assert not advantages("rloo_vectorized").any()


def test_it_stops() -> None:
    assert _ALONE["grpo_passk"] == "stops at the first batch then"
    with pytest.raises(ValueError, match="at least 2 samples"):
        advantages("grpo_passk")


@pytest.mark.parametrize("name", _ONLY_WHITENED)
def test_only_whitened(name: str) -> None:
    torch.testing.assert_close(advantages(name), advantages("reinforce_plus_plus"))
