"""Advantages against those of TRL's own trainers, a real generation batch each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl")

from tiny_model import sums, tiny_model, tiny_tokenizer
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer
from trl.experimental.a2po import A2POConfig, A2POTrainer

from basis_rl import Estimate, GroupMean, LeaveOneOut, PassRates, RewardBatch, normalize_advantages
from basis_rl.estimators.a_star_po import optimal_values

PROMPTS = 4


class Given:
    """A reward function that gives what it is told; NaN is None, "no verdict"."""

    __name__ = "given"

    def __init__(self) -> None:
        self.rewards: list[float] = []

    def __call__(self, **_: Any) -> list[float | None]:
        return [None if np.isnan(reward) else reward for reward in self.rewards]


class Trainers:
    """One trainer for each kind and number of rollouts; its scaling is set for each call."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: dict[tuple[str, int], tuple[Any, Given]] = {}

    def get(self, kind: str, rollouts: int) -> tuple[Any, Given]:
        if (kind, rollouts) not in self.made:
            given = Given()
            make, config = {"grpo": (GRPOTrainer, GRPOConfig), "rloo": (RLOOTrainer, RLOOConfig)}[
                kind
            ]
            settings = config(
                output_dir=str(self.folder),
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                per_device_train_batch_size=PROMPTS * rollouts,
                num_generations=rollouts,
                max_completion_length=2,
                beta=0.0,
                report_to="none",
            )
            model, tokenizer = tiny_model(), tiny_tokenizer()
            made = make(model, given, settings, sums(PROMPTS), processing_class=tokenizer)
            made.model.train()
            self.made[kind, rollouts] = made, given
        return self.made[kind, rollouts]

    def advantages(
        self, kind: str, rollouts: int, rewards: np.ndarray, **scaling: Any
    ) -> np.ndarray:
        """What the trainer makes of rewards (one after the other by prompt)."""
        made, given = self.get(kind, rollouts)
        for name, value in scaling.items():
            assert hasattr(made, name), name
            setattr(made, name, value)
        given.rewards = rewards.tolist()
        rows = [{"prompt": f"{i}+1="} for i in range(PROMPTS) for _ in range(rollouts)]
        output = made._generate_and_score_completions(rows)
        return np.asarray(output["advantages"], dtype=np.float64)


@pytest.fixture(scope="module")
def trainers(tmp_path_factory: pytest.TempPathFactory) -> Trainers:
    return Trainers(tmp_path_factory.mktemp("trainers"))


def rewards_of(rollouts: int, seed: int, missing: bool) -> np.ndarray:
    """Rewards that single precision holds exactly: 0/1, eighths, all equal in one prompt."""
    rng = np.random.default_rng(seed)
    shape = (PROMPTS, rollouts)
    rewards = rng.integers(0, 2, shape).astype(float)
    if seed % 2:
        rewards = rng.integers(-16, 17, shape) / 8
    rewards[0] = rewards[0, 0]
    rewards[1, :2] = [0.0, 1.0]
    if missing:
        rewards[2, 0] = np.nan
    return rewards.ravel()


def mine(estimator: Any, rollouts: int, rewards: np.ndarray, how: str) -> np.ndarray:
    keys = [str(i) for i in range(PROMPTS) for _ in range(rollouts)]
    batch = RewardBatch(keys, rewards)
    made: Estimate = estimator.estimate(batch)
    return normalize_advantages(made, batch, how).advantages


CASES = [
    ("grpo", {"scale_rewards": "group"}, GroupMean(epsilon=1e-4, max_unverified=1.0), "none"),
    ("grpo", {"scale_rewards": "none"}, GroupMean(std=False, max_unverified=1.0), "none"),
    ("grpo", {"scale_rewards": "batch"}, GroupMean(std=False, max_unverified=1.0), "reward-std"),
    ("rloo", {"normalize_advantages": False}, LeaveOneOut(max_unverified=1.0), "none"),
    ("rloo", {"normalize_advantages": True}, LeaveOneOut(max_unverified=1.0), "batch"),
]


@pytest.mark.parametrize("rollouts", [2, 5])
@pytest.mark.parametrize(
    ("kind", "scaling", "estimator", "how"),
    CASES,
    ids=lambda case: "-".join(map(str, case.values())) if isinstance(case, dict) else None,
)
def test_advantages_agree(
    trainers: Trainers,
    kind: str,
    scaling: dict[str, Any],
    estimator: Any,
    how: str,
    rollouts: int,
) -> None:
    for seed in range(6):
        rewards = rewards_of(rollouts, seed, missing=seed > 3 and rollouts > 2)
        theirs = trainers.advantages(kind, rollouts, rewards, **scaling)
        np.testing.assert_allclose(
            mine(estimator, rollouts, rewards, how), theirs, rtol=1e-6, atol=1e-6
        )
        assert len(set(theirs)) > 2
        np.testing.assert_array_equal(theirs[np.isnan(rewards)], 0.0)


def test_the_only_rollout_with_a_verdict(trainers: Trainers) -> None:
    """TRL's GRPO and both of ours give it advantage 0; its RLOO too, which divides 0 by 0."""
    rewards = np.array([np.nan, 1.0] + [0.0, 1.0] * (PROMPTS - 1))
    for kind, estimator in (
        ("grpo", GroupMean(std=False, max_unverified=1.0)),
        ("rloo", LeaveOneOut(max_unverified=1.0)),
    ):
        scaling = {"scale_rewards": "none"} if kind == "grpo" else {"normalize_advantages": False}
        theirs = trainers.advantages(kind, 2, rewards, **scaling)
        np.testing.assert_allclose(mine(estimator, 2, rewards, "none"), theirs, atol=1e-6)
        assert not theirs[:2].any()


@pytest.mark.parametrize("beta1", [0.05, 0.5, 5.0])
def test_the_optimal_values_of_a_star_po(tmp_path: Path, beta1: float) -> None:
    samples = 4
    rewards = np.array([[0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 1], [1, 1, 1, 1]], dtype=float)
    given = Given()
    given.rewards = rewards.ravel().tolist()
    settings = A2POConfig(
        output_dir=str(tmp_path),
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=PROMPTS,
        num_value_samples=samples,
        max_completion_length=2,
        beta1=beta1,
        filter_all_incorrect=False,
        report_to="none",
    )
    data = sums(PROMPTS)
    made = A2POTrainer(tiny_model(), given, settings, data, processing_class=tiny_tokenizer())
    made._estimate_optimal_values()
    theirs = [made._optimal_values[prompt] for prompt in data["prompt"]]
    counts = PassRates.from_counts(data["prompt"], rewards.sum(axis=1).astype(int), samples)
    np.testing.assert_allclose(optimal_values(counts, beta1), theirs, atol=1e-6)
