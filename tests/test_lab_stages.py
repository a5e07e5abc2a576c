from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from lab_records import checkpoints, trace
from shared_data import shared_data

from basis_rl.lab.read import read_record
from basis_rl.lab.record import RecordError, RewardRecord
from basis_rl.lab.stages import first_visits, stages_of
from basis_rl.passrates import PassRates


def rewards_of(record: RewardRecord, prompt: int, visits: slice) -> np.ndarray:
    mine = np.flatnonzero(record.prompt == prompt)[visits]
    return np.concatenate([record.of_visit(v) for v in mine])


def test_windows_are_the_first_middle_and_last_visits_after_the_cache():
    record = trace(prompts=5, visits=20)
    early, middle, late = stages_of(record)
    assert [stage.name for stage in (early, middle, late)] == ["early", "middle", "late"]
    assert early.visits == 4
    for prompt in range(5):
        # 4 visits are the cache; 16 are left, and a window has 4 of them.
        cached = rewards_of(record, prompt, slice(0, 4))
        assert early.pass_rates.successes[prompt] == cached.sum()
        assert early.pass_rates.n[prompt] == 32
        for stage, first in ((early, 4), (middle, 10), (late, 16)):
            rewards = rewards_of(record, prompt, slice(first, first + 4))
            shown, oracle = stage.shown[prompt], stage.oracle[prompt]
            assert len(shown) == 8
            assert shown.sum() + 24 * oracle == pytest.approx(rewards.sum())
            assert stage.oracle_variance[prompt] == pytest.approx(oracle * (1 - oracle) / 23)
            assert stage.halves[:, prompt].mean() == pytest.approx(oracle)


def test_history_is_what_lies_between_the_cache_and_the_stage():
    record = trace(prompts=5, visits=20)
    early, middle, late = stages_of(record)
    assert len(early.history) == 0
    steps = record.step[middle.history]
    assert set(steps.tolist()) == set(range(5, 11))
    assert (np.diff(steps) >= 0).all()
    assert len(late.history) == 5 * 12


def test_a_table_leaves_all_visits_to_the_stages():
    record = trace(prompts=5, visits=12)
    table, _ = first_visits(trace(prompts=5, visits=12, seed=1), 32)
    early, _, late = stages_of(record, table)
    assert early.pass_rates is table
    total = rewards_of(record, 0, slice(0, 4)).sum()
    assert early.shown[0].sum() + 24 * early.oracle[0] == pytest.approx(total)
    assert set(record.step[late.history].tolist()) == set(range(1, 9))


def test_first_visits_stop_as_soon_as_there_are_rollouts_enough():
    record = trace(prompts=3, visits=6, rollouts=8)
    table, rest = first_visits(record, 17)
    assert table.n.tolist() == [24, 24, 24]
    assert record.step[rest].min() == 4
    everything, none = first_visits(record, 1000)
    assert everything.n.tolist() == [48, 48, 48]
    assert len(none) == 0


def test_prompts_with_too_few_visits_are_left_out():
    record = trace(prompts=4, visits=20)
    kept = np.flatnonzero((record.prompt != 2) | (record.step <= 8))
    short = dataclasses.replace(
        record,
        prompt=record.prompt[kept],
        step=record.step[kept],
        starts=np.arange(len(kept) + 1) * 8,
        rewards=np.concatenate([record.of_visit(v) for v in kept]),
    )
    assert [stage.keys for stage in stages_of(short)] == [["p0", "p1", "p3"]] * 3


def test_drift_is_the_variance_between_pooled_visits_without_the_sampling():
    rng = np.random.default_rng(0)
    still, moving = [], []
    for moves, found in ((0.0, still), (0.3, moving)):
        values = 0.5 + moves * rng.choice([-1, 1], size=(400, 4))
        rewards = (rng.random((400, 4, 8)) < values[..., None]).astype(float)
        record = RewardRecord(
            [f"p{i}" for i in range(400)],
            np.tile(np.arange(400), 4),
            np.repeat(np.arange(4), 400),
            np.arange(1601) * 8,
            rewards.transpose(1, 0, 2).ravel(),
        )
        table = PassRates.from_counts(record.keys, np.full(400, 2), 4)
        (stage,) = stages_of(record, table, stages=("all",))
        found.append(stage.drift)
    assert still[0] == pytest.approx(0.0, abs=0.004)
    assert moving[0] == pytest.approx(0.09, abs=0.012)


def test_checkpoints_show_the_first_rollouts_and_keep_the_others_as_oracle():
    records, table = checkpoints(prompts=6)
    stages = stages_of(records, table)
    assert [stage.name for stage in stages] == ["early", "middle", "late"]
    for stage, record in zip(stages, records, strict=True):
        for prompt in range(6):
            rewards = record.of_visit(prompt)
            assert (stage.shown[prompt] == rewards[:8]).all()
            assert stage.oracle[prompt] == pytest.approx(rewards[8:].mean())
        assert stage.visits == 1
        assert stage.history is None


def test_checkpoints_of_another_number_have_their_records_names():
    records, table = checkpoints(prompts=6)
    assert [stage.name for stage in stages_of(records[:2], table)] == ["c0", "c1"]
    (only,) = stages_of(records[:1], table)
    assert only.name == "c0"


def test_checkpoints_keep_the_prompts_that_all_have_in_one_order():
    records, table = checkpoints(prompts=6)
    first = records[0]
    fewer = RewardRecord(
        ["p4", "p1", "p3"],
        np.arange(3),
        np.zeros(3, dtype=int),
        np.arange(4) * 72,
        np.concatenate([first.of_visit(v) for v in (4, 1, 3)]),
        name="fewer",
    )
    stages = stages_of([fewer, *records[1:]], table)
    assert [stage.keys for stage in stages] == [["p4", "p1", "p3"]] * 3
    assert stages[0].oracle[0] == pytest.approx(first.of_visit(4)[8:].mean())


def test_what_cannot_be_staged_is_refused_with_the_remedy():
    record = trace(prompts=4, visits=10)
    with pytest.raises(
        RecordError, match=r"0 of 4 prompts.*\(--oracle\) or cache \(--cache-rollouts\)"
    ):
        stages_of(record)
    records, table = checkpoints(prompts=6)
    with pytest.raises(RecordError, match="no pass rates"):
        stages_of(records)
    few = PassRates.from_counts(["p0", "p1"], [1, 1], 4)
    with pytest.raises(RecordError, match=r"4 of 6 prompts have no pass rate.*'p2'"):
        stages_of(records, few)
    with pytest.raises(RecordError, match=r"the most is 72.*--oracle"):
        stages_of(records, table, oracle=100)
    with pytest.raises(RecordError, match="comes twice"):
        stages_of([records[0], record], table)
    other = dataclasses.replace(records[1], keys=[f"q{i}" for i in range(6)])
    with pytest.raises(RecordError, match="share 0 prompts"):
        stages_of([records[0], other], table)
    with pytest.raises(RecordError, match="no record"):
        stages_of([])
    with pytest.raises(RecordError, match="the least are"):
        stages_of(record, oracle=3)


def test_stages_of_the_real_trace():
    record = read_record(shared_data("traces/qwen25math15b_grpo_trace.jsonl"))
    stages = stages_of(record)
    assert [len(stage.keys) for stage in stages] == [605] * 3
    # A policy that learns; pooling four visits hides next to nothing.
    means = [float(stage.oracle.mean()) for stage in stages]
    assert means == sorted(means)
    assert all(abs(stage.drift) < 0.1 * stage.oracle.var() for stage in stages)
