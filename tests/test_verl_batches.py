"""Batches of verl's trainers that are out of the ordinary, and data sets that are."""

from __future__ import annotations

import json
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from verl_fakes import (
    TOKENS,
    Batch,
    Data,
    LegacyBatch,
    Queue,
    fresh_legacy,
    prompt,
    rows,
    tag,
    token_rewards,
)
from verl_started import (
    COUNT,
    config,
    fill,
    full_mask,
    pretend_verl,
    started,
    step,
    table,
)

from basis_rl import RewardBatch, estimators
from basis_rl.errors import BasisError, BatchError, ConfigError, PassRatesError
from basis_rl.passrates import prompt_key
from basis_rl.verl import advantages, plugin, v1
from basis_rl.verl.advantages import estimated
from basis_rl.verl.run import BasisRun

KEYS = [prompt_key(prompt(n)) for n in range(COUNT)]
REWARDS = [1.0, 0.0, 1.0, 1.0, 0.0, 0.0]


@pytest.fixture(autouse=True)
def _verl(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_verl(monkeypatch)


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    made = Queue()
    monkeypatch.setitem(sys.modules, "transfer_queue", made)
    return made


# Turns


def test_a_rollouts_reward_is_that_of_its_last_turn(tmp_path: Path, queue: Queue) -> None:
    trainer = started(config(tmp_path))
    # A colocated reward model scores every turn; verl sorts rows by length.
    names = ["a_0_10", "b_0_0", "a_0_2", "c_0_0", "a_1_0"]
    fill(queue, names, [0, 1, 0, 2, 0])
    got, _, _ = step(trainer, queue, names, [tag()] * 5, [1.0, 0.0, 0.0, 1.0, 0.0], full_mask(5))
    once = RewardBatch([KEYS[0], KEYS[1], KEYS[2], KEYS[0]], [1.0, 0.0, 1.0, 0.0])
    expected = estimators.create("basis", table(KEYS)).estimate(once).advantages
    np.testing.assert_allclose(got, expected[[0, 1, 0, 2, 3]], atol=1e-6)


def test_every_turn_of_a_rollout_without_a_verdict_leaves_the_loss(
    tmp_path: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[str] = []
    monkeypatch.setattr(v1, "_leave_out", lambda _, keys: left.extend(keys))
    trainer = started(config(tmp_path, max_unverified=0.5))
    names = ["a_0_0", "b_0_0", "pad_0_0", "a_0_1", "c_0_0"]
    fill(queue, names, [0, 1, 0, 0, 2])
    tags = [tag(padding=name.startswith("pad")) for name in names]
    mask = full_mask(5)
    rewards = [0.0, 0.0, 0.0, float("nan"), 1.0]
    got, _, _ = step(trainer, queue, names, tags, rewards, mask)
    assert left == ["a_0_0", "a_0_1"]
    assert mask.sum(dim=1).tolist() == [0, TOKENS, TOKENS, 0, TOKENS]
    assert got[0] == got[2] == got[3] == 0.0
    assert np.isfinite(got).all()


# The loss


@pytest.mark.parametrize("mode", ["sapo", "geo_mean", "vanilla"])
def test_losses_that_divide_by_rows_whatever_is_configured(tmp_path: Path, mode: str) -> None:
    batch = RewardBatch(KEYS, [*REWARDS[:5], np.nan])
    plain, _ = BasisRun.start(config(tmp_path, max_unverified=0.5), rows(COUNT)).advantages(batch)
    changes = {"actor_rollout_ref.actor.policy_loss.loss_mode": mode}
    changed = config(tmp_path, max_unverified=0.5, changes=changes)
    got, _ = BasisRun.start(changed, rows(COUNT)).advantages(batch)
    np.testing.assert_allclose(got, plain * (1.0 if mode == "vanilla" else 6 / 5))


def test_advantages_are_normalised_and_rows_without_a_verdict_stay_out(tmp_path: Path) -> None:
    batch = RewardBatch(KEYS, [*REWARDS[:5], np.nan])
    made = config(tmp_path, max_unverified=0.5, normalize_advantages="batch")
    got, _ = BasisRun.start(made, rows(COUNT)).advantages(batch)
    assert got[5] == 0.0
    assert got[:5].mean() == pytest.approx(0.0, abs=1e-9)
    assert got[:5].std(ddof=1) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("how", ["batch", "tokens"])
def test_metrics_are_of_the_advantages_before_normalisation(tmp_path: Path, how: str) -> None:
    batch = RewardBatch(KEYS, REWARDS, lengths=np.arange(1.0, COUNT + 1))
    plain, expected = BasisRun.start(config(tmp_path), rows(COUNT)).advantages(batch)
    made = config(tmp_path, normalize_advantages=how)
    got, metrics = BasisRun.start(made, rows(COUNT)).advantages(batch)
    assert metrics == expected
    assert metrics["basis/advantage_std"] == pytest.approx(plain.std())
    assert abs(got - plain).max() > 0.1


# Prompts that change on their way


def test_prompts_that_an_agent_loop_changed_are_noticed(tmp_path: Path) -> None:
    made = config(tmp_path, missing="prior")
    run = BasisRun.start(made, rows(COUNT))
    changed = [prompt_key([*prompt(n), {"role": "tool", "content": "4"}]) for n in range(COUNT)]
    with pytest.raises(BatchError, match=r"6 of a batch's 6 rows .*'raw_prompt'.*key_column"):
        run.advantages(RewardBatch(changed, REWARDS))
    assert not (tmp_path / "run" / "basis_rewards.jsonl").exists()
    some = RewardBatch([*KEYS[:4], *changed[4:]], REWARDS)
    with pytest.warns(UserWarning, match="2 of a batch's 6 rows"):
        run.advantages(some)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.advantages(some)
        run.advantages(RewardBatch(KEYS, REWARDS))


# The start, and what is logged


def test_the_start_checks_verls_own_estimators_too(tmp_path: Path) -> None:
    made = config(tmp_path)
    made["algorithm"] = {"adv_estimator": "grpo"}
    with pytest.raises(ConfigError, match="adv_estimator=grpo compares the rollouts"):
        started(made)


def test_an_estimator_that_came_in_after_the_plug_in_is_registered_at_the_start(
    tmp_path: Path,
) -> None:
    registry = sys.modules[plugin.CORE].ADV_ESTIMATOR_REGISTRY
    assert "basis" not in registry
    started(config(tmp_path))
    assert registry["basis"] is estimated


def test_the_logged_time_has_the_estimate_in_it_and_not_verls(
    tmp_path: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    clock = types.SimpleNamespace(perf_counter=lambda: now[0])
    for module in (v1, advantages):
        monkeypatch.setattr(module, "time", clock)
    trainer = started(config(tmp_path))
    names = [f"u{n}_0_0" for n in range(COUNT)]
    fill(queue, names, list(range(COUNT)))

    def taking(seconds: float, function: Any) -> Any:
        def slow(*args: Any, **kwargs: Any) -> Any:
            now[0] += seconds
            return function(*args, **kwargs)

        return slow

    monkeypatch.setattr(queue, "kv_batch_get", taking(8.0, queue.kv_batch_get))
    run = trainer._basis_run
    monkeypatch.setattr(run, "advantages", taking(1.0, run.advantages))
    monkeypatch.setattr(v1, "next_batch", taking(32.0, v1.next_batch))  # verl's own, say
    _, metrics, _ = step(trainer, queue, names, [tag()] * COUNT, REWARDS, full_mask(COUNT))
    assert (metrics["basis/time_ms"], metrics["basis/fetch_ms"]) == (1000.0, 8000.0)


# Data sets


class Pictures(Data):
    """Prompts that verl puts pictures into, and pictures that are dear to decode."""

    asked = 0

    def __getitem__(self, row: int) -> dict[str, Any]:
        self.asked += 1
        item = super().__getitem__(row)
        picture = {"type": "image", "image": object()}
        return {**item, "raw_prompt": [{"role": "user", "content": [picture]}]}


def test_keys_of_a_column_are_read_from_the_table(tmp_path: Path) -> None:
    data = Pictures([{**row, "pictures": [b"..."]} for row in rows(COUNT)])
    changes = {"data.image_key": "pictures"}
    keys = [f"id-{n}" for n in range(COUNT)]
    started(config(tmp_path, keys, prompt_key_column="prompt_id", changes=changes), data)
    assert data.asked == 1
    with pytest.raises(ConfigError, match=r"'pictures' \(data\.image_key\).*prompt_key_column"):
        started(config(tmp_path, changes=changes), data)
    film = Data([{**row, "videos": None} for row in rows(COUNT)])
    with pytest.raises(ConfigError, match=r"'videos' \(data\.video_key\)"):
        started(config(tmp_path), film)


class Renamed(Data):
    """A data set of a user's, whose items have other ids than its table."""

    def __getitem__(self, row: int) -> dict[str, Any]:
        item = super().__getitem__(row % len(self.rows))  # no IndexError ends it
        return {**item, "prompt_id": f"own-{row}"}


def test_ids_that_a_data_set_makes_are_read_from_its_items(tmp_path: Path) -> None:
    keys = [f"own-{n}" for n in range(COUNT)]
    run = started(config(tmp_path, keys, prompt_key_column="prompt_id"), Renamed(rows(COUNT)))
    assert f"{COUNT} training prompts" in str(run._basis_run)
    with pytest.raises(PassRatesError, match="'own-0'"):
        started(config(tmp_path, prompt_key_column="prompt_id"), Renamed(rows(COUNT)))


class Written(Data):
    """A data set that writes its prompts itself, of a column of questions."""

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {**self.rows[row], "raw_prompt": prompt(row)}


def test_prompts_that_a_data_set_writes_need_no_column(tmp_path: Path) -> None:
    data = Written([{"question": str(n), "data_source": "toy"} for n in range(COUNT)])
    assert started(config(tmp_path), data)._basis_run is not None
    data.dataframe = list(data.rows)  # no table of the datasets library
    assert started(config(tmp_path), data)._basis_run is not None


def test_columns_come_as_lists_whatever_holds_them() -> None:
    ragged = torch.nested.nested_tensor([[1], [2, 3]], layout=torch.jagged)
    assert [row.tolist() for row in v1.plain_list(ragged)] == [[1], [2, 3]]
    assert v1.plain_list(torch.tensor([7, 8])) == [7, 8]
    assert v1.plain_list(np.array(["a", "b"], dtype=object)) == ["a", "b"]
    wrapped = type("NonTensorData", (), {"data": "a"})
    assert v1.plain_list([wrapped(), "b"]) == ["a", "b"]


# The record


def test_the_record_names_the_oldest_policy_of_a_batch(tmp_path: Path, queue: Queue) -> None:
    trainer = started(config(tmp_path))
    names = [f"u{n}_0_0" for n in range(COUNT)]
    fill(queue, names, list(range(COUNT)))
    tags = [tag(version=4), tag(version=2), *[tag(version=3)] * 4]
    step(trainer, queue, names, tags, REWARDS, full_mask(COUNT))
    entry = json.loads((tmp_path / "run" / "basis_rewards.jsonl").read_text().splitlines()[1])
    assert (entry["step"], entry["policy_step"]) == (4, 2)


# Other versions of verl


def test_a_trainer_without_a_method_is_refused_and_a_removed_one_is_not_missed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class PPOTrainer:
        def _init_dataloader(self) -> None: ...

    before = PPOTrainer._init_dataloader
    with pytest.raises(ConfigError, match=r"PPOTrainer has no method _compute_advantage.*install"):
        plugin._wrap_v1(types.SimpleNamespace(PPOTrainer=PPOTrainer))
    assert "basis-rl: this version of verl" in capsys.readouterr().err
    assert PPOTrainer._init_dataloader is before
    plugin._wrap_legacy(types.SimpleNamespace())
    plugin._wrap_legacy(types.SimpleNamespace(RayPPOTrainer=PPOTrainer))
    assert PPOTrainer._init_dataloader is before


def test_the_legacy_trainers_unknown_prompts_are_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = fresh_legacy()(config(tmp_path), Data(rows(COUNT)))
    prompts = np.array([prompt(n) for n in range(2)], dtype=object)
    uids = np.array(["a", "b"], dtype=object)
    trainer._get_gen_batch(LegacyBatch({"uid": uids, "raw_prompt": prompts}))
    with pytest.raises(BasisError, match="not of this step's batch"):
        estimated(token_rewards([1.0]), full_mask(1), {}, np.array(["other"], dtype=object))
    assert capsys.readouterr().err.splitlines()[-1].startswith("basis-rl: verl asked")


def test_the_legacy_trainers_lengths_are_those_of_its_mask(tmp_path: Path) -> None:
    made = config(tmp_path, normalize_advantages="tokens")
    trainer = fresh_legacy()(made, Data(rows(COUNT)))
    prompts = np.array([prompt(n) for n in range(3)], dtype=object)
    uids = np.array(["a", "b", "c"], dtype=object)
    trainer._get_gen_batch(LegacyBatch({"uid": uids, "raw_prompt": prompts}))
    mask = full_mask(3)
    mask[0, 2:] = 0
    tokens, _ = estimated(token_rewards([1.0, 0.0, 1.0]), mask, {}, uids)
    assert float(tokens.sum()) == pytest.approx(0.0, abs=1e-5)


def test_a_batch_of_padding_and_one_prompt_asks_for_one_row(tmp_path: Path, queue: Queue) -> None:
    trainer = started(config(tmp_path, changes={"actor_rollout_ref.rollout.n": 2}))
    names = ["u_v_0_0", "u_v_1_0", "padff_0_0"]  # a user's manager may write other names
    fill(queue, names[:2], [3, 3])
    trainer.rewards, trainer.mask = token_rewards([1.0, 0.0, 0.0]), full_mask(3)
    tags = [tag(), tag(), tag(padding=True)]
    trainer._compute_advantage(Batch(names, tags), {})
    assert queue.asked == [["u_v_1_0"]]


def test_the_share_of_a_batchs_prompts_in_the_table_is_logged(tmp_path: Path) -> None:
    made = config(tmp_path, KEYS[:4])
    made["algorithm"]["adv_estimator"] = "basis-online"
    _, metrics = BasisRun.start(made, rows(COUNT)).advantages(RewardBatch(KEYS, REWARDS))
    assert metrics["basis/coverage"] == pytest.approx(4 / 6)
