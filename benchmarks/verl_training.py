"""Thirty steps of verl's stock trainer with one rollout per prompt, and with GRPO's eight.

    .venv-verl/bin/python benchmarks/verl_training.py FOLDER [--runs basis-grpo grpo-8 ...]

makes a tiny Qwen3 and a task that it can learn (`tests/with_verl/digit_task.py`), samples the pass
rates with `basis-rl cache build`, and runs `verl.trainer.main_ppo` on the processor for each run,
64 rollouts a step in all of them: 64 prompts with one rollout, or 8 prompts with 8. A minute or two
a run. `make test-verl` sets the environment up.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "with_verl"))
import digit_jobs  # type: ignore[import-not-found]
from assets import Assets  # type: ignore[import-not-found]
from digit_task import make_task  # type: ignore[import-not-found]
from jobs import Job  # type: ignore[import-not-found]

# Estimator (None: verl's own GRPO), objective, rollouts a prompt.
RUNS: dict[str, tuple[str | None, str, int]] = {
    "basis-grpo": ("basis", "grpo", 1),
    "basis-gpg": ("basis", "gpg", 1),
    "basis-gspo": ("basis", "gspo", 1),
    "grpo-8": (None, "grpo", 8),
    "basis-online-grpo": ("basis-online", "grpo", 1),
    "zero-grpo": ("zero", "grpo", 1),
}
HEAD = (
    "run                rollouts  first 5   last 5   new words, before and after  s/step  A/r std"
)


def assets_in(folder: Path, seed: int) -> Assets:
    """Model, prompts and pass rates; made where they are not there."""
    table = folder / "pass_rates.parquet"
    if table.exists():
        return Assets(
            folder / "model", folder / "train.parquet", folder / "held_out.parquet", table
        )
    assets = make_task(folder, seed=seed)
    digit_jobs.build_pass_rates(assets)
    return assets


def run(name: str, folder: Path, assets: Assets, seed: int) -> Job:
    """One job of thirty steps."""
    estimator, objective, rollouts = RUNS[name]
    chosen = digit_jobs.OBJECTIVES[objective] + [f"actor_rollout_ref.rollout.seed={seed}"]
    chosen += [f"data.seed={seed}"]
    if estimator is None:
        chosen += ["algorithm.adv_estimator=grpo"]
    elif estimator == "zero":  # it has no use for pass rates
        chosen += ["algorithm.adv_estimator=zero", digit_jobs.EXTERNAL_LIB]
    else:
        chosen += digit_jobs.three_overrides(assets, estimator)
    return digit_jobs.train(folder / name, assets, chosen, rollouts=rollouts).check()


def row(name: str, job: Job) -> str:
    """A line of the table; the last column is a mean over the first ten steps."""
    rewards = digit_jobs.rewards(job)
    before, *_, after = digit_jobs.evaluations(job)
    timed = [m["perf/time_per_step"] for m in job.metrics if "perf/time_per_step" in m]
    ratios = [m[digit_jobs.RATIO] for m in job.metrics if digit_jobs.RATIO in m][:10]
    ratio = f"{statistics.mean(ratios):.2f}" if ratios else "-"
    return (
        f"{name:18s} {RUNS[name][2]:8d} {statistics.mean(rewards[:5]):8.3f} "
        f"{statistics.mean(rewards[-5:]):8.3f} {before:20.3f} {after:8.3f} "
        f"{statistics.median(timed):7.2f} {ratio:>8s}"
    )


def main() -> None:
    """Print a line for each run as it ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="assets, logs and metrics; made if missing")
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS), metavar="NAME")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder = options.folder.resolve()
    assets = assets_in(folder / f"assets-{options.seed}", options.seed)
    print(HEAD)
    for name in options.runs:
        job = run(name, folder / f"runs-{options.seed}", assets, options.seed)
        print(row(name, job), flush=True)


if __name__ == "__main__":
    main()
