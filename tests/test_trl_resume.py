from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

import torch
from tiny_model import RecordingTrainer, sums, tiny_config, tiny_trainer
from transformers import TrainerCallback
from trl.trainer.utils import RepeatSampler

from basis_rl import BatchMean, StateError
from basis_rl.trl.sampler import EpochSampler

CASES = [
    ("basis", {}),
    ("basis", {"preset": "paper", "calibration": "previous-batch"}),
    ("batch-mean", {}),
]


class StopAfter(TrainerCallback):
    """As if the machine went down."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = state.global_step == self.step


def trainer_in(
    folder: Path, name: str, options: dict[str, Any], *, rows: int = 40, half: int = 2
) -> RecordingTrainer:
    config = tiny_config(
        folder,
        max_steps=2 * half,
        per_device_train_batch_size=6,
        save_strategy="steps",
        save_steps=half,
        learning_rate=1e-2,
        estimator=name,
        estimator_options=options,
        prompt_source_column="task",
    )
    # A fresh model each time: what differs from it must come from the checkpoint.
    return tiny_trainer(config, sums(rows, task=[str(i % 2) for i in range(rows)]))


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize(
    ("rows", "half"),
    [(40, 2), (12, 2), (12, 3)],
    ids=["one-epoch", "between-epochs", "in-the-second-epoch"],
)
def test_two_and_two_resumed_steps_equal_four(
    tmp_path: Path, name: str, options: dict[str, Any], rows: int, half: int
) -> None:
    whole = trainer_in(tmp_path / "whole", name, options, rows=rows, half=half)
    whole.train()
    first = trainer_in(tmp_path / "parts", name, options, rows=rows, half=half)
    first.add_callback(StopAfter(half))
    first.train()
    assert first.state.global_step == half
    rest = trainer_in(tmp_path / "parts", name, options, rows=rows, half=half)
    assert (rest.estimator.state_dict() == first.estimator.state_dict()) == (name == "batch-mean")
    rest.train(resume_from_checkpoint=True)
    assert rest.state.global_step == 2 * half

    ours, theirs = dict(rest.model.named_parameters()), dict(whole.model.named_parameters())
    for parameter in theirs:
        assert torch.equal(ours[parameter], theirs[parameter]), parameter
    assert rest.estimator.state_dict() == whole.estimator.state_dict()
    assert losses(rest) == losses(whole)
    for (_, one), (_, other) in zip(rest.generated, whole.generated[half:], strict=True):
        assert torch.equal(one["advantages"], other["advantages"])
        assert torch.equal(one["completion_ids"], other["completion_ids"])


def losses(trainer: RecordingTrainer) -> list[tuple[float, float]]:
    return [(e["loss"], e["grad_norm"]) for e in trainer.state.log_history if "loss" in e]


def test_the_checkpoint_holds_the_state_as_json(tmp_path: Path) -> None:
    trainer = trainer_in(tmp_path, "basis", {})
    trainer.train()
    saved = json.loads((tmp_path / "checkpoint-4" / "basis_state.json").read_text())
    assert saved == json.loads(json.dumps(trainer.estimator.state_dict()))
    assert (tmp_path / "checkpoint-2" / "basis_state.json").is_file()
    card = (tmp_path / "README.md").read_text()
    assert "trained with BASIS" in card
    assert "2605.27293" in card


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ["basis_state.json", "missing", "resume from a checkpoint"]),
        ("{", ["basis_state.json", "cannot be read"]),
        ("[1]", ["basis_state.json", "holds no state"]),
        ('{"estimator": "other"}', ["basis_state.json: ", "'other'", "'basis'", "same estimator"]),
        ('{"estimator": "basis"}', ["damaged"]),
    ],
)
def test_a_damaged_state_is_an_error(tmp_path: Path, content: str | None, words: list[str]) -> None:
    half = trainer_in(tmp_path, "basis", {})
    half.add_callback(StopAfter(2))
    half.train()
    path = tmp_path / "checkpoint-2" / "basis_state.json"
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    rest = trainer_in(tmp_path, "basis", {})
    with pytest.raises(StateError) as caught:
        rest.train(resume_from_checkpoint=True)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_a_checkpoint_within_a_generation_batch_is_a_warning(tmp_path: Path) -> None:
    settings = {"num_iterations": 2, "save_strategy": "steps", "save_steps": 1}
    first = tiny_trainer(tiny_config(tmp_path, **settings), sums(8))
    first.train()
    rest = tiny_trainer(tiny_config(tmp_path, **settings, max_steps=2), sums(8))
    with pytest.warns(UserWarning, match="within a generation batch"):
        rest.train(resume_from_checkpoint=True)


def test_an_estimator_without_state_needs_no_file(tmp_path: Path) -> None:
    half = trainer_in(tmp_path, "batch-mean", {})
    half.add_callback(StopAfter(2))
    half.train()
    (tmp_path / "checkpoint-2" / "basis_state.json").unlink()
    rest = trainer_in(tmp_path, "batch-mean", {})
    assert isinstance(rest.estimator, BatchMean)
    rest.train(resume_from_checkpoint=True)
    assert rest.state.global_step == 4


def test_each_seed_and_epoch_have_an_order_of_their_own() -> None:
    data = range(1000)
    epoch = 0.0
    sampler = [
        EpochSampler(RepeatSampler(data, 1, seed=seed), lambda: epoch)  # type: ignore[arg-type]
        for seed in (1, 2)
    ]
    orders = {}
    for epoch in (0.0, 1.0 - 1e-9, 2.0):
        for seed in (0, 1):
            orders[seed, epoch] = tuple(sampler[seed])
            assert tuple(sampler[seed]) == orders[seed, epoch]
    assert len(set(orders.values())) == 6
    assert orders[0, 0.0] == tuple(RepeatSampler(data, 1, seed=1))
