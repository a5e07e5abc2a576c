"""The hooks in verl's trainers with workers apart, with fakes of these."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Mapping
from contextvars import Context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from verl_config import verl_config
from verl_fakes import (
    TOKENS,
    Data,
    LegacyBatch,
    fresh_legacy,
    prompt,
    rows,
    token_rewards,
)
from verl_started import COUNT, config, full_mask, pretend_verl, table

from basis_rl import RewardBatch, estimators, verl_guard
from basis_rl.errors import BasisError, BatchError, ConfigError, StateError
from basis_rl.passrates import prompt_key
from basis_rl.state_files import read_state
from basis_rl.verl import plugin
from basis_rl.verl.advantages import estimated
from basis_rl.verl.fully_async import HOOKS

ASYNC = {"async_training.require_batches": 1}
KEYS = [prompt_key(prompt(n)) for n in range(COUNT)]
REWARDS = [1.0, 0.0, 1.0, 1.0, 0.0, 0.0]
IDS = [f"id-{n}" for n in range(COUNT)]
# What a state holds, in a few numbers.
PREVIOUS = {"preset": "paper", "variant": "unb", "calibration": "previous-batch"}


@pytest.fixture(autouse=True)
def read(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Data sets that the trainer made for itself."""
    pretend_verl(monkeypatch)
    made: list[dict[str, Any]] = []

    def create_rl_dataset(
        files: Any, data: Mapping[str, Any], tokenizer: Any, processor: Any, max_samples: int = -1
    ) -> Data:
        made.append({"files": files, "tokenizer": tokenizer, "max_samples": max_samples})
        return Data(rows(COUNT), prompt_key=data["prompt_key"])

    module: Any = types.ModuleType("verl.trainer.ppo.utils")
    module.create_rl_dataset = create_rl_dataset
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return made


def separate() -> Any:
    """What both trainers are built on, with the hooks: they come with verl_guard."""

    class SeparateRayPPOTrainer(fresh_legacy()):  # type: ignore[misc]
        rewards: Any = None
        mask: Any = None
        result: Any = None

        def _init_resource_pools(self) -> None:
            self.log.append("pools")

        def _fit_start_profile(self, should_profiler: bool | None = None) -> None:
            self.log.append(f"step begins, profiled: {should_profiler}")

        def _fit_compute_advantage(self, batch: LegacyBatch) -> LegacyBatch:
            self.result, _ = estimated(
                self.rewards, self.mask, {}, batch.non_tensor_batch["uid"][self.asked]
            )
            return batch

        asked = slice(None)

    verl_guard.hook_early(types.SimpleNamespace(SeparateRayPPOTrainer=SeparateRayPPOTrainer))
    return SeparateRayPPOTrainer


def fresh_fully_async() -> Any:
    """A class of the fully asynchronous trainer, whose methods are copies as Ray makes them."""
    parent = separate()

    class FullyAsyncTrainer(parent):  # type: ignore[misc]
        def __init__(self, config: Mapping[str, Any]) -> None:
            self.config, self.tokenizer = config, "tokenizer"
            self.global_steps, self.current_param_version = 0, 0
            self.metrics: dict[str, Any] = {}
            self.log: list[str] = []

        def _save_checkpoint(self) -> None:
            folder = Path(self.config["trainer"]["default_local_dir"])
            there = [path.name for path in folder.glob(f"*_{self.current_param_version}/*")]
            self.log.append(f"saved after {there}")

    for name in HOOKS:
        setattr(FullyAsyncTrainer, name, getattr(parent, name))
    return FullyAsyncTrainer


def started(made: dict[str, Any], version: int = 0) -> Any:
    trainer = fresh_fully_async()(made)
    trainer._init_resource_pools()
    trainer.current_param_version, trainer.global_steps = version, 2 * version + 1
    return trainer


def step(trainer: Any, numbers: list[int], rewards: Any, mask: Any = None, **columns: Any) -> Any:
    """One batch of these prompts through the hook; advantages (B,)."""
    prompts = np.empty(len(numbers), dtype=object)
    prompts[:] = [prompt(number) for number in numbers]
    uids = np.array([f"uid_sample_0_{number}" for number in numbers], dtype=object)
    batch = LegacyBatch({"uid": uids, "raw_prompt": prompts, **columns})
    trainer.rewards = token_rewards(rewards)
    trainer.mask = full_mask(len(numbers)) if mask is None else mask
    trainer.metrics = {}
    assert trainer._fit_compute_advantage(batch) is batch
    return trainer.result[:, 0].numpy()


