"""The hooks in verl's trainers, with fakes of these: rows, advantages, checkpoints, errors."""

from __future__ import annotations

import contextlib
import json
import resource
import sys
from collections.abc import Iterator
from contextvars import Context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from verl_config import verl_config
from verl_fakes import (
    TOKENS,
    Batch,
    Data,
    LegacyBatch,
    Queue,
    fresh_legacy,
    fresh_v1,
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
from basis_rl.errors import BasisError, BatchError, ConfigError, PassRatesError, StateError
from basis_rl.passrates import prompt_key
from basis_rl.verl.advantages import estimated
from basis_rl.verl.plugin import CORE, register_estimators, wrap
from basis_rl.verl.run import BasisRun

# What a state holds, in a few numbers.
PREVIOUS = {"preset": "paper", "variant": "unb", "calibration": "previous-batch"}
REWARDS = [1.0, 0.0, 1.0, 1.0, 0.0, 0.0]


@pytest.fixture(autouse=True)
def _verl(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_verl(monkeypatch)


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    made = Queue()
    monkeypatch.setitem(sys.modules, "transfer_queue", made)
    return made


@pytest.mark.parametrize(
    ("column", "key_of"),
    [
        (None, lambda n: prompt_key(prompt(n))),
        ("prompt_id", lambda n: f"id-{n}"),
        ("extra_info.index", str),
        ("own.name", lambda n: f"own-{n}"),
    ],
)
def test_rows_have_their_own_prompts_whatever_their_order(
    tmp_path: Path, queue: Queue, column: str | None, key_of: Any
) -> None:
    keys = [key_of(n) for n in range(COUNT)]
    made = config(tmp_path, keys, prompt_key_column=column, prompt_source_column="data_source")
    trainer = started(made)
    order = [3, 0, 5, 1, 4, 2]
    names = [f"uid{n}_0_0" for n in order]
    fill(queue, names, order)
    rewards = [REWARDS[n] for n in order]
    got, metrics, _ = step(trainer, queue, names, [tag()] * COUNT, rewards, full_mask(COUNT))
    batch = RewardBatch(
        [key_of(n) for n in order],
        rewards,
        sources=[rows(COUNT)[n]["data_source"] for n in order],
        lengths=[TOKENS] * COUNT,
    )
    expected = estimators.create("basis", table(keys)).estimate(batch)
    np.testing.assert_allclose(got, expected.advantages, atol=1e-6)
    assert metrics["basis/rows"] == COUNT
    assert metrics["basis/coverage"] == 1.0
    assert metrics["basis/baseline_mean"] == pytest.approx(expected.metrics["baseline_mean"])
    assert {"basis/time_ms", "basis/fetch_ms"} <= set(metrics)


def test_padding_rows_are_dropped_and_rejected_rows_are_kept(tmp_path: Path, queue: Queue) -> None:
    trainer = started(config(tmp_path))
    names = [f"uid{n}_0_0" for n in range(COUNT)]
    fill(queue, names, list(range(COUNT)))
    names.insert(2, "padff_0_0")
    tags = [tag(padding=name.startswith("pad")) for name in names]
    mask = full_mask(COUNT + 1)
    mask[2] = 0
    mask[4] = 0  # by rejection sampling; prompt 3
    rewards = [*REWARDS[:2], 0.0, *REWARDS[2:]]
    got, metrics, _ = step(trainer, queue, names, tags, rewards, mask)
    keys = [prompt_key(prompt(n)) for n in range(COUNT)]
    expected = estimators.create("basis", table(keys)).estimate(RewardBatch(keys, REWARDS))
    real = [0, 1, 3, 5, 6]
    np.testing.assert_allclose(got[real], expected.advantages[[0, 1, 2, 4, 5]], atol=1e-6)
    assert got[2] == got[4] == 0.0
    assert metrics["basis/rows"] == COUNT
    assert all(not name.startswith("pad") for name in queue.asked[0])


def test_turns_of_a_rollout_count_once_and_share_its_advantage(
    tmp_path: Path, queue: Queue
) -> None:
    trainer = started(config(tmp_path))
    names = ["a_0_0", "a_0_1", "a_1_0", "b_0_0", "c_0_0"]
    numbers = [0, 0, 0, 1, 2]
    fill(queue, names, numbers)
    rewards = [1.0, 1.0, 0.0, 0.0, 1.0]
    got, _, _ = step(trainer, queue, names, [tag()] * 5, rewards, full_mask(5))
    keys = [prompt_key(prompt(n)) for n in range(COUNT)]
    once = RewardBatch([keys[0], keys[0], keys[1], keys[2]], [1.0, 0.0, 0.0, 1.0])
    expected = estimators.create("basis", table(keys)).estimate(once).advantages
    np.testing.assert_allclose(got, expected[[0, 0, 1, 2, 3]], atol=1e-6)
    assert len(queue.asked[0]) == 3  # a prompt's columns are fetched once


def test_the_estimator_knows_the_step_and_which_policy_sampled_a_row(
    tmp_path: Path, queue: Queue
) -> None:
    trainer = started(config(tmp_path))
    seen: list[RewardBatch] = []
    estimate = trainer._basis_run.estimator.estimate
    trainer._basis_run.estimator.estimate = lambda batch: (seen.append(batch), estimate(batch))[1]
    names = [f"u{n}_0_0" for n in range(3)]
    fill(queue, names, [0, 1, 2])
    tags = [tag(version=4, length=3), tag(version=2), tag(version=4, length=2)]
    step(trainer, queue, names, tags, REWARDS[:3], full_mask(3))
    assert (seen[0].step, seen[0].policy_version) == (4, 4)
    assert seen[0].row_versions is not None
    assert seen[0].row_versions.tolist() == [4, 2, 4]
    assert seen[0].lengths is not None
    assert seen[0].lengths.tolist() == [3, TOKENS, 2]
    step(trainer, queue, names, [tag(version=None), *tags[1:]], REWARDS[:3], full_mask(3))
    assert seen[1].row_versions is None


@pytest.mark.parametrize(
    ("option", "value", "data"),
    [
        ("multi_turn.enable", True, rows(COUNT)),
        ("agent.default_agent_loop", "tool_agent", rows(COUNT)),
        ("n", 1, [{**row, "agent_name": "tool_agent"} for row in rows(COUNT)]),
    ],
)
def test_with_tools_lengths_are_the_policys_tokens(
    tmp_path: Path, queue: Queue, option: str, value: Any, data: Any
) -> None:
    many = {f"actor_rollout_ref.rollout.{option}": value}
    trainer = started(config(tmp_path, changes=many, normalize_advantages="tokens"), Data(data))
    seen: list[RewardBatch] = []
    estimate = trainer._basis_run.estimator.estimate
    trainer._basis_run.estimator.estimate = lambda batch: (seen.append(batch), estimate(batch))[1]
    names = [f"u{n}_0_0" for n in range(3)]
    fill(queue, names, [0, 1, 2])
    mask = full_mask(3)
    mask[0, 2:4] = 0
    mask[1] = 0
    step(trainer, queue, names, [tag()] * 3, REWARDS[:3], mask)
    assert seen[0].lengths is not None
    assert seen[0].lengths.tolist() == [TOKENS - 2, TOKENS, TOKENS]


def test_a_loss_that_divides_by_rows_leaves_out_those_without_a_verdict(tmp_path: Path) -> None:
    keys = [prompt_key(prompt(n)) for n in range(COUNT)]
    batch = RewardBatch(keys, [*REWARDS[:5], np.nan])
    made = {}
    for mode in ("token-mean", "seq-mean-token-mean"):
        changed = config(
            tmp_path, max_unverified=0.5, changes={"actor_rollout_ref.actor.loss_agg_mode": mode}
        )
        made[mode], _ = BasisRun.start(changed, rows(COUNT)).advantages(batch)
    np.testing.assert_allclose(made["seq-mean-token-mean"], made["token-mean"] * 6 / 5)
    assert made["token-mean"][5] == 0.0


def test_a_run_without_basis_is_left_alone(tmp_path: Path) -> None:
    made = verl_config({"algorithm.adv_estimator": "grpo"})
    made["actor_rollout_ref"]["model"]["external_lib"] = None
    trainer = started(made)
    assert not hasattr(trainer, "_basis_run")
    trainer._compute_advantage = type(trainer)._compute_advantage.__wrapped__
    trainer._save_checkpoint_was = trainer.log.copy()
    trainer._load_checkpoint()
    assert trainer.log == ["loaded"]


def test_the_function_alone_says_that_the_hooks_are_missing() -> None:
    with pytest.raises(BasisError, match=r"hooks were not called.*super"):
        # Other tests may have told of a batch.
        Context().run(estimated, token_rewards([1.0]), full_mask(1), {}, np.array(["a"]))


def test_rows_of_another_batch_are_refused(tmp_path: Path, queue: Queue) -> None:
    trainer = started(config(tmp_path))
    names = [f"u{n}_0_0" for n in range(3)]
    fill(queue, names, [0, 1, 2])
    trainer.rewards, trainer.mask = token_rewards(REWARDS[:3]), full_mask(3)

    def other(self: Any, batch: Batch, metrics: dict[str, Any]) -> None:
        estimated(self.rewards, self.mask, {}, np.array(["u0", "u2", "u1"]))

    cls = fresh_v1()
    cls._basis_wrapped = False
    cls._compute_advantage = other
    wrap(cls, {"_compute_advantage": __import__("basis_rl.verl.v1").verl.v1.compute_advantage})
    trainer.__class__ = cls
    with pytest.raises(BasisError, match="not those of its batch of 3"):
        trainer._compute_advantage(Batch(names, [tag()] * 3), {})


def test_wrapping_twice_hooks_once(tmp_path: Path) -> None:
    cls = fresh_v1()
    before = cls._init_dataloader
    wrap(cls, {"_init_dataloader": lambda *_: pytest.fail("hooked twice")})
    assert cls._init_dataloader is before


def test_verls_own_estimators_keep_their_names() -> None:
    register_estimators()
    register_estimators()
    registry = sys.modules[CORE].ADV_ESTIMATOR_REGISTRY
    assert registry.pop("opo") == "verl's own"
    assert set(registry) == set(estimators.names()) - {"opo"}
    assert set(registry.values()) == {estimated}


# At start


@pytest.mark.parametrize(
    ("basis", "kind", "words"),
    [
        ({"prompt_key_column": "idx"}, ConfigError, ["'idx'", "prompt_id"]),
        ({"prompt_key_column": "extra_info.nr"}, BatchError, ["extra_info.nr", "None", "0+0="]),
        ({"prompt_key_column": "constant"}, ConfigError, ["'0'", "all of these", "0+0=", "1+1="]),
        ({"prompt_key_column": "twice"}, ConfigError, ["'0'", "both", "3+3="]),
        ({"prompt_source_column": "origin"}, ConfigError, ["prompt_source_column", "'origin'"]),
        ({"prompt_key_column": "prompt_id"}, PassRatesError, ["'id-0'", "prompt_key_column"]),
        ({"betta": 1}, ConfigError, ["algorithm.basis.betta", "beta"]),
    ],
)
def test_what_is_wrong_stops_the_start_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], basis: Any, kind: Any, words: list[str]
) -> None:
    data = [{**row, "constant": 0, "twice": i % 3} for i, row in enumerate(rows(COUNT))]
    with pytest.raises(kind) as caught:
        started(config(tmp_path, **basis), Data(data))
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    assert capsys.readouterr().err.strip().splitlines()[-1] == f"basis-rl: {message}"


