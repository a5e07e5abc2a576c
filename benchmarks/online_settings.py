"""Where `basis-online` is worse than `basis`, preset robust: simulated records, true values known.

    python benchmarks/online_settings.py [--seeds 3]

prints the ratio of their mean squared errors for each scenario (rows) and setting (columns), one
rollout a visit.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from basis_rl import Basis, RewardBatch
from basis_rl.estimators import BasisOnline, Estimator
from basis_rl.lab.simulate import SCENARIOS, Simulated, scenario, true_error

PROMPTS = 256
SETTINGS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "batch 8": {"batch_size": 8},
    "batch 256": {"batch_size": 256},
    "cache 8": {"cache": 8},
    "cache 64": {"cache": 64},
    "1 visit": {"visits": 1},
    "3 visits": {"visits": 3},
    "10 visits": {"visits": 10},
}
WORSE = 1.02


def error(simulated: Simulated, estimator: Estimator) -> float:
    """Mean squared error over all visits; the first rollout of each is shown."""
    record = simulated.record
    baselines = np.empty(len(record))
    for rows in np.split(np.arange(len(record)), np.flatnonzero(np.diff(record.step)) + 1):
        of = record.prompt[rows].tolist()
        sources = None if record.sources is None else [record.sources[i] for i in of]
        batch = RewardBatch(
            [record.keys[i] for i in of],
            record.rewards[record.starts[rows]],
            sources=sources,
            step=int(record.step[rows[0]]),
        )
        baselines[rows] = estimator.estimate(batch).baselines
    return true_error(simulated, np.arange(len(record)), baselines)


def ratio(name: str, settings: dict[str, Any], seeds: int) -> float:
    """Error of `basis-online` over that of `basis`, means over the seeds."""
    errors = np.zeros(2)
    for seed in range(seeds):
        simulated = scenario(name, prompts=PROMPTS, rollouts=1, seed=seed, **settings)
        table = simulated.record.pass_rates
        if table is None:
            raise ValueError(f"scenario {name} has no pass rates")
        errors += [error(simulated, BasisOnline(table)), error(simulated, Basis(table))]
    return float(errors[0] / errors[1])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    print(f"{'':16}" + "".join(f"{name:>11}" for name in SETTINGS), flush=True)
    worse = 0
    for name in SCENARIOS:
        ratios = [ratio(name, settings, seeds) for settings in SETTINGS.values()]
        worse += sum(r > WORSE for r in ratios)
        print(f"{name:16}" + "".join(f"{r:11.2f}" for r in ratios), flush=True)
    print(f"over {WORSE}: {worse} of {len(SCENARIOS) * len(SETTINGS)}")


if __name__ == "__main__":
    main()
