"""Every registered estimator in TRL; those with a state per prompt resumed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl")

import torch
from tiny_model import RecordingTrainer, keys_of, sums, table_for, tiny_config, tiny_trainer
from tiny_run import example_module, write_config, write_data
from transformers import TrainerCallback
from trl_states import same_state

from basis_rl import estimators
from basis_rl.adapters.state import load_state, save_state
from basis_rl.batch import RewardBatch
from basis_rl.cli import main
from basis_rl.errors import ConfigError, PassRatesError, StateError
from basis_rl.estimators import registry
from basis_rl.estimators.base import Estimator
from basis_rl.normalize import normalize_advantages
from basis_rl.state_files import read_state
from basis_rl.train.checkpoints import find
from basis_rl.trl.option_names import TRL

NAMES = estimators.names()
REFUSED = [name for name in NAMES if set(registry.needed_columns(name)) - {"lengths"}]
GROUPS = [name for name in NAMES if registry.min_rollouts(name) > 1]
WITH_STATE = ["basis-online", "spo"]


class StopAfter(TrainerCallback):
    """As if the machine went down."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = state.global_step == self.step


def test_the_lists_are_not_empty() -> None:
    assert {"remax", "critic"} <= set(REFUSED)
    assert {"group-mean", "leave-one-out", "opo", "james-stein"} <= set(GROUPS)
    assert set(WITH_STATE) <= set(NAMES)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_each_estimator_trains_and_trl_gives_it_what_it_needs(tmp_path: Path, name: str) -> None:
    data = sums(8)
    use = registry.pass_rates_use(name)
    config = tiny_config(
        tmp_path, estimator=name, num_generations=4, per_device_train_batch_size=16
    )
    table = {} if use == "none" else {"pass_rates": table_for(data)}
    alone = estimators.create(name, table.get("pass_rates"))
    seen: list[RewardBatch] = []

    def rewards(completions: list[str], **_: Any) -> list[float]:
        return [float(i % 3 == 0) for i in range(len(completions))]

    config.pass_rates = None
    trainer = remembering(seen, config, data, rewards, table)
    trainer.train()
    (batch,) = seen
    assert batch.step == batch.policy_version == 0
    assert batch.row_versions is not None
    assert (batch.row_versions == 0).all()
    assert batch.lengths is not None
    wanted = alone.estimate(batch).advantages
    ((rows, output),) = trainer.generated
    assert keys_of(rows) == batch.keys
    assert output["advantages"].double().numpy() == pytest.approx(wanted, abs=1e-6)
    assert np.abs(wanted).max() > 0


