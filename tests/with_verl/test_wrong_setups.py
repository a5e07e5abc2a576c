"""Runs that are set up wrongly stop in the job before anything is generated, with one line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from assets import Assets
from jobs import base_overrides, job_environment, name, run_job
from wrong_setups import SETUPS, Setup, changes, old_verl, right

IN_PROCESS = [setup for setup in SETUPS if setup.version is None]
BY_NAME = {setup.name: setup for setup in SETUPS}


@pytest.fixture(scope="module")
def stopped(assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What stops the stock trainer, by set-up: one process, without Ray and without a model."""
    folder = tmp_path_factory.mktemp("wrong")
    base = base_overrides(folder, assets, 1, folder)
    # The guard looks at a process's first right settings only.
    ordered = sorted(IN_PROCESS, key=lambda each: not each.by_settings)
    runs = {each.name: changes(each, folder / each.name, assets) for each in ordered}
    runs["right"] = list(right(assets).values())
    given = [
        list((base | {name(override): override for override in run}).values())
        for run in runs.values()
    ]
    program = Path(__file__).with_name("wrong_setups.py")
    done = subprocess.run(
        [sys.executable, program],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=240,
        env=job_environment(folder, [], []),
        check=False,
    )
    said = [line[8:] for line in done.stdout.splitlines() if line.startswith("STOPPED ")]
    assert len(said) == len(runs), done.stdout[-3000:] + done.stderr[-3000:]
    return dict(zip(runs, map(json.loads, said), strict=True))


def test_a_right_run_reaches_the_workers(stopped: dict[str, Any]) -> None:
    assert stopped["right"] == [["ReadyError", "ready"], True]


@pytest.mark.parametrize("setup", IN_PROCESS, ids=lambda setup: setup.name)
def test_a_wrong_run_stops_with_one_line(setup: Setup, stopped: dict[str, Any]) -> None:
    (kind, text), started = stopped[setup.name]
    assert kind in ("ConfigError", "PassRatesError", "BatchError")
    assert re.search(setup.says, text), text
    assert "\n" not in text
    assert started is not setup.by_settings


def test_the_command_itself_stops_before_ray_starts(assets: Assets, tmp_path: Path) -> None:
    setup = BY_NAME["old verl"]
    assert setup.version is not None
    paths = [old_verl(tmp_path / "old", setup.version)]
    run = changes(setup, tmp_path / "files", assets)
    # As a user starts it: a forked process would not end as Python does.
    job = run_job(tmp_path / "job", run, assets=assets, timeout=120, paths=paths, warm=False)
    assert job.returncode == 1
    assert not job.lines("ray init kwargs")
    assert re.search(f"^basis-rl: .*{setup.says}", job.log.splitlines()[-1]), job.log[-3000:]


def test_a_whole_job_stops_before_it_generates(assets: Assets, tmp_path: Path) -> None:
    setup = BY_NAME["table cut short"]
    run = changes(setup, tmp_path / "files", assets)
    job = run_job(tmp_path / "job", run, assets=assets, timeout=240)
    assert job.returncode == 1
    assert job.lines("ray init kwargs")  # verl's trainer runs in a process of Ray's
    assert any(re.search(f"basis-rl: .*{setup.says}", line) for line in job.log.splitlines())
    assert not job.metrics
    assert not job.rollouts
