"""Several records as checkpoints: their order, their names, and that each comes once."""

from __future__ import annotations

import csv
import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
from lab_records import checkpoints, trace

from basis_rl.cli import main
from basis_rl.lab.figures.paper import Settings, paper_figures
from basis_rl.lab.read import write_record
from basis_rl.lab.record import RecordError
from basis_rl.lab.stages import stages_of

SMALL = ("--repeats", "2", "--batches", "20", "--batch-size", "16", "--figure", "3a")


def test_names_of_stages_say_early_only_where_steps_rise():
    records, table = checkpoints(prompts=6)
    same = [dataclasses.replace(record, step=np.full(6, 1)) for record in records]
    assert [stage.name for stage in stages_of(records, table)] == ["early", "middle", "late"]
    assert [stage.name for stage in stages_of(same, table)] == ["c0", "c1", "c2"]


def test_falling_steps_are_refused_with_both_names():
    records, table = checkpoints(prompts=6)
    for order in ((2, 1, 0), (0, 2, 1), (1, 0, 2)):
        with pytest.raises(RecordError, match=r"c\d is of step \d and comes after c\d.*in the ord"):
            stages_of([records[i] for i in order], table)


def test_a_checkpoint_that_comes_twice_is_refused_by_its_rewards():
    records, table = checkpoints(prompts=6)
    copy = dataclasses.replace(records[0], name="copy")
    with pytest.raises(RecordError, match="copy holds the same steps and rewards as c0"):
        stages_of([records[0], copy, records[2]], table)
    # Where every rollout fails, two checkpoints are alike but for their steps.
    zeros = [dataclasses.replace(r, rewards=np.zeros_like(r.rewards)) for r in records]
    assert len(stages_of(zeros, table)) == 3


def test_equal_names_are_refused_before_numbers_are_mixed():
    records, table = checkpoints(prompts=20)
    alike = [dataclasses.replace(record, name="record") for record in records[:2]]
    with pytest.raises(RecordError, match="2 records are called 'record'"):
        stages_of(alike, table)
    stages = [dataclasses.replace(s, name="record") for s in stages_of(records, table)]
    with pytest.raises(RecordError, match="3 stages are called 'record'"):
        paper_figures(stages, figures=["3a"], settings=Settings(2, 2, 16))


def folders(path: Path, names: tuple[str, ...]) -> list[str]:
    """Records of the same file name in folders of their own, and their table."""
    records, table = checkpoints(prompts=20)
    for record, name in zip(records, names, strict=False):
        (path / name).mkdir(parents=True)
        write_record(dataclasses.replace(record, pass_rates=table), path / name / "record.parquet")
    return [str(path / name / "record.parquet") for name in names]


def refused(capsys, *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(["lab", "figures", *SMALL, *arguments])
    assert end.value.code == 2
    return capsys.readouterr().err


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path, capsys):
    files = folders(tmp_path, ("a", "b"))
    with pytest.raises(SystemExit) as end:
        main(["lab", "figures", *files, "--out", str(tmp_path / "both"), *SMALL])
    assert end.value.code == 0, capsys.readouterr().err
    with (tmp_path / "both" / "figure-3a.csv").open() as lines:
        both = list(csv.DictReader(lines))
    assert list(dict.fromkeys(row["stage"] for row in both)) == ["a/record", "b/record"]
    # A stage has the numbers that it has alone.
    with pytest.raises(SystemExit):
        main(["lab", "figures", files[1], "--out", str(tmp_path / "only"), *SMALL])
    with (tmp_path / "only" / "figure-3a.csv").open() as lines:
        alone = [row["mse"] for row in csv.DictReader(lines)]
    assert [row["mse"] for row in both if row["stage"] == "b/record"] == alone
    # A part's share of the error is of its own stage.
    with (tmp_path / "both" / "figure-3a-parts.csv").open() as lines:
        shares = [row for row in csv.DictReader(lines) if row["estimator"] == "basis-paper"]
    assert sum(float(row["error"] or 0) for row in shares) == pytest.approx(2.0, abs=1e-4)


def test_the_command_refuses_a_file_named_twice_and_a_wrong_order(tmp_path, capsys):
    early, middle, late = folders(tmp_path, ("early", "middle", "late"))
    out = ("--out", str(tmp_path / "out"))
    assert "is named twice" in refused(capsys, early, early, early, *out)
    link = tmp_path / "early" / ".." / "early" / "record.parquet"
    assert "is named twice" in refused(capsys, early, str(link), late, *out)
    assert "in the order of training" in refused(capsys, late, middle, early, *out)
    shutil.copy(early, tmp_path / "copy.parquet")
    copied = refused(capsys, early, str(tmp_path / "copy.parquet"), late, *out)
    assert "same steps and rewards" in copied


def test_an_error_leaves_no_empty_folder_and_names_the_options(tmp_path, capsys):
    run = tmp_path / "run.parquet"
    write_record(trace(prompts=24, visits=10), run)
    out = tmp_path / "new" / "figures"
    error = refused(capsys, str(run), "--out", str(out))
    assert "--oracle" in error
    assert "--cache-rollouts" in error
    assert "fewer stages" not in error
    assert not (tmp_path / "new").exists()
    options = ("--oracle", "8", "--cache-rollouts", "8")
    error = refused(capsys, str(run), "--out", str(out), *options, "--batch-size", "9999")
    assert "has 24 prompts" in error
    assert "choose --batch-size 8, or 24 at most" in error
    assert not (tmp_path / "new").exists()
    # A folder that was there before stays.
    (tmp_path / "mine").mkdir()
    refused(capsys, str(run), "--out", str(tmp_path / "mine"))
    assert (tmp_path / "mine").is_dir()
