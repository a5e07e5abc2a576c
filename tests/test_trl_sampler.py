"""The prompt sampler in TRL: what is drawn, what it weighs, and that a resumed run draws alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl")

import torch
from tiny_model import RecordingTrainer, keys_of, sums, table_for, tiny_config, tiny_trainer
from transformers import TrainerCallback
from trl_ranks import in_two_processes

from basis_rl.errors import ConfigError, StateError
from basis_rl.sampling import PromptSampler
from basis_rl.state_files import read_state
from basis_rl.train.checkpoints import find


class StopAfter(TrainerCallback):
    """As if the machine went down."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = state.global_step == self.step


def sampled(folder: Path, *, rows: int = 20, table: Any = None, **changes: Any) -> RecordingTrainer:
    settings: dict[str, Any] = {
        "estimator": "basis-online",
        "prompt_sampler": "spread",
        "per_device_train_batch_size": 4,
        "max_steps": 4,
        "learning_rate": 1e-2,
        "prompt_source_column": "task",
    }
    data = sums(rows, task=[str(i % 2) for i in range(rows)])
    config = tiny_config(folder, **(settings | changes))
    return tiny_trainer(config, data, pass_rates=table or table_for(data))


def prompts_of(trainer: RecordingTrainer) -> list[list[str]]:
    return [[row["id"] for row in rows] for rows, _ in trainer.generated]


@pytest.mark.parametrize(
    ("rollouts", "steps_per_generation"), [(1, 1), (4, 1), (2, 2)], ids=["1", "4", "2x2"]
)
def test_weights_multiply_the_advantages(
    tmp_path: Path, rollouts: int, steps_per_generation: int
) -> None:
    trainer = sampled(
        tmp_path,
        num_generations=rollouts,
        per_device_train_batch_size=4 * rollouts,
        steps_per_generation=steps_per_generation,
        scale_rewards="batch",
    )
    estimates: list[Any] = []
    draws: list[Any] = []
    estimate, used = trainer.estimator.estimate, trainer.prompt_sampler.used

    def remembered(batch: Any) -> Any:
        made = estimate(batch)
        estimates.append(made.advantages / (float(np.std(batch.rewards, ddof=1)) + 1e-4))
        return made

    def remembered_draw(keys: Any) -> Any:
        draws.append(used(keys))
        return draws[-1]

    trainer.estimator.estimate = remembered  # type: ignore[method-assign]
    trainer.prompt_sampler.used = remembered_draw
    trainer.train()
    assert len(trainer.generated) == 4 // steps_per_generation
    uneven = 0
    for (rows, output), plain, (weights, metrics) in zip(
        trainer.generated, estimates, draws, strict=True
    ):
        names = [row["id"] for row in rows]
        assert len(set(names)) == 4 * steps_per_generation
        assert names == [name for name in dict.fromkeys(names) for _ in range(rollouts)]
        assert output["advantages"].double().numpy() == pytest.approx(plain * weights, abs=1e-6)
        assert metrics["weight_max"] == pytest.approx(weights.max())
        uneven += weights.std() > 0.01
    assert uneven
    logged = trainer.state.log_history[0]
    assert logged["basis/sampler_effective_share"] <= 1
    assert logged["basis/sampler_clipped_share"] == 0


def test_prompts_that_teach_nothing_are_seldom_drawn(tmp_path: Path) -> None:
    from basis_rl import PassRates

    data = sums(20)
    keys = keys_of(list(data))
    table = PassRates.from_counts(keys, [16 if i < 10 else 32 for i in range(20)], 32)
    trainer = sampled(
        tmp_path, table=table, max_steps=10, learning_rate=0.0, estimator="spo",
        prompt_source_column=None,
    )  # fmt: skip
    first = trainer.prompt_sampler.probabilities(4)
    assert first[:10].min() > 2 * first[10:].max()
    trainer.train()
    numbers = [int(name.split("-")[1]) for names in prompts_of(trainer) for name in names]
    assert sum(number < 10 for number in numbers) > sum(number >= 10 for number in numbers)


def in_parts(folder: Path, rows: int) -> RecordingTrainer:
    return sampled(folder, rows=rows, save_strategy="steps", save_steps=2)


