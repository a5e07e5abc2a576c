from __future__ import annotations

import inspect
from pathlib import Path

import pytest

pytest.importorskip("trl")

import torch
from tiny_model import RecordingTrainer, sums, tiny_config, tiny_trainer
from trl import GRPOTrainer

from basis_rl.trl import BasisTrainer


def scores(
    trainer: RecordingTrainer, inputs: dict[str, torch.Tensor], *, batch_size: int | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-probabilities, entropies, and the gradient of what the loss takes of them."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    length = inputs["completion_ids"].size(1)
    trainer.model.zero_grad()
    log_probs, entropies, _ = trainer._get_per_token_logps_and_entropies(
        trainer.model, ids, mask, length, batch_size=batch_size, compute_entropy=True
    )
    weights = torch.linspace(-1, 1, log_probs.numel()).view_as(log_probs)
    loss = (weights * log_probs).sum()
    if trainer._entropy_bonus_enabled:
        loss = loss + (weights * entropies).sum()
    loss.backward()
    gradient = torch.cat([p.grad.flatten() for p in trainer.model.parameters()])
    return log_probs.detach(), entropies.detach(), gradient


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("bonus", [0.0, 0.01])
@pytest.mark.parametrize("bf16", [False, True])
def test_plain_logits_equal_trls_fused_head(
    tmp_path: Path, temperature: float, bonus: float, bf16: bool
) -> None:
    config = tiny_config(
        tmp_path, temperature=temperature, entropy_coef=bonus, bf16=bf16, plain_logits=True
    )
    trainer = tiny_trainer(config, sums(8))
    trainer.train()
    assert trainer._plain_logits
    inputs = trainer.generated[0][1]
    inputs["completion_mask"][1, 3:] = 0  # a shorter completion
    inputs["completion_mask"][2] = 0  # a dropped one
    plain = scores(trainer, inputs, batch_size=None)
    parts = scores(trainer, inputs, batch_size=3)
    trainer._plain_logits = False
    fused = scores(trainer, inputs, batch_size=None)
    tolerance = 0.02 if bf16 else 1e-5
    for one, two, three in zip(plain, parts, fused, strict=True):
        assert three.norm() > 0.1
        assert (one - three).norm() < tolerance * three.norm()
        assert (two - three).norm() < tolerance * three.norm()
    assert (plain[0][1, 3:] == 0).all()
    assert (plain[0][2] == 0).all()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, True), ({"plain_logits": False}, False), ({"plain_logits": True}, True)],
)
def test_plain_logits_are_the_default_on_a_cpu(
    tmp_path: Path, changes: dict[str, bool], expected: bool
) -> None:
    assert tiny_trainer(tiny_config(tmp_path, **changes), sums(8))._plain_logits is expected


def test_the_methods_we_override_look_as_they_did() -> None:
    """A new TRL that changes them must not be used unseen."""
    expected = {
        "_calculate_rewards": ["inputs", "prompts", "completions", "completion_ids_list"],
        "_generate_and_score_completions": ["inputs"],
        "_save_optimizer_and_scheduler": ["output_dir"],
        "_load_optimizer_and_scheduler": ["checkpoint"],
        "_get_per_token_logps_and_entropies": [
            "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size",
            "compute_entropy", "compute_aux_loss",
        ],
    }  # fmt: skip
    for name, parameters in expected.items():
        found = list(inspect.signature(getattr(GRPOTrainer, name)).parameters)[1:]
        assert found[: len(parameters)] == parameters, name
        assert name in vars(BasisTrainer), name
