from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl")

import torch
from tiny_model import keys_of, sums, tiny_config, tiny_model, tiny_trainer

from basis_rl import BatchMean, RewardBatch


def test_several_reward_functions_are_weighed_and_none_is_skipped(tmp_path: Path) -> None:
    # The second function has no opinion on odd ids, neither has one on id 2.
    def first(id: list[str], **_: Any) -> list[float | None]:
        return [None if name == "sum-2" else float(name[-1] in "0123") for name in id]

    def second(id: list[str], **_: Any) -> list[float | None]:
        return [None if name == "sum-2" or int(name[-1]) % 2 else 1.0 for name in id]

    data = sums(8)
    config = tiny_config(
        tmp_path,
        per_device_train_batch_size=8,
        reward_weights=[1.0, 0.5],
        estimator="batch-mean",
        estimator_options={"max_unverified": 0.2},
        objective="dapo",
        mask_truncated_completions=False,
    )
    trainer = tiny_trainer(config, data, [first, second])
    trainer.train()
    rows, output = trainer.generated[0]
    rewards = {f"sum-{i}": float(i < 4) + 0.5 * (i % 2 == 0) for i in range(8)}
    total = np.array([np.nan if row["id"] == "sum-2" else rewards[row["id"]] for row in rows])
    expected = BatchMean(max_unverified=0.2).estimate(RewardBatch(keys_of(rows), total))
    np.testing.assert_allclose(output["advantages"].numpy(), expected.advantages, rtol=1e-6)
    row = [row["id"] for row in rows].index("sum-2")
    assert output["advantages"][row] == 0
    assert output["completion_mask"][row].sum() == 0
    assert output["num_items_in_batch"] == output["completion_mask"].sum() > 0
    assert trainer.state.log_history[0]["basis/unverified_fraction"] == pytest.approx(1 / 8)


@pytest.mark.parametrize("objective", ["grpo", "gspo", "dapo", "dr_grpo", "gpg"])
def test_rows_without_a_verdict_leave_the_denominator(tmp_path: Path, objective: str) -> None:
    """The gradient equals that of the batch without those rows."""

    def missing(id: list[str], **_: Any) -> list[float | None]:
        return [None if name in ("sum-1", "sum-6") else float(int(name[-1]) < 4) for name in id]

    config = tiny_config(
        tmp_path,
        per_device_train_batch_size=8,
        objective=objective,
        mask_truncated_completions=False,
        estimator="zero",
        estimator_options={"max_unverified": 0.5},
    )
    trainer = tiny_trainer(config, sums(8), missing)
    trainer.train()
    rows, output = trainer.generated[0]
    kept = torch.tensor([row["id"] not in ("sum-1", "sum-6") for row in rows])
    trainer.model.load_state_dict(tiny_model().state_dict())

    def gradient(inputs: dict[str, Any]) -> torch.Tensor:
        trainer.model.zero_grad()
        trainer._compute_loss(trainer.model, inputs).backward()
        return torch.cat([p.grad.flatten() for p in trainer.model.parameters()])

    whole = gradient(output)
    few = {k: v[kept] if v.ndim else v for k, v in output.items()}
    # Baseline 0: the advantages are the rewards.
    few["advantages"] = torch.tensor([float(int(row["id"][-1]) < 4) for row in rows])[kept]
    assert whole.norm() > 0
    torch.testing.assert_close(whole, gradient(few), rtol=1e-4, atol=1e-7)


def test_tool_tokens_are_not_counted_where_a_verdict_is_missing(tmp_path: Path) -> None:
    trainer = tiny_trainer(tiny_config(tmp_path), sums(8))
    output = {
        "advantages": torch.zeros(3),
        "completion_mask": torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 1]]),
        "tool_mask": torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 1]]),
        "num_items_in_batch": torch.tensor(6),
    }
    verified = np.array([True, True, False])
    trainer._put_advantages(output, np.array([1.0, -1.0, 0.0]), verified)
    assert output["num_items_in_batch"] == 3
    assert output["completion_mask"].sum(1).tolist() == [3, 2, 0]
    assert output["advantages"].tolist() == [1.5, -1.5, 0.0]


def test_batch_scaling_leaves_a_single_verdict_as_it_is(tmp_path: Path) -> None:
    def one(id: list[str], **_: Any) -> list[float | None]:
        return [1.0 if number == 0 else None for number in range(len(id))]

    options = {"max_unverified": 0.9}
    config = tiny_config(
        tmp_path, estimator="zero", estimator_options=options, scale_rewards="batch",
        objective="dapo", mask_truncated_completions=False,
    )  # fmt: skip
    trainer = tiny_trainer(config, sums(8), one, pass_rates=None)
    trainer.train()
    assert trainer.generated[0][1]["advantages"].tolist() == [1.0, 0.0, 0.0, 0.0]