def remembering(
    seen: list[RewardBatch], config: Any, data: Any, rewards: Any, table: dict[str, Any]
) -> RecordingTrainer:
    from tiny_model import tiny_model, tiny_tokenizer

    trainer = RecordingTrainer(
        tiny_model(), rewards, config, data, processing_class=tiny_tokenizer(), **table
    )
    estimate = trainer.estimator.estimate

    def remembered(batch: RewardBatch) -> Any:
        seen.append(batch)
        return estimate(batch)

    trainer.estimator.estimate = remembered  # type: ignore[method-assign]
    return trainer


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_estimator_is_refused_at_one_rollout(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' compares .* num_generations is 1: use num_g"):
        tiny_config(tmp_path, estimator=name)


@pytest.mark.parametrize("name", REFUSED)
def test_an_estimator_that_trl_cannot_feed_is_refused(tmp_path: Path, name: str) -> None:
    column = registry.needed_columns(name)[0]
    with pytest.raises(ConfigError) as caught:
        tiny_config(tmp_path, estimator=name)
    for word in (name, column, "TRL does not have", "basis-online", f"RewardBatch({column}="):
        assert word in str(caught.value)
    with pytest.raises(ConfigError, match=column):
        tiny_trainer(tiny_config(tmp_path), sums(8), estimator=estimators.create(name))


def test_options_of_an_object_may_ask_for_more_rollouts(tmp_path: Path) -> None:
    estimator = estimators.create("zero")
    estimator.min_rollouts = 4  # type: ignore[misc]
    with pytest.raises(ConfigError, match="use num_generations of 4 or more"):
        tiny_trainer(tiny_config(tmp_path), sums(8), estimator=estimator)


@pytest.mark.parametrize("name", [n for n in NAMES if registry.pass_rates_use(n) == "needed"])
def test_a_missing_table_is_named_with_what_to_do(tmp_path: Path, name: str) -> None:
    config = tiny_config(tmp_path, estimator=name)
    with pytest.raises(ConfigError) as caught:
        tiny_trainer(config, sums(8), pass_rates=None)
    for word in (name, "pass_rates=", "basis-rl cache build", "basis-online"):
        assert word in str(caught.value)


@pytest.mark.parametrize("rollouts", [1, 8])
@pytest.mark.parametrize("with_table", [False, True])
def test_basis_online_with_and_without_a_table(
    tmp_path: Path, with_table: bool, rollouts: int
) -> None:
    data = sums(8)
    config = tiny_config(
        tmp_path,
        estimator="basis-online",
        num_generations=rollouts,
        per_device_train_batch_size=8 * rollouts,
        max_steps=2,
    )
    trainer = tiny_trainer(config, data, pass_rates=table_for(data) if with_table else None)
    assert (trainer.pass_rates is None) == (not with_table)
    trainer.train()
    assert ("basis/coverage" in trainer.state.log_history[0]) >= with_table
    assert trainer.state.log_history[0]["basis/advantage_std"] > 0


def test_an_optional_table_is_checked_where_it_is_given(tmp_path: Path) -> None:
    data = sums(8)
    config = tiny_config(tmp_path, estimator="basis-online")
    half = table_for(sums(4))
    tiny_trainer(config, data, pass_rates=half)  # it starts the others from the population
    with pytest.raises(PassRatesError, match=r"12\.5%"):
        tiny_trainer(config, data, pass_rates=table_for(sums(1)))
    with pytest.raises(PassRatesError, match="another_verifier"):
        tiny_trainer(config, data, pass_rates=table_for(data, verifier="another_verifier"))


def trainer_in(folder: Path, name: str, rows: int = 40) -> RecordingTrainer:
    config = tiny_config(
        folder,
        max_steps=6,
        per_device_train_batch_size=6,
        save_strategy="steps",
        save_steps=3,
        learning_rate=1e-2,
        estimator=name,
        prompt_source_column="task",
    )
    return tiny_trainer(config, sums(rows, task=[str(i % 2) for i in range(rows)]))


@pytest.mark.parametrize(
    ("name", "rows"),
    [("basis-online", 40), ("spo", 12)],
    ids=["one-epoch", "in-the-second-epoch"],
)
def test_three_and_three_resumed_steps_equal_six(tmp_path: Path, name: str, rows: int) -> None:
    whole = trainer_in(tmp_path / "whole", name, rows)
    whole.train()
    first = trainer_in(tmp_path / "parts", name, rows)
    first.add_callback(StopAfter(3))
    first.train()
    rest = trainer_in(tmp_path / "parts", name, rows)
    assert not same_state(rest.estimator.state_dict(), first.estimator.state_dict())
    rest.train(resume_from_checkpoint=True)
    assert rest.state.global_step == 6
    ours, theirs = dict(rest.model.named_parameters()), dict(whole.model.named_parameters())
    assert all(torch.equal(ours[parameter], theirs[parameter]) for parameter in theirs)
    assert same_state(rest.estimator.state_dict(), whole.estimator.state_dict())
    for (_, one), (_, other) in zip(rest.generated, whole.generated[3:], strict=True):
        assert torch.equal(one["advantages"], other["advantages"])
    checkpoint = tmp_path / "parts" / "checkpoint-6"
    saved = read_state(checkpoint / "basis_state.npz")
    assert same_state(saved, rest.estimator.state_dict())
    assert not (checkpoint / "basis_state.json").exists()


class _Keeps(Estimator):
    """Has the state that it is given."""

    name = "keeps"

    def __init__(self, kept: Any) -> None:
        self.kept = kept

    def _baselines(self, rollouts: RewardBatch) -> Any:
        return np.zeros(len(rollouts)), {}

    def _state(self) -> dict[str, Any]:
        return {"kept": self.kept}

    def _load(self, state: Any) -> None:
        self.kept = state["kept"]


@pytest.mark.parametrize("kept", [np.arange(3.0), [1, 2]], ids=["arrays", "json"])
def test_a_state_is_found_whatever_its_file_is_called(tmp_path: Path, kept: Any) -> None:
    save_state(_Keeps(kept), tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.name == ("basis_state.npz" if isinstance(kept, np.ndarray) else "basis_state.json")
    other = _Keeps(np.zeros(1) if isinstance(kept, np.ndarray) else [])
    load_state(other, tmp_path, names=TRL)
    assert same_state(other.kept, kept)
    save_state(_Keeps([] if isinstance(kept, np.ndarray) else np.zeros(1)), tmp_path)
    assert len(list(tmp_path.iterdir())) == 1  # the old one would be found first


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stopped")
    half = trainer_in(folder, "basis-online")
    half.add_callback(StopAfter(3))
    half.train()
    return folder


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (None, ["basis_state.npz", "missing"]),
        (lambda content: content[: len(content) // 2], ["basis_state.npz", "cannot be read"]),
        (lambda content: b"", ["basis_state.npz", "cannot be read"]),
    ],
    ids=["missing", "cut", "empty"],
)
def test_a_damaged_state_with_arrays_is_an_error(
    stopped: Path, tmp_path: Path, damage: Any, words: list[str]
) -> None:
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "checkpoint-3" / "basis_state.npz"
    assert find(tmp_path).newest == path.parent
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
        assert find(tmp_path).skipped == {path.parent: "basis_state.npz is cut short"}
    with pytest.raises(StateError) as caught:
        trainer_in(tmp_path, "basis-online").train(resume_from_checkpoint=str(path.parent))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("how", ["batch", "tokens"])
def test_normalised_advantages(tmp_path: Path, how: str) -> None:
    seen: list[RewardBatch] = []
    config = tiny_config(
        tmp_path,
        estimator="basis-online",
        normalize_advantages=how,
        num_generations=2,
        per_device_train_batch_size=8,
    )
    trainer = remembering(
        seen, config, sums(8), lambda prompts, **_: [float(i % 3 == 0) for i in range(8)], {}
    )
    trainer.train()
    estimate = estimators.create("basis-online").estimate(seen[0])
    wanted = normalize_advantages(estimate, seen[0], how).advantages
    ((_, output),) = trainer.generated
    assert output["advantages"].double().numpy() == pytest.approx(wanted, abs=1e-6)
    assert not np.allclose(wanted, estimate.advantages, atol=1e-3)
    # The metric says what the estimator did.
    spread = trainer.state.log_history[0]["basis/advantage_std"]
    assert spread == pytest.approx(estimate.advantages.std(), abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"normalize_advantages": "std"}, ["normalize_advantages is 'std'", "'tokens'"]),
        ({"normalize_advantages": "group"}, ["normalize_advantages is 'group'"]),
        (
            {"normalize_advantages": "batch", "scale_rewards": "batch"},
            ["scale_rewards='batch'", "leave one of them out"],
        ),
    ],
)
def test_scalings_that_do_not_fit_are_refused(
    tmp_path: Path, changes: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        tiny_config(tmp_path, estimator="basis-online", **changes)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "scaling"),
    [
        ("reinforce-plus-plus", {}, {"normalize_advantages": "tokens"}),
        ("group-mean", {"std": True}, {"scale_rewards": "batch"}),
        ("krpo", {}, {"normalize_advantages": "batch"}),
    ],
)
def test_advantages_are_scaled_once(
    tmp_path: Path, name: str, options: dict[str, Any], scaling: dict[str, Any]
) -> None:
    settings: dict[str, Any] = {"estimator": name, "num_generations": 2, **scaling}
    config = tiny_config(tmp_path, estimator_options=options, **settings)
    with pytest.raises(ConfigError) as caught:
        tiny_trainer(config, sums(8), pass_rates=None)
    for word in (name, next(iter(scaling)), "'std': False"):
        assert word in str(caught.value)
    with pytest.raises(ConfigError, match="would again"):
        tiny_trainer(
            tiny_config(tmp_path, num_generations=2, **scaling),
            sums(8),
            estimator=estimators.create(name, **options),
        )
    config = tiny_config(tmp_path, estimator_options={"std": False}, **settings)
    tiny_trainer(config, sums(8), pass_rates=None)


