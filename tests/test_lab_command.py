"""`basis-rl lab replay`: the table, the files, the errors in one line."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from basis_rl.cli import main
from basis_rl.lab.read import write_record
from basis_rl.lab.simulate import simulate


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    rates = rng.beta(0.8, 0.8, size=60)
    with path.open("w") as stream:
        for key, rate in enumerate(rates):
            counts = rng.binomial(8, rate, size=9).tolist()
            row = {"prompt_id": f"p{key}", "rollouts_per_visit": 8, "successes_by_visit": counts}
            stream.write(json.dumps(row) + "\n")
    return path


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["lab", "replay", *map(str, arguments)])
    told = capsys.readouterr()
    return int(stopped.value.code or 0), told.out, told.err


def test_the_table_and_the_files(trace, tmp_path, capsys):
    out = tmp_path / "new" / "folder"
    code, text, errors = run(
        capsys, trace, "--cache", 16, "--batch-size", 20, "--seeds", 2, "--out", out
    )
    assert code == 0, errors
    assert "60 prompts, 420 visits of steps 3-9, batches of 20" in text
    assert "BASIS, robust" in text
    assert "left out remax: the record has no greedy_rewards" in text
    assert max(map(len, text.split("left out")[0].splitlines())) <= 100
    assert f"into {out}" in errors
    with (out / "mse.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    of_robust = [row for row in rows if row["contender"] == "basis-robust"]
    assert {row["by"] for row in of_robust} == {"step", "heterogeneity", "value", "all"}
    whole = next(row for row in of_robust if row["by"] == "all")
    assert float(whole["low"]) < float(whole["mse"]) < float(whole["high"])
    assert f"{float(whole['mse']):.4f}" in text
    by_step = [row for row in of_robust if row["by"] == "step"]
    weighted = sum(float(row["mse"]) * int(row["rows"]) for row in by_step)
    assert weighted / int(whole["rows"]) == pytest.approx(float(whole["mse"]))
    with (out / "measures.csv").open() as stream:
        measures = {row["contender"]: row for row in csv.DictReader(stream)}
    assert float(measures["group-mean-4"]["own_reward"]) == pytest.approx(0.25, abs=0.1)
    assert measures["group-mean-24"]["shown"] == "0"
    assert measures["group-mean-24"]["extreme"] == ""


@pytest.mark.parametrize("by", ["heterogeneity", "difficulty"])
def test_groups_and_chosen_estimators(trace, capsys, by):
    code, text, _ = run(
        capsys, trace, "--by", by, "--estimators", "batch-mean, spo", "--seeds", 1, "--cache", 8
    )
    assert code == 0
    assert "SPO" in text
    assert "BASIS" not in text
    assert f"MSE by {'value' if by == 'difficulty' else by}" in text


def test_without_a_cache(trace, capsys):
    chosen = ("--estimators", "basis-robust,spo")
    code, text, _ = run(capsys, trace, "--cache", 0, "--seeds", 1, *chosen)
    assert code == 0
    assert "visits of steps 1-9" in text
    assert "left out basis-robust: it needs pass rates, and there is no cache" in text


def test_a_record_file_with_its_own_pass_rates(tmp_path, capsys):
    write_record(simulate(prompts=30, visits=4, rollouts=6, seed=0).record, tmp_path / "r.parquet")
    code, text, _ = run(
        capsys, tmp_path / "r.parquet", "--seeds", 1, "--estimators", "pvpo,batch-mean"
    )
    assert code == 0
    assert "30 prompts, 120 visits" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.jsonl"], "there is no file missing.jsonl"),
        (["TRACE", "--by", "moon"], "--by is 'moon'"),
        (["TRACE", "--estimators", "basis-robst"], "did you mean 'basis-robust'"),
        (
            ["TRACE", "--reference", "spo", "--estimators", "zero"],
            "--reference is 'spo', which takes no part",
        ),
        (["TRACE", "--cache", "100"], "the cache of 100 rollouts leaves at most 0"),
        (["TRACE", "--steps", "70:80"], "no rewards of steps 70 to 80"),
        (["TRACE", "--seeds", "0"], "seeds is 0"),
        (["TRACE", "--rollouts", "7"], "needs 7 to show and 2 for the oracle"),
        (["TRACE", "--pass-rates", "missing.parquet"], "missing.parquet"),
        (["TRACE", "--out", "/dev/null/x"], "/dev/null/x"),
    ],
)
def test_errors_are_one_line(trace, capsys, arguments, message):
    code, text, errors = run(capsys, *(trace if word == "TRACE" else word for word in arguments))
    assert code == 2
    assert text == ""
    assert message in errors
    assert len(errors.splitlines()) == 1


def test_the_command_ends_with_a_plain_table_where_there_is_no_terminal(trace):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "basis_rl", "lab", "replay", str(trace)),
            *("--seeds", "1", "--estimators", "batch-mean", "--cache", "8"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "\x1b" not in done.stdout + done.stderr
    assert "REINFORCE++, batch mean" in done.stdout


def test_settings_are_tuned_on_the_file_only_when_asked(trace, capsys):
    chosen = ("--estimators", "spo", "--seeds", 2, "--cache", 8)
    _, plain, _ = run(capsys, trace, *chosen)
    assert "tuned on this file" not in plain
    pytest.importorskip("basis_rl.lab.tuning")
    code, text, _ = run(capsys, trace, *chosen, "--tuned")
    assert code == 0
    rows = [line for line in text.splitlines() if line.strip().startswith("SPO")]
    assert len(rows) in (2, 4)  # in both tables; alone where nothing is better than published


def test_the_laboratory_needs_numpy_and_pyarrow_alone():
    code = """
import sys
for name in ("torch", "pandas", "transformers", "trl", "datasets", "matplotlib", "scipy"):
    sys.modules[name] = None
from basis_rl.lab.contenders import contenders
from basis_rl.lab.read import read_record
from basis_rl.lab.replay import replay
import numpy as np
record = read_record((np.random.default_rng(0).random((20, 12)) < 0.5).astype(float))
print(len(replay(record, contenders(["basis-robust"]), cache_rollouts=8, seeds=1)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "20"


def test_recorded_batches(trace, capsys):
    chosen = ("--estimators", "batch-mean", "--seeds", 1, "--cache", 8)
    code, text, _ = run(capsys, trace, *chosen, "--batches", "recorded")
    assert code == 0
    assert "batches as recorded" in text
