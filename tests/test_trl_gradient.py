"""The second inner update against each objective's published formula, written out here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

import torch
from tiny_model import RecordingTrainer, sums, tiny_config, tiny_model, tiny_trainer
from torch import Tensor
from transformers import TrainerCallback

ENDS = 60  # of 260 tokens end a completion, so that lengths differ


@dataclass
class Rows:
    """A batch as the formulas see it: ratio, advantage and mask of every completion token."""

    log_probs: Tensor  # under the policy, with gradient; (B, C)
    old: Tensor  # under the policy that sampled; (B, C)
    advantages: Tensor  # (B, 1)
    mask: Tensor  # (B, C)
    low: float
    high: float
    longest: int
    tokens: Tensor  # completion tokens of an update

    @property
    def ratio(self) -> Tensor:
        return torch.exp(self.log_probs - self.old)

    @property
    def sequence_ratio(self) -> Tensor:
        mean = ((self.log_probs - self.old) * self.mask).sum(1) / self.mask.sum(1)
        return torch.exp(mean)


def clipped(ratio: Tensor, advantages: Tensor, rows: Rows) -> Tensor:
    return torch.minimum(ratio * advantages, ratio.clamp(1 - rows.low, 1 + rows.high) * advantages)


def grpo(rows: Rows) -> Tensor:
    """1/B sum_i 1/|o_i| sum_t min(w A, clip(w) A); arXiv 2402.03300, Eq. 3."""
    terms = clipped(rows.ratio, rows.advantages, rows) * rows.mask
    return (terms.sum(1) / rows.mask.sum(1)).mean()


def gspo(rows: Rows) -> Tensor:
    """1/B sum_i min(s A, clip(s) A), s the ratios' geometric mean; arXiv 2507.18071, Eq. 5."""
    return clipped(rows.sequence_ratio, rows.advantages.squeeze(1), rows).mean()


def gpg(rows: Rows) -> Tensor:
    """1/sum|o_i| sum_i sum_t A log pi; arXiv 2504.02546, Eq. 5."""
    return (rows.advantages * rows.log_probs * rows.mask).sum() / rows.tokens


def dapo(rows: Rows) -> Tensor:
    """1/sum|o_i| sum_i sum_t min(w A, clip(w) A); arXiv 2503.14476, Eq. 8."""
    terms = clipped(rows.ratio, rows.advantages, rows) * rows.mask
    return terms.sum() / rows.tokens


def dr_grpo(rows: Rows) -> Tensor:
    """1/B sum_i 1/L sum_t min(w A, clip(w) A), L the longest length; arXiv 2503.20783."""
    terms = clipped(rows.ratio, rows.advantages, rows) * rows.mask
    return (terms.sum(1) / rows.longest).mean()


FORMULAS: dict[str, Callable[[Rows], Tensor]] = {
    "grpo": grpo,
    "gspo": gspo,
    "gpg": gpg,
    "dapo": dapo,
    "dr_grpo": dr_grpo,
}
EPSILONS = {
    "grpo": (0.2, 0.2),
    "gspo": (3e-4, 4e-4),
    "gpg": (0.2, 0.2),
    "dapo": (0.2, 0.28),
    "dr_grpo": (0.2, 0.2),
}
# Chosen so that the first update carries some ratios beyond each clip and leaves others inside.
RATES = {"grpo": 1.0, "gspo": 4e-4, "gpg": 1.0, "dapo": 1.0, "dr_grpo": 1.0}
# Other rows move these ratios, so steps are longer.
MINIBATCH_RATES = {"grpo": 2.0, "gspo": 1.6e-3, "gpg": 4.0, "dapo": 4.0, "dr_grpo": 8.0}


class SecondUpdate(TrainerCallback):
    """Keeps the parameters and the gradient of the second optimizer step."""

    def __init__(self) -> None:
        self.steps = 0
        self.parameters: dict[str, Tensor] = {}
        self.gradient = torch.empty(0)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.steps += 1
        if self.steps == 2:
            named = dict(kwargs["model"].named_parameters())
            self.parameters = {name: p.detach().clone() for name, p in named.items()}
            self.gradient = torch.cat([p.grad.flatten().clone() for p in named.values()])