@pytest.mark.parametrize("rows", [20, 8], ids=["one-epoch", "two-epochs"])
def test_a_resumed_run_draws_what_an_unbroken_one_does(tmp_path: Path, rows: int) -> None:
    whole = in_parts(tmp_path / "whole", rows)
    whole.train()
    first = in_parts(tmp_path / "parts", rows)
    first.add_callback(StopAfter(2))
    first.train()
    rest = in_parts(tmp_path / "parts", rows)
    rest.train(resume_from_checkpoint=True)
    assert prompts_of(first) + prompts_of(rest) == prompts_of(whole)
    ours, theirs = dict(rest.model.named_parameters()), dict(whole.model.named_parameters())
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    for (_, one), (_, other) in zip(rest.generated, whole.generated[2:], strict=True):
        assert torch.equal(one["advantages"], other["advantages"])
    saved = read_state(tmp_path / "parts" / "checkpoint-2" / "basis_sampler.npz")
    assert saved["done"] == 2


def test_resuming_needs_the_samplers_state(tmp_path: Path) -> None:
    first = in_parts(tmp_path, 20)
    first.add_callback(StopAfter(2))
    first.train()
    path = tmp_path / "checkpoint-2" / "basis_sampler.npz"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert find(tmp_path).skipped == {path.parent: "basis_sampler.npz is cut short"}
    path.unlink()
    with pytest.raises(StateError, match="basis_sampler"):
        in_parts(tmp_path, 20).train(resume_from_checkpoint=True)
    path.write_bytes(content)
    with pytest.raises(StateError, match="prompts=20"):
        in_parts(tmp_path, 24).train(resume_from_checkpoint=True)


def test_it_is_off_by_default(tmp_path: Path) -> None:
    trainer = sampled(tmp_path, prompt_sampler=None, max_steps=1)
    assert trainer.prompt_sampler is None
    trainer.train()
    assert not any("sampler" in name for name in trainer.state.log_history[0])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt_sampler": "other"}, ["prompt_sampler is 'other'", "'spread'"]),
        ({"prompt_sampler_options": {"floor": -1}}, ["floor", "-1"]),
        ({"prompt_sampler_options": {"flor": 1}}, ["no option 'flor'", "'floor'"]),
        ({"prompt_sampler_options": "[1]"}, ["prompt_sampler_options", "dict"]),
        ({"prompt_sampler": None, "prompt_sampler_options": {"clip": 4}}, ["prompt_sampler is no"]),
        ({"shuffle_dataset": False}, ["shuffle_dataset=False", "leave one of them out"]),
        ({"estimator": "basis"}, ["'basis' does not know", "basis-online"]),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    tmp_path: Path, changes: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        sampled(tmp_path, **changes)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_it_starts_uniform_where_nothing_is_known(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, estimator="basis-online", prompt_sampler="spread")
    trainer = tiny_trainer(config, sums(8), pass_rates=None)
    trainer.train()
    assert trainer.state.log_history[0]["basis/sampler_weight_max"] == pytest.approx(1)


def test_a_stream_is_refused(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, estimator="basis-online", prompt_sampler="spread")
    with pytest.raises(ConfigError, match="chooses among all prompts"):
        tiny_trainer(config, sums(8).to_iterable_dataset(), pass_rates=None)


def test_options_on_a_command_line_are_json(tmp_path: Path) -> None:
    trainer = sampled(tmp_path, prompt_sampler_options='{"floor": 0.2, "clip": 3}')
    assert isinstance(trainer.prompt_sampler, PromptSampler)
    assert (trainer.prompt_sampler.floor, trainer.prompt_sampler.clip) == (0.2, 3)


SCRIPT = """
import json, sys
from pathlib import Path
from accelerate import PartialState
sys.path.insert(0, {tests!r})
PartialState(cpu=True, backend="gloo")
from test_trl_sampler import prompts_of, sampled
folder = Path(sys.argv[1])
trainer = sampled(folder / "run", per_device_train_batch_size=2, max_steps=3, ddp_backend="gloo")
trainer.train()
drawn = {{
    "prompts": prompts_of(trainer),
    "advantages": [output["advantages"].tolist() for _, output in trainer.generated],
}}
(folder / f"rank{{PartialState().process_index}}.json").write_text(json.dumps(drawn))
"""


@pytest.mark.slow
def test_all_processes_draw_alike(tmp_path: Path) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parent)))
    ranks = in_two_processes(script, tmp_path, timeout=200)
    whole = sampled(tmp_path / "whole", max_steps=3)
    whole.train()
    for step, (names, (_, output)) in enumerate(
        zip(prompts_of(whole), whole.generated, strict=True)
    ):
        assert [name for rank in ranks for name in rank["prompts"][step]] == names
        both = [a for rank in ranks for a in rank["advantages"][step]]
        assert both == pytest.approx(output["advantages"].tolist(), abs=1e-6)
