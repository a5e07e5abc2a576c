"""`basis-online` on real rewards without a table, where the first batch is unlike what follows.

    python benchmarks/online_first_batch.py [--seeds 5]

The first batch gives a first guess of the unit and of how far apart prompts are. Values and noise
have variance 1, the first batch's are divided by the factor (below 1: larger), or its first reward
is a million. Printed is the mean squared error after so many visits a prompt; 1 is that of the
values' mean as the baseline.
"""

from __future__ import annotations

import argparse

import numpy as np

from basis_rl import RewardBatch
from basis_rl.batch import FloatArray
from basis_rl.estimators import BasisOnline

PROMPTS, BATCH, VISITS = 640, 64, 30
FACTORS = (1.0, 3.0, 10.0, 100.0, 0.1, 0.01)
OUTLIER = 1e6
SHOWN = (3, 10, 29)


def errors(factor: float, seed: int, outlier: float | None = None) -> FloatArray:
    """Mean squared error at each visit of all prompts, shape (VISITS,)."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=PROMPTS)
    online, squares = BasisOnline(rewards="continuous"), np.empty((VISITS, PROMPTS))
    for visit in range(VISITS):
        for number, rows in enumerate(rng.permutation(PROMPTS).reshape(-1, BATCH)):
            scale = 1.0 / factor if visit == number == 0 else 1.0
            rewards = scale * (values[rows] + rng.normal(size=BATCH))
            if outlier is not None and visit == number == 0:
                rewards[0] = outlier
            baselines = online.estimate(RewardBatch(rows.tolist(), rewards)).baselines
            squares[visit, rows] = (baselines / scale - values[rows]) ** 2
    return np.asarray(squares.mean(axis=1))


def main() -> None:
    """Print a row for each factor."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    print("first batch divided by" + "".join(f"{f'{visits} visits':>11}" for visits in SHOWN))
    for factor in FACTORS:
        show(f"{factor:g}", [errors(factor, seed) for seed in range(seeds)])
    show("1, with an outlier", [errors(1.0, seed, OUTLIER) for seed in range(seeds)])


def show(label: str, found: list[FloatArray]) -> None:
    """Print the means over the seeds."""
    mean = np.mean(found, axis=0)
    print(f"{label:<22}" + "".join(f"{mean[visits]:11.3f}" for visits in SHOWN), flush=True)


if __name__ == "__main__":
    main()