def test_options_may_ask_for_more_rollouts(tmp_path: Path) -> None:
    options = {"group_baseline": True}
    config = tiny_config(tmp_path, estimator="reinforce-plus-plus", estimator_options=options)
    with pytest.raises(
        ConfigError, match=r"'reinforce-plus-plus' compares .* num_generations is 1"
    ):
        tiny_trainer(config, sums(8), pass_rates=None)


def test_a_configuration_file_trains_without_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = write_data(tmp_path)
    example_module("make_tiny_model").write(tmp_path / "model", steps=1)
    del values["pass_rates"]
    values |= {"estimator": "basis-online"}
    values["data"] |= {"source_column": "task"}
    values["trl"] |= {"prompt_sampler": "spread", "max_steps": 2, "num_generations": 2}
    arguments = ["train", write_config(tmp_path, values)]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    shown = capsys.readouterr()
    assert not ended.value.code, shown.err
    assert "estimator: basis-online" in shown.out
    assert "; prompts drawn by spread" in shown.out
    assert "pass rates:" not in shown.out
    saved = read_state(tmp_path / "out" / "checkpoint-2" / "basis_state.npz")
    assert saved["estimator"] == "basis-online"
    values["estimator"] = "basis"
    with pytest.raises(SystemExit):
        main(["train", write_config(tmp_path, values), "--check"])
    error = capsys.readouterr().err
    assert "set pass_rates to its file" in error
    assert "basis-online" in error
    values["estimator"] = "batch-mean"
    with pytest.raises(SystemExit):
        main(["train", write_config(tmp_path, values), "--check"])
    assert "trl: prompt_sampler='spread' asks the estimator" in capsys.readouterr().err
    values["estimator"] = {"name": "reinforce-plus-plus", "group_baseline": True}
    values["trl"] |= {"prompt_sampler": None, "num_generations": 1}
    with pytest.raises(SystemExit):
        main(["train", write_config(tmp_path, values), "--check"])
    assert "estimator: estimator='reinforce-plus-plus' compares" in capsys.readouterr().err
