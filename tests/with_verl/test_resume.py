"""Three steps and three more after a restart are six, for the estimator and what it writes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from assets import Assets
from jobs import Job, run_job
from sudden_end import WHEN

from basis_rl.passrates.training_record import read_record
from basis_rl.state_files import read_state

BASIS = "+algorithm.basis"
PREVIOUS_BATCH = [
    "algorithm.adv_estimator=basis",
    f"{BASIS}.preset=paper",
    f"{BASIS}.calibration=previous-batch",
]
# Not of the estimate: the time it took.
TIMES = {"basis/time_ms", "basis/fetch_ms"}


def overrides(assets: Assets, estimator: list[str]) -> list[str]:
    return [
        *estimator,
        f"{BASIS}.pass_rates={assets.pass_rates}",
        f"{BASIS}.prompt_key_column=prompt_id",
        "actor_rollout_ref.model.external_lib=basis_rl.verl",
        "trainer.total_training_steps=6",
        "trainer.save_freq=3",
        "trainer.resume_mode=auto",
    ]


def state(folder: Path) -> dict[str, Any]:
    (file,) = folder.glob("basis_state.*")
    return dict(read_state(file))


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    return (
        bool(one == pytest.approx(other, rel=1e-9, nan_ok=True)) if _numbers(one) else one == other
    )


def _numbers(value: Any) -> bool:
    return hasattr(value, "dtype") or isinstance(value, float)


@pytest.mark.parametrize(
    "estimator",
    [PREVIOUS_BATCH, ["algorithm.adv_estimator=basis-online"]],
    ids=["previous-batch", "basis-online"],
)
def test_a_resumed_job_goes_on_as_if_it_had_not_stopped(
    assets: Assets, tmp_path: Path, estimator: list[str]
) -> None:
    whole = run_job(tmp_path / "whole", overrides(assets, estimator), assets=assets).check()
    # What a job that was killed in its fourth step leaves behind.
    resumed = tmp_path / "resumed"
    first = "global_step_3"
    shutil.copytree(whole.checkpoints / first, resumed / "checkpoints" / first)
    (resumed / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("3")
    again = run_job(resumed, overrides(assets, estimator), assets=assets).check()
    assert again.lines("basis-rl: the estimator goes on from")

    assert [row["step"] for row in whole.metrics] == [1, 2, 3, 4, 5, 6]
    assert [row["step"] for row in again.metrics] == [4, 5, 6]
    logged = [name for name in whole.metrics[0] if name.startswith("basis/") and name not in TIMES]
    assert "basis/baseline_mean" in logged
    for before, after in zip(whole.metrics[3:], again.metrics, strict=True):
        for name in logged:
            assert after[name] == pytest.approx(before[name], rel=1e-9, nan_ok=True), name
    states = [state(job.checkpoints / "global_step_6") for job in (whole, again)]
    assert equal(*states)
    assert not equal(states[0], state(whole.checkpoints / first))


@pytest.mark.slow
def test_a_job_that_is_killed_twice_repeats_what_was_not_saved(
    assets: Assets, tmp_path: Path
) -> None:
    """After an estimate, and between the estimator's state and verl's own files."""
    settings = overrides(assets, ["algorithm.adv_estimator=basis-online"])
    settings.append("trainer.save_freq=2")

    def run(name: str, when: str = "") -> Job:
        environment, modules = {WHEN: when}, ["sudden_end"]
        return run_job(
            tmp_path / name, settings, assets=assets, environment=environment, modules=modules
        )

    whole = run("whole").check()
    for when in ("update 4", "save 4"):
        killed = run("killed", when)
        assert killed.returncode != 0
        latest = killed.checkpoints / "latest_checkpointed_iteration.txt"
        assert latest.read_text() == "2"
        assert batches(killed)[-1][0] == 3  # counted from 0: of step 4, which is not saved
    half = killed.checkpoints / "global_step_4"
    assert state(half)  # it would be the wrong one for the actor of step 2
    assert not (half / "actor").exists()
    again = run("killed").check()
    assert again.lines(f"goes on from {again.checkpoints / 'global_step_2'}")
    for step in (4, 6):
        folder = f"global_step_{step}"
        assert equal(*(state(job.checkpoints / folder) for job in (whole, again)))
    assert batches(again) == batches(whole)  # what `basis-rl cache absorb` counts: each once
    lines = (again.checkpoints / "basis_rewards.jsonl").read_text().splitlines()
    assert len(lines) == 3 + 4 + 2 + 4  # a header for each job


def batches(job: Job) -> list[tuple[int, list[str], list[float]]]:
    """Step, keys and rewards of the batches that the record holds."""
    record = read_record(job.checkpoints)
    return [(batch.step, batch.keys, batch.rewards.tolist()) for batch in record]