def test_a_batchs_rows_are_named_by_their_prompts(tmp_path: Path, read: list[Any]) -> None:
    made = config(tmp_path, IDS, prompt_key_column="prompt_id", changes=ASYNC, max_unverified=0.5)
    trainer = started(made, version=3)
    numbers, rewards = [4, 1, 1, 0], [1.0, 0.0, 1.0, float("nan")]
    mask = full_mask(4)
    got = step(trainer, numbers, rewards, mask)
    batch = RewardBatch([IDS[number] for number in numbers], rewards)
    expected = estimators.create("basis", table(IDS), max_unverified=0.5).estimate(batch)
    np.testing.assert_allclose(got, expected.advantages, atol=1e-6)
    assert mask.sum(dim=1).tolist() == [TOKENS, TOKENS, TOKENS, 0]
    assert trainer.metrics["basis/rows"] == 4
    assert trainer.metrics["basis/coverage"] == 1.0
    assert trainer.metrics["basis/time_ms"] > 0
    assert [one["tokenizer"] for one in read] == ["tokenizer"]
    assert trainer.train_dataset is None


def test_sources_and_versions_are_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = started(config(tmp_path, prompt_source_column="data_source", changes=ASYNC), 2)
    seen: list[RewardBatch] = []
    estimate = trainer._basis_run.estimator.estimate
    monkeypatch.setattr(
        trainer._basis_run.estimator,
        "estimate",
        lambda batch: (seen.append(batch), estimate(batch))[1],
    )
    step(trainer, [0, 1, 2], REWARDS[:3], min_global_steps=np.array([2, 1, 2], dtype=object))
    step(trainer, [0, 1, 2], REWARDS[:3], min_global_steps=np.array([2, None, 2], dtype=object))
    step(trainer, [0, 1, 2], REWARDS[:3])
    assert seen[0].sources is not None
    assert list(seen[0].keys) == KEYS[:3]
    assert list(seen[0].sources) == ["even", "odd", "even"]
    assert (seen[0].step, seen[0].policy_version) == (4, 2)
    assert seen[0].row_versions is not None
    assert seen[0].row_versions.tolist() == [2, 1, 2]
    assert seen[1].row_versions is None
    assert seen[2].row_versions is None


def test_the_start_comes_before_workers_and_says_how_many_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two = {"async_training.require_batches": 2, "actor_rollout_ref.rollout.n": 2}
    with pytest.warns(UserWarning, match="24 rollouts at a time"):
        trainer = started(config(tmp_path, changes=two))
    assert trainer.log == ["pools"]
    assert "6 training prompts; an estimate sees 24 rollouts" in capsys.readouterr().err
    uncovered = fresh_fully_async()(config(tmp_path, KEYS[:3], changes=ASYNC))
    with pytest.raises(BasisError, match="pass rate"):
        uncovered._init_resource_pools()
    assert uncovered.log == []
    assert capsys.readouterr().err.startswith("basis-rl: ")


def test_prompts_that_verl_draws_are_not_drawn_twice(tmp_path: Path, read: list[Any]) -> None:
    drawn = {"data.train_max_samples": 3, "data.shuffle": True}
    started(config(tmp_path, changes={**ASYNC, **drawn, "data.seed": None}))
    started(config(tmp_path, changes={**ASYNC, **drawn, "data.seed": 7}))
    started(config(tmp_path, changes={**ASYNC, "data.train_max_samples": 3, "data.shuffle": False}))
    assert [one["max_samples"] for one in read] == [-1, 3, 3]


