"""The stock trainer in each of its modes, and in another version, with and without basis-rl."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trainer_modes
from assets import Assets
from jobs import Job, run_job

ROWS = 8  # a step
STEPS = 3
ENDLESS = ["algorithm.adv_estimator=grpo", "trainer.total_training_steps=100000"]
OTHERS = [place for place in trainer_modes.RUN if place[0] != trainer_modes.INSTALLED]


def overrides(assets: Assets) -> list[str]:
    """What switches basis-rl on."""
    return [
        "algorithm.adv_estimator=basis",
        f"+algorithm.basis.pass_rates={assets.pass_rates}",
        "+algorithm.basis.prompt_key_column=prompt_id",
        "actor_rollout_ref.model.external_lib=basis_rl.verl",
    ]


def check_rows(job: Job, rows: int) -> None:
    """Every step was logged, and says how many rows an estimate saw."""
    assert [step["step"] for step in job.metrics] == list(range(1, STEPS + 1))
    assert [step["basis/rows"] for step in job.metrics] == [rows] * STEPS
    assert len(job.rollouts) == ROWS * STEPS


def test_stock_job(assets, tmp_path):
    """The harness itself: verl's own estimator, without basis-rl."""
    settings = ["algorithm.adv_estimator=grpo", "actor_rollout_ref.rollout.n=2"]
    job = run_job(tmp_path / "job", settings, assets=assets).check()
    assert [step["step"] for step in job.metrics] == [1, 2, 3]
    assert len(job.rollouts) == 2 * ROWS * STEPS
    assert {row["score"] for row in job.rollouts} == {0.0, 1.0}
    assert any(step["actor/grad_norm"] > 0 for step in job.metrics)
    assert not any(name.startswith("basis/") for step in job.metrics for name in step)
    assert processes_in(tmp_path) == []


def processes_in(folder: Path) -> list[str]:
    """Processes that work in a folder, by their number."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if Path(os.readlink(process / "cwd")).is_relative_to(folder):
                found.append(process.name)
        except OSError:
            continue
    return found


def test_cannot_hang(assets, tmp_path):
    """A job past its time limit is stopped, with all of its processes."""
    job = run_job(tmp_path / "job", ENDLESS, assets=assets, timeout=15)
    assert job.returncode is None
    assert job.seconds < 30
    assert processes_in(tmp_path) == []
    with pytest.raises(AssertionError, match="stopped at the time limit"):
        job.check()


def run_forever(folder: Path, assets: Assets) -> None:
    """Run a job that does not end, for the next test."""
    run_job(folder, ENDLESS, assets=assets)


@pytest.mark.slow
def test_ends_with_the_tests(assets, tmp_path):
    """Where the tests themselves are killed, no process of a job is left."""
    process = multiprocessing.get_context("spawn").Process(
        target=run_forever, args=(tmp_path / "job", assets)
    )
    process.start()
    wait_until(lambda: len(processes_in(tmp_path)) > 5)
    process.kill()
    # A process of Ray that was just being started gives up after 60 s without the others.
    wait_until(lambda: not processes_in(tmp_path), patience=120.0)


def wait_until(true: Callable[[], bool], patience: float = 60.0) -> None:
    end = time.monotonic() + patience
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("sync", marks=pytest.mark.slow),  # other tests run it
        "colocate_async",
        "separate_async",
        pytest.param("legacy", marks=pytest.mark.slow),
    ],
)
def test_mode(mode, assets, tmp_path):
    assert (trainer_modes.INSTALLED, mode) in trainer_modes.RUN
    settings = [*overrides(assets), *trainer_modes.MODES[mode]]
    job = run_job(tmp_path / "job", settings, assets=assets).check()
    # separate_async estimates each of its mini-batches, two a step here.
    check_rows(job, ROWS // 2 if mode == "separate_async" else ROWS)


@pytest.mark.slow
def test_fully_async(assets, tmp_path):
    """Its program, to the end, and from its last checkpoint on."""
    mode = "fully async"
    settings = [*overrides(assets), *trainer_modes.MODES[mode], "trainer.save_freq=1"]
    folder, program = tmp_path / "job", trainer_modes.PROGRAMS[mode]
    job = run_job(folder, settings, assets=assets, program=program).check()
    mini_batch = ROWS // 2  # of ppo_mini_batch_size prompts
    assert "an estimate sees 4 rollouts" in "".join(job.lines("basis-rl: estimator 'basis'"))
    assert estimates(job) == [(version, mini_batch) for version in (1, 2, 3)]
    assert len(job.rollouts) == ROWS * STEPS
    settings.append("rollout.total_rollout_steps=48")
    again = run_job(folder, settings, assets=assets, program=program).check()
    assert again.lines(f"goes on from {job.checkpoints / 'global_step_3'}")
    assert estimates(again) == [(version, mini_batch) for version in (4, 5, 6)]
    assert (job.checkpoints / "global_step_6" / "basis_state.json").exists()


def estimates(job: Job) -> list[tuple[int, float]]:
    """Step and rows where verl logged an estimate; it logs other things alone too."""
    return [(row["step"], row["basis/rows"]) for row in job.metrics if "basis/rows" in row]


@pytest.mark.slow
def test_one_step_off(assets, tmp_path):
    mode = "one step off"
    settings = [*overrides(assets), *trainer_modes.MODES[mode]]
    program = trainer_modes.PROGRAMS[mode]
    job = run_job(tmp_path / "job", settings, assets=assets, program=program).check()
    assert estimates(job) == [(step, ROWS) for step in (1, 2, 3)]


@pytest.mark.slow
@pytest.mark.parametrize(("version", "mode"), OTHERS)
def test_other_version(version, mode, assets, tmp_path):
    settings = [*overrides(assets), *trainer_modes.MODES[mode]]
    folder = installed(version)
    job = run_job(tmp_path / "job", settings, assets=assets, paths=[folder]).check()
    check_rows(job, ROWS // 2 if mode == "separate_async" else ROWS)


@pytest.mark.parametrize("version", trainer_modes.REFUSED)
def test_refused_version(version):
    command = [sys.executable, "-m", "basis_rl", "verl", "check", "algorithm.adv_estimator=basis"]
    environment = os.environ | {"PYTHONPATH": str(installed(version))}
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 1
    assert f"verl {version} is installed, and basis-rl works with verl 0.9" in result.stderr


@pytest.mark.slow
def test_cold_start(assets, tmp_path):
    """Processes that import everything themselves, as a user's do, give the same numbers."""
    warm = run_job(tmp_path / "warm", overrides(assets), assets=assets).check()
    cold = run_job(tmp_path / "cold", overrides(assets), assets=assets, warm=False).check()
    assert texts(cold) == texts(warm) != []
    for name in ("critic/score/mean", "actor/pg_loss", "basis/tau"):
        assert [step[name] for step in cold.metrics] == [step[name] for step in warm.metrics]


def texts(job: Job) -> list[tuple]:
    """What was sampled, in an order that does not depend on verl's random names."""
    return sorted((row["step"], row["input"], row["output"], row["score"]) for row in job.rollouts)


def installed(version: str) -> Path:
    folder = trainer_modes.other_version(version)
    if not folder.exists():
        pytest.skip(f"{folder} is missing: `make test-verl` sets it up")
    return folder