def second_update(
    folder: Path, objective: str, *, minibatches: bool = False, **changes: Any
) -> tuple[SecondUpdate, RecordingTrainer]:
    """Either the same 24 rollouts twice, or 24 rollouts in two halves."""
    watch = SecondUpdate()
    reuse = {"steps_per_generation": 2} if minibatches else {"num_iterations": 2}
    config = tiny_config(
        folder,
        objective=objective,
        per_device_train_batch_size=12 if minibatches else 24,
        max_completion_length=8,
        max_steps=2,
        optim="sgd",
        max_grad_norm=0.0,
        learning_rate=(MINIBATCH_RATES if minibatches else RATES)[objective],
        lr_scheduler_type="constant",
        **(reuse | changes),
    )
    trainer = tiny_trainer(config, sums(24), model=tiny_model(end_tokens=ENDS), callbacks=[watch])
    trainer.train()
    assert watch.steps == 2
    return watch, trainer


def log_probs(model: torch.nn.Module, inputs: dict[str, Any]) -> Tensor:
    """Log-probabilities of the completion from full logits."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
    chosen = torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    return chosen[:, -inputs["completion_ids"].size(1) :]


def rows_of(
    watch: SecondUpdate, trainer: RecordingTrainer, objective: str
) -> tuple[Rows, torch.nn.Module]:
    inputs = trainer.losses[1]
    model = tiny_model(end_tokens=ENDS)
    old = log_probs(model, inputs).detach()
    model.load_state_dict(watch.parameters, strict=False)
    mask = inputs["completion_mask"].float()
    ((_, generated),) = trainer.generated
    # Two updates an update's share of the tokens, or all tokens in each of two iterations.
    updates = len(generated["completion_mask"]) / len(mask)
    tokens = generated["completion_mask"].sum() / updates
    low, high = EPSILONS[objective]
    advantages = inputs["advantages"].unsqueeze(1)
    return Rows(log_probs(model, inputs), old, advantages, mask, low, high, 8, tokens), model


def gradient(objective: Tensor, model: torch.nn.Module) -> Tensor:
    """Of the loss, the objective's negative."""
    parts = torch.autograd.grad(-objective, list(model.parameters()), retain_graph=True)
    return torch.cat([part.flatten() for part in parts])


@pytest.mark.parametrize("objective", list(FORMULAS))
@pytest.mark.parametrize(
    ("minibatches", "plain"),
    [(False, True), (True, True), (False, False)],
    ids=["iterations", "minibatches", "fused-head"],
)
def test_second_update_follows_the_formula(
    tmp_path: Path, objective: str, minibatches: bool, plain: bool
) -> None:
    watch, trainer = second_update(tmp_path, objective, minibatches=minibatches, plain_logits=plain)
    rows, model = rows_of(watch, trainer, objective)
    ratio, real = rows.ratio, rows.mask > 0
    if objective == "gspo":
        ratio, real = rows.sequence_ratio.unsqueeze(1), real[:, :1]
    beyond_high = (ratio > 1 + rows.high) & (rows.advantages > 0) & real
    beyond_low = (ratio < 1 - rows.low) & (rows.advantages < 0) & real
    assert (beyond_high | beyond_low).any()
    assert minibatches or (beyond_high.any() and beyond_low.any())
    assert (beyond_high | beyond_low).sum() < real.sum()
    expected = gradient(FORMULAS[objective](rows), model)
    assert expected.norm() > 1e-3
    torch.testing.assert_close(watch.gradient, expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(("objective", "other"), [("grpo", "gspo"), ("gspo", "grpo")])
def test_another_objective_would_be_noticed(tmp_path: Path, objective: str, other: str) -> None:
    watch, trainer = second_update(tmp_path, objective)
    rows, model = rows_of(watch, trainer, objective)
    own = gradient(FORMULAS[objective](rows), model)
    for clip in (objective, other):  # the other formula, with either one's clip
        rows.low, rows.high = EPSILONS[clip]
        wrong = gradient(FORMULAS[other](rows), model)
        assert (wrong - own).norm() > 0.1 * own.norm()
        assert (wrong - watch.gradient).norm() > 0.1 * watch.gradient.norm()


def test_on_policy_the_two_are_the_same(tmp_path: Path) -> None:
    """Why the second update is looked at: in the first one GRPO and GSPO cannot be told apart."""
    watch, trainer = second_update(tmp_path, "grpo")
    rows, model = rows_of(watch, trainer, "grpo")
    rows.old = rows.log_probs.detach()
    one, other = gradient(grpo(rows), model), gradient(gspo(rows), model)
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)
