"""Replay a real training run and measure how far each baseline is from the true value.

The record has, for each prompt, the number of right answers among 8 rollouts at every visit. The
first visits are the offline cache. From then on batches are drawn, one random rollout of each
visit is shown to the estimator, and its baseline is compared with the mean of the visit's other
rollouts, which no estimator has seen; that mean's own sampling variance is taken off.

    python benchmarks/trace_replay.py ../shared/data/traces/qwen25math15b_grpo_trace.jsonl
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from basis_rl import Basis, BatchMean, GroupMean, PassRates, RewardBatch
from basis_rl.estimators import Estimator

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Factory = Callable[[PassRates], Estimator]

ESTIMATORS: dict[str, Factory] = {
    "batch-mean": lambda _: BatchMean(),
    "paper-literal": lambda table: Basis(table, preset="paper-literal"),
    "paper": lambda table: Basis(table, preset="paper"),
    "paper, jeffreys": lambda table: Basis(table, preset="paper", smoothing="jeffreys"),
    "initial, jeffreys": lambda table: Basis(
        table, preset="paper", variant="initial", smoothing="jeffreys"
    ),
    "robust": lambda table: Basis(table),
    "robust, empirical-bayes": lambda table: Basis(table, smoothing="empirical-bayes"),
    "robust, vop": lambda table: Basis(table, variant="vop"),
}


class Trace(NamedTuple):
    """Right answers of every prompt at every visit; shape (P, visits), out of ``per_visit``."""

    keys: list[str]
    successes: IntArray
    per_visit: int


def read_trace(path: Path, *, visits: int = 44) -> Trace:
    """Read the first ``visits`` visits of every prompt."""
    with path.open() as lines:
        records = [json.loads(line) for line in lines]
    return Trace(
        [record["prompt_id"] for record in records],
        np.array([record["successes_by_visit"][:visits] for record in records]),
        records[0]["rollouts_per_visit"],
    )


def offline_cache(trace: Trace, visits: int = 4) -> PassRates:
    """Pass rates from the first visits."""
    successes = trace.successes[:, :visits].sum(axis=1)
    return PassRates.from_counts(trace.keys, successes, visits * trace.per_visit)


def corrected_error(baselines: FloatArray, right: npt.NDArray[Any], rollouts: int) -> FloatArray:
    """Squared distance to the mean of ``rollouts`` unseen rollouts, less that mean's variance."""
    oracle = right / rollouts
    return (baselines - oracle) ** 2 - oracle * (1.0 - oracle) / (rollouts - 1)


def replay(
    trace: Trace,
    make: Factory,
    *,
    seed: int,
    cache_visits: int = 4,
    batch_size: int = 64,
    quarters: int = 4,
) -> FloatArray:
    """MSE of a single-rollout baseline by quarter of the run; shape (quarters,)."""
    rng = np.random.default_rng(seed)
    estimator = make(offline_cache(trace, cache_visits))
    prompts, visits = trace.successes.shape
    by_visit = []
    for visit in range(cache_visits, visits):
        errors = []
        order = rng.permutation(prompts)
        for start in range(0, prompts, batch_size):
            rows = order[start : start + batch_size]
            right = trace.successes[rows, visit]
            shown = (rng.random(len(rows)) * trace.per_visit < right).astype(np.float64)
            batch = RewardBatch([trace.keys[i] for i in rows], shown)
            baselines = estimator.estimate(batch).baselines
            errors.append(corrected_error(baselines, right - shown, trace.per_visit - 1))
        by_visit.append(np.concatenate(errors).mean())
    return np.array([part.mean() for part in np.array_split(np.array(by_visit), quarters)])


def group_mean_error(
    trace: Trace, group: int, *, seed: int, cache_visits: int = 4, quarters: int = 4
) -> FloatArray:
    """MSE of `GroupMean` with ``group`` rollouts, by quarter.

    Half of a visit's rollouts go to the estimator, the other half are the oracle; the variance of
    a mean of G is then scaled from half a visit to ``group``.
    """
    rng = np.random.default_rng(seed)
    half = trace.per_visit // 2
    visits = trace.successes.shape[1]
    keys = [key for key in trace.keys for _ in range(half)]
    by_visit = []
    for visit in range(cache_visits, visits):
        right = trace.successes[:, visit]
        shown = rng.hypergeometric(right, trace.per_visit - right, half)
        rewards = (np.arange(half)[None, :] < shown[:, None]).astype(np.float64)
        baselines = GroupMean().estimate(RewardBatch(keys, rewards.ravel())).baselines[::half]
        by_visit.append(corrected_error(baselines, right - shown, half).mean() * half / group)
    return np.array([part.mean() for part in np.array_split(np.array(by_visit), quarters)])


def table(trace: Trace, seeds: int, **options: Any) -> dict[str, FloatArray]:
    """Mean over seeds of every estimator's MSE by quarter."""
    rows = {
        name: np.mean([replay(trace, make, seed=s, **options) for s in range(seeds)], axis=0)
        for name, make in ESTIMATORS.items()
    }
    for group in (8, 16):
        rows[f"group mean of {group}"] = np.mean(
            [group_mean_error(trace, group, seed=s) for s in range(seeds)], axis=0
        )
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    arguments = parser.parse_args()
    trace = read_trace(arguments.trace)
    print(f"{'baseline':28s} {'Q1':>7s} {'Q2':>7s} {'Q3':>7s} {'Q4':>7s}")
    rows = table(trace, arguments.seeds, batch_size=arguments.batch_size)
    for name, errors in rows.items():
        print(f"{name:28s} " + " ".join(f"{error:7.4f}" for error in errors))


if __name__ == "__main__":
    main()