def test_no_rows_and_a_wrong_prompt_column_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="data are empty"):
        started(config(tmp_path), Data([]))
    made = config(tmp_path, changes={"data.prompt_key": "question"})
    with pytest.raises(ConfigError, match=r"no column 'question'.*data\.prompt_key"):
        started(made, Data(rows(COUNT), prompt_key="question"))


def test_a_data_set_that_makes_its_own_prompts_is_read_by_its_items(tmp_path: Path) -> None:
    data = Data(rows(COUNT), wraps=True)
    with pytest.raises(PassRatesError, match="of other prompts"):
        started(config(tmp_path), data)
    keys = [prompt_key(data[n]["raw_prompt"]) for n in range(COUNT)]
    assert started(config(tmp_path, keys), data)._basis_run is not None


def test_the_start_says_how_many_rows_an_estimate_sees(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    separate = {
        "trainer.v1.trainer_mode": "separate_async",
        "trainer.v1.separate_async.parameter_sync_step": 3,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 2,
    }
    with pytest.warns(UserWarning, match="2 rollouts"):
        started(config(tmp_path, changes=separate))
    assert "an estimate sees 2 rollouts" in capsys.readouterr().err


def test_fewer_prompts_than_a_batch_stop_the_job(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.train_batch_size=5 or less"):
        started(config(tmp_path), Data(rows(5)))


# Checkpoints and the record


def test_the_state_is_saved_before_verl_names_the_checkpoint_and_read_again(
    tmp_path: Path, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    made = config(tmp_path, **PREVIOUS)
    trainer = started(made)
    names = [f"u{n}_0_0" for n in range(COUNT)]
    fill(queue, names, list(range(COUNT)))
    step(trainer, queue, names, [tag()] * COUNT, REWARDS, full_mask(COUNT))
    trainer._save_checkpoint()
    assert trainer.log == ["latest written after basis_state.json"]
    state = trainer._basis_run.estimator.state_dict()
    again = started(made)
    assert again._basis_run.estimator.state_dict() != state
    again._load_checkpoint()
    assert again._basis_run.estimator.state_dict() == state
    named = config(
        tmp_path,
        **PREVIOUS,
        changes={
            "trainer.resume_mode": "resume_path",
            "trainer.resume_from_path": str(tmp_path / "run" / "global_step_5"),
            "trainer.default_local_dir": str(tmp_path / "elsewhere"),
        },
    )
    third = started(named)
    third._load_checkpoint()
    assert third._basis_run.estimator.state_dict() == state
    assert "goes on from" in capsys.readouterr().err


def test_a_checkpoint_without_the_state_is_refused(tmp_path: Path) -> None:
    trainer = started(config(tmp_path, **PREVIOUS))
    with pytest.raises(StateError, match=r"basis_state.*adv_estimator"):
        trainer._load_checkpoint()
    trainer.global_steps = 0  # from scratch
    trainer._load_checkpoint()


def test_a_damaged_state_and_another_estimators_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = started(config(tmp_path, **PREVIOUS))
    trainer._save_checkpoint()
    other = started(config(tmp_path, estimator="basis-online"))
    with pytest.raises(StateError, match=r"global_step_5.*'basis'.*resume with the same"):
        other._load_checkpoint()
    file = tmp_path / "run" / "global_step_5" / "basis_state.json"
    for content in (file.read_text()[:30], '{"estimator": "basis"}'):
        file.write_text(content)
        capsys.readouterr()
        with pytest.raises(StateError, match=r"global_step_5.*earlier checkpoint"):
            trainer._load_checkpoint()
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_checkpoint_or_a_record_that_cannot_be_written_is_named(
    tmp_path: Path, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = started(config(tmp_path, **PREVIOUS))
    names = [f"u{n}_0_0" for n in range(COUNT)]
    fill(queue, names, list(range(COUNT)))
    capsys.readouterr()
    with no_space(), pytest.raises(BasisError, match=r"basis_state\.json: File too large"):
        trainer._save_checkpoint()
    assert not list((tmp_path / "run" / "global_step_5").iterdir())
    with no_space(), pytest.raises(BasisError, match=r"rewards\.jsonl: .*record_rewards=false"):
        step(trainer, queue, names, [tag()] * COUNT, REWARDS, full_mask(COUNT))
    (tmp_path / "run" / "global_step_5").rmdir()
    (tmp_path / "run" / "global_step_5").write_text("")
    with pytest.raises(BasisError, match=r"cannot write .*global_step_5.*another folder"):
        trainer._save_checkpoint()
    assert len(capsys.readouterr().err.splitlines()) == 3
    assert trainer.log == []  # verl did not name it its latest


@contextlib.contextmanager
def no_space() -> Iterator[None]:
    """No file can grow."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_the_rewards_are_written_down_as_seen(tmp_path: Path, queue: Queue) -> None:
    trainer = started(config(tmp_path))
    names = [f"u{n}_0_0" for n in range(COUNT)]
    fill(queue, names, list(range(COUNT)))
    step(trainer, queue, names, [tag()] * COUNT, REWARDS, full_mask(COUNT))
    lines = (tmp_path / "run" / "basis_rewards.jsonl").read_text().splitlines()
    entry = json.loads(lines[1])
    assert entry["rewards"] == REWARDS
    assert (entry["step"], entry["policy_step"]) == (4, 4)
    assert json.loads(lines[0])["run"]["model"] == "org/model"
    quiet = started(config(tmp_path, record_rewards=False))
    quiet.global_steps = 6
    step(quiet, queue, names, [tag()] * COUNT, REWARDS, full_mask(COUNT))
    assert len((tmp_path / "run" / "basis_rewards.jsonl").read_text().splitlines()) == 2


def test_batches_without_any_advantage_stop_the_run(tmp_path: Path, queue: Queue) -> None:
    made = config(tmp_path, max_zero_batches=2)
    made["algorithm"]["adv_estimator"] = "batch-mean"
    made["algorithm"]["basis"].pop("pass_rates")
    trainer = started(made)
    names = [f"u{n}_0_0" for n in range(3)]
    fill(queue, names, [0, 1, 2])
    step(trainer, queue, names, [tag()] * 3, [0.0] * 3, full_mask(3))
    with pytest.raises(BasisError, match="max_zero_batches=2"):
        step(trainer, queue, names, [tag()] * 3, [0.0] * 3, full_mask(3))


# The legacy trainer


def test_the_legacy_trainer_finds_a_rows_prompt_by_verls_name(tmp_path: Path) -> None:
    made = config(tmp_path, changes={"trainer.use_v1": False})
    trainer = fresh_legacy()(made, Data(rows(COUNT)))
    uids = np.array(["a", "b", "c"], dtype=object)
    prompts = np.empty(3, dtype=object)
    prompts[:] = [prompt(n) for n in range(3)]
    trainer._get_gen_batch(LegacyBatch({"uid": uids, "raw_prompt": prompts}))
    index = np.array(["c", "a", "a", "b"], dtype=object)
    rewards = [1.0, 0.0, 1.0, float("nan")]
    mask = full_mask(4)
    trainer._basis_run.estimator.max_unverified = 0.5
    tokens, _ = estimated(token_rewards(rewards), mask, {}, index)
    keys = [prompt_key(prompt(n)) for n in range(COUNT)]
    batch = RewardBatch([keys[2], keys[0], keys[0], keys[1]], rewards)
    expected = estimators.create("basis", table(keys), max_unverified=0.5).estimate(batch)
    np.testing.assert_allclose(tokens[:, 0].numpy(), expected.advantages, atol=1e-6)
    assert mask.sum(dim=1).tolist() == [TOKENS, TOKENS, TOKENS, 0]
    output = trainer._update_actor(LegacyBatch({}))
    assert output.meta_info["metrics"]["basis/rows"] == 4
    assert trainer._update_actor(LegacyBatch({})).meta_info["metrics"] == {}
    with pytest.raises(BasisError, match="not of this step's batch"):
        estimated(token_rewards([1.0]), full_mask(1), {}, np.array(["other"], dtype=object))


# Metrics


@pytest.mark.parametrize("name", sorted(set(estimators.names()) - {"critic", "remax"}))
def test_no_metric_has_a_name_that_verl_would_add_up(name: str, tmp_path: Path) -> None:
    keys = [prompt_key(prompt(n // 2)) for n in range(2 * COUNT)]
    pass_rates = table(sorted(set(keys)))
    try:
        estimator = estimators.create(name, pass_rates)
        estimate = estimator.estimate(
            RewardBatch(
                keys,
                REWARDS * 2,
                sources=["a"] * len(keys),
                lengths=np.ones(len(keys)),
                divergences=np.ones(len(keys)),
                step=1,
            )
        )
    except (BasisError, TypeError):
        pytest.skip("needs more than this batch has")
    for metric in [*estimate.metrics, "rows", "time_ms", "fetch_ms", "coverage"]:
        shown = f"basis/{metric}".lower()
        assert not any(part in shown for part in ("max", "min", "sum", "total")), metric
        assert not shown.endswith(("/lr", "_lr"))


def test_a_folder_that_cannot_be_made_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    made = config(tmp_path, changes={"trainer.default_local_dir": str(tmp_path / "file" / "run")})
    with pytest.raises(BasisError, match=r"trainer\.default_local_dir: cannot write"):
        started(made)
