"""The replay from a step on, prompts with one visit, and records that are named twice."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner
from test_lab_replay import numbered, seen_by, spies

from basis_rl import PassRates
from basis_rl.cli.record_options import left_out_lines
from basis_rl.lab.contenders import contenders
from basis_rl.lab.read import read_record
from basis_rl.lab.record import RecordError
from basis_rl.lab.replay import replay
from basis_rl.lab.replaying.tables import csv_files, mse_lines, note_lines
from basis_rl.lab.simulate import simulate
from basis_rl.passrates.importers.record import Notes


def test_the_visits_are_the_same_whatever_the_cache():
    record = simulate(prompts=30, visits=9, rollouts=6, cache=0, batch_size=10, seed=0).record
    step = int(np.unique(record.step)[12])
    chosen = contenders(["batch-mean"])
    found = [replay(record, chosen, start=step, cache_rollouts=n, seeds=2) for n in (24, 5, 0)]
    assert found[0].step.min() == step
    for other in found[1:]:
        np.testing.assert_array_equal(other.visit, found[0].visit)
        np.testing.assert_array_equal(other.errors, found[0].errors)


@pytest.mark.parametrize("rollouts", [7, 18, 50])
def test_the_cache_is_a_random_part_of_what_is_before_the_start(rollouts):
    record = numbered([[6] * 5] * 12)
    spy, made = spies()
    found = replay(record, [spy], start=3, cache_rollouts=rollouts, seeds=6)
    assert set(found.step.tolist()) == {3, 4}
    before = [
        set(record.rewards[np.repeat(record.prompt == p, 6)][:18].tolist()) for p in range(12)
    ]
    parts = []
    for seed in range(6):
        table = made[seed].table
        assert table.n.tolist() == [min(rollouts, 18)] * 12
        values = table.reward_values.tolist()
        parts.append(tuple(values))
        for row, key in enumerate(table.keys):
            low, high = table.reward_offsets[row : row + 2]
            assert set(values[low:high]) <= before[record.keys.index(key)]
            assert len(set(values[low:high])) == high - low
        # Neither the cache nor anything before the start is shown.
        assert not seen_by(made[seed]) & set().union(*before)
    assert parts[0] == parts[1]
    assert len(set(parts)) == 3
    if rollouts == 7:
        # All visits before the start are drawn from, evenly.
        visits = np.array([[v // 72 for v in part] for part in parts[::2]]).ravel()
        assert np.bincount(visits.astype(int), minlength=3).min() > 60


def test_without_a_cache_nothing_is_seen_before_the_start():
    record = numbered([[6] * 5] * 4)
    spy, made = spies()
    found = replay(record, [spy], start=3, cache_rollouts=0, seeds=1)
    assert made[0].table is None
    assert min(seen_by(made[0])) >= 3 * 24
    own = PassRates.from_rewards(record.keys, [[0.5]] * 4)
    spy, made = spies()
    found = replay(dataclasses.replace(record, pass_rates=own), [spy], start=3, seeds=1)
    assert made[0].table is own
    assert set(found.step.tolist()) == {3, 4}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": 9}, "starts at step 9, and the last step is 4"),
        ({"start": 0}, "no step lies before step 0 for a cache, the first is 0"),
        ({"start": 4, "rollouts": 5}, "the largest visit has 6 rollouts, and a replay needs 5"),
    ],
)
def test_a_start_that_leaves_nothing_is_told(options, message):
    with pytest.raises(RecordError, match=message):
        replay(numbered([[6] * 5] * 4), contenders(["batch-mean"]), **options)


def single_visits(width: int, seed: int, prompts: int = 400):
    rng = np.random.default_rng(seed)
    values = rng.beta(0.8, 0.8, prompts)
    rewards = (rng.random((prompts, width)) < values[:, None]).astype(float)
    return read_record(rewards), values


def test_bins_of_prompts_with_one_visit_are_unbiased():
    """Some of their rollouts sort the rows, and no oracle has them."""
    less = []
    for seed in range(30):
        record, values = single_visits(14, seed)
        found = replay(
            record, contenders(["batch-mean", "basis-robust"]), cache_rollouts=4, seeds=2
        )
        truth = (found.baselines - values[found.visit]) ** 2
        groups = [*found.by_difficulty(3).rows, *found.by_heterogeneity(3).rows]
        less.append(
            [
                (found.errors[place, rows] - truth[place, rows]).sum() / len(found)
                for rows in groups
                for place in range(2)
            ]
        )
    values = np.array(less)
    standard = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    assert (np.abs(values.mean(axis=0)) < 3.5 * standard).all()


@pytest.mark.parametrize("width", [7, 14])
def test_the_share_of_the_own_reward_is_right_for_prompts_with_one_visit(width):
    record, _ = single_visits(width, 0, prompts=1500)
    found = replay(record, contenders(["basis-robust"]), cache_rollouts=4, seeds=4)
    share = found.own_reward("basis-robust")
    assert abs(share.value) < 0.06
    assert share.error < 0.06
    exact = np.mean(found.reward_variance)
    assert exact == pytest.approx(record.rewards.var() - 0.25 / 2.6, rel=0.15)


def test_visits_too_small_to_be_sorted_are_in_no_group():
    record, _ = single_visits(7, 0, prompts=50)
    found = replay(record, contenders(["batch-mean"]), cache_rollouts=4, seeds=2)
    assert np.isnan(found.level).all()
    assert found.by_difficulty().rows == found.by_heterogeneity().rows == []
    assert any("50 visits are in no group" in line for line in note_lines(found))
    assert len(mse_lines(found, "difficulty")) == 2
    assert "value" not in csv_files(found, "batch-mean")["mse.csv"]


def test_a_record_that_is_named_twice_is_refused(tmp_path):
    record = simulate(prompts=5, visits=3, rollouts=4, seed=0).record
    rows = [
        f'{{"key": "{record.keys[p]}", "step": {s}, "rewards": {record.of_visit(v).tolist()}}}'
        for v, (p, s) in enumerate(zip(record.prompt.tolist(), record.step.tolist(), strict=True))
    ]
    path, copy = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    path.write_text("\n".join(rows))
    with pytest.raises(RecordError, match="is named twice"):
        read_record([path, tmp_path / "." / "a.jsonl"])
    (tmp_path / "link.jsonl").symlink_to(path)
    with pytest.raises(RecordError, match="is named twice"):
        read_record([path, tmp_path / "link.jsonl"])
    shutil.copy(path, copy)
    with pytest.raises(RecordError, match=r"b\.jsonl holds the same steps and rewards as a\.jsonl"):
        read_record([path, copy])
    matrix = np.zeros((3, 4))
    assert len(read_record([matrix, matrix])) == 6  # two steps in which all fail


def test_an_interrupt_says_that_nothing_was_written(tmp_path):
    record = tmp_path / "trace.jsonl"
    counts = np.random.default_rng(0).integers(0, 9, (300, 60)).tolist()
    record.write_text(
        "\n".join(
            f'{{"prompt_id": "p{i}", "rollouts_per_visit": 8, "successes_by_visit": {row}}}'
            for i, row in enumerate(counts)
        )
    )
    out = tmp_path / "out"
    running = subprocess.Popen(
        [
            *(sys.executable, "-m", "basis_rl", "lab", "replay", str(record)),
            *("--seeds", "500", "--out", str(out)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 30
    while not out.exists() and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(2.0)
    running.send_signal(signal.SIGINT)
    text, errors = running.communicate(timeout=30)
    assert text == ""
    assert errors.strip() == "basis-rl: stopped while replaying: nothing was written"
    assert os.listdir(out) == []


def test_the_order_of_rollouts_is_no_stream_that_made_the_rewards():
    """Records made with plain seeds are not sorted by their own random numbers."""
    for seed in range(3):
        rewards = (np.random.default_rng(seed).random((20, 400)) < 0.5).astype(float)
        found = replay(
            read_record(rewards),
            contenders(["batch-mean"]),
            rollouts=100,
            seeds=6,
            cache_rollouts=9,
        )
        assert found.mse("batch-mean").value < 0.01


def test_one_rollout_a_visit_is_for_lab_recommend():
    with pytest.raises(RecordError, match=r"has 1 rollout, .*`basis-rl lab recommend` takes"):
        replay(numbered([[1] * 3] * 4))
    with pytest.raises(RecordError) as raised:
        replay(numbered([[4] * 3] * 4), rollouts=3, cache_rollouts=0)
    assert "recommend" not in str(raised.value)  # as hard up as the replay at so many


@pytest.mark.parametrize(("counts", "size"), [([16], 8), ([12], 8), ([5, 5, 5], 8), ([3], None)])
def test_a_cache_that_is_too_large_comes_with_one_that_is_not(counts, size):
    record = numbered([counts] * 20)
    wanted = "none" if size is None else str(size)
    number = 0 if size is None else size
    with pytest.raises(RecordError, match=rf"a cache of {wanted} \(--cache {number}\)"):
        replay(record, cache_rollouts=32)
    found = replay(record, contenders(["batch-mean"]), cache_rollouts=number, seeds=1)
    assert len(np.unique(found.prompt)) == 20
    with pytest.raises(RecordError, match="none"):
        replay(numbered([[3]] * 4), cache_rollouts=1)


def test_help_says_that_an_estimators_name_is_all_its_presets():
    from basis_rl.cli.lab_recommend import recommend
    from basis_rl.cli.lab_replay import replay as command

    for each in (command, recommend):
        shown = " ".join(CliRunner().invoke(each, ["--help"]).output.split())
        assert "name (basis) stands for all its presets" in shown
    presets = {each.name for each in contenders(["basis"])}
    assert {"basis-robust", "basis-paper"} <= presets


def test_what_was_left_out_is_counted_in_words():
    notes = Notes()
    notes.dropped["without a verdict"] += 1
    notes.dropped["of another filter"] += 2
    assert left_out_lines(notes) == [
        "left out 1 rollout without a verdict",
        "left out 2 rollouts of another filter",
    ]