def test_checkpoints_are_those_of_versions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = config(tmp_path, changes=ASYNC, **PREVIOUS)
    trainer = started(made, version=1)
    trainer._fit_start_profile = lambda: None  # as if nothing was resumed
    step(trainer, [0, 1, 2], REWARDS[:3])
    trainer.current_param_version = 2
    trainer._save_checkpoint()
    assert trainer.log[-1] == "saved after ['basis_state.json']"
    resumed = started(made, version=2)
    resumed._fit_start_profile(should_profiler=False)
    assert resumed.log[-1] == "step begins, profiled: False"
    folder = tmp_path / "run" / "global_step_2"
    assert f"goes on from {folder}" in capsys.readouterr().err
    assert resumed._basis_run.estimator.state_dict() == dict(
        read_state(folder / "basis_state.json")
    )
    step(resumed, [0, 1, 2], [0.0, 1.0, 0.0])
    after = resumed._basis_run.estimator.state_dict()
    resumed._fit_start_profile()  # the second step goes on from the first
    assert resumed._basis_run.estimator.state_dict() == after
    with pytest.raises(StateError, match="global_step_5"):
        started(made, version=5)._fit_start_profile()


def test_prompts_that_are_not_of_the_data_are_refused(tmp_path: Path) -> None:
    trainer = started(config(tmp_path, changes=ASYNC))
    with pytest.raises(BatchError, match=r"1 of a batch's 2 rows .*'99\+99=.*'raw_prompt'"):
        step(trainer, [0, 99], [1.0, 0.0])
    trainer.asked = slice(1, None)
    with pytest.raises(BasisError, match="1 rows that are not those of its batch of 2"):
        step(trainer, [0, 1], [1.0, 0.0])


def test_prompts_that_do_not_tell_their_names_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twice = [*rows(COUNT), {**rows(1)[0], "prompt_id": "other"}]
    pictures = [{**row, "images": ["a.png"]} for row in rows(COUNT)]
    made = config(tmp_path, [*IDS, "other"], prompt_key_column="prompt_id", changes=ASYNC)
    utils = sys.modules["verl.trainer.ppo.utils"]
    for data, said in (
        (twice, r"'0\+0=' has more than one key or source, 'id-0' and 'other': leave out"),
        (pictures, "the text of a prompt alone, and the training data have the column 'images'"),
    ):
        monkeypatch.setattr(utils, "create_rl_dataset", lambda *_, data=data, **__: Data(data))
        with pytest.raises(ConfigError, match=said):
            started(made)


def test_other_runs_are_left_alone(tmp_path: Path, read: list[Any]) -> None:
    stock = verl_config({"algorithm.adv_estimator": "grpo", **ASYNC})
    stock["actor_rollout_ref"]["model"]["external_lib"] = None
    trainer = started(stock, version=2)
    trainer._fit_start_profile()
    assert trainer.log == ["pools", "step begins, profiled: None"]
    assert read == []
    assert "_save_checkpoint" not in vars(trainer)
    with pytest.raises(BasisError, match="hooks were not called"):
        # Not named: verl's own estimator is called. Other tests may have told of a batch.
        Context().run(step, trainer, [0], [1.0])
    assert "basis/rows" not in trainer.metrics
    plugin.wrap_separate(types.SimpleNamespace())
    plugin.wrap_separate(types.SimpleNamespace(SeparateRayPPOTrainer=type("Newer", (), {})))


def test_the_process_that_samples_checks_nothing(tmp_path: Path) -> None:
    rollouter = separate()(config(tmp_path, changes=ASYNC), Data(rows(COUNT)))
    assert not hasattr(rollouter, "_basis_run")


def test_one_step_off_the_policy(tmp_path: Path) -> None:
    made = config(tmp_path, IDS, prompt_key_column="prompt_id")
    trainer = separate()(made, Data(rows(COUNT)))
    trainer.log = []
    trainer._init_resource_pools()
    trainer._fit_start_profile()
    got = step(trainer, [*range(COUNT)], REWARDS, min_global_steps=np.array([2] * COUNT))
    expected = estimators.create("basis", table(IDS)).estimate(RewardBatch(IDS, REWARDS))
    np.testing.assert_allclose(got, expected.advantages, atol=1e-6)
    assert trainer.metrics["basis/rows"] == COUNT
    trainer._save_checkpoint()
    assert (tmp_path / "run" / "global_step_3").exists()
    record = (tmp_path / "run" / "basis_rewards.jsonl").read_text().splitlines()
    assert json.loads(record[1])["step"] == 2
