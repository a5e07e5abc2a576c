"""How often `basis-rl lab recommend` is right, and how right its "sure" is, where truth is known.

    python benchmarks/recommend_calibration.py [--seeds 10]

simulates small and awkward records, asks for a recommendation on each, and compares the true noise
of what is recommended with that of the best of all that were compared.
"""

from __future__ import annotations

import argparse
import dataclasses
import warnings
from collections.abc import Callable, Sequence

import numpy as np

from basis_rl import RewardBatch
from basis_rl.batch import FloatArray
from basis_rl.lab.contenders import Contender
from basis_rl.lab.recommend import Recommendation, recommend
from basis_rl.lab.recommend.judge import usable, without_pass_rates
from basis_rl.lab.record import RewardRecord
from basis_rl.lab.replay import replay
from basis_rl.lab.simulate import Simulated, scenario, simulate

# KAE looks at all of its window for every prompt: it would take most of the time.
LEFT_OUT = "kae"
RIGHT = 0.01
RECORDS: dict[str, Callable[[int], Simulated]] = {
    "still, 64 prompts": lambda seed: scenario("no-drift", prompts=64, visits=6, seed=seed),
    "two visits": lambda seed: scenario("common-shift", prompts=128, visits=2, seed=seed),
    "16 prompts": lambda seed: simulate(prompts=16, visits=30, drift=0.3, batch_size=16, seed=seed),
    "two sources": lambda seed: scenario("two-sources", prompts=96, visits=12, seed=seed),
    "jumps, cache of 8": lambda seed: scenario("jumps", prompts=128, visits=15, cache=8, seed=seed),
    "real rewards": lambda seed: scenario("continuous", prompts=64, visits=6, seed=seed),
    "log, still": lambda seed: scenario(
        "no-drift", prompts=256, visits=6, rollouts=1, cache=8, seed=seed
    ),
    "log, forgetting": lambda seed: scenario(
        "forgetting", prompts=128, visits=12, rollouts=1, seed=seed
    ),
    "log, all alike": lambda seed: scenario(
        "all-alike", prompts=128, visits=6, rollouts=1, seed=seed
    ),
    "log, drift": lambda seed: scenario(
        "strong-drift", prompts=128, visits=12, rollouts=1, cache=2, seed=seed
    ),
}


def baselines_of(record: RewardRecord, contender: Contender) -> FloatArray:
    """Baselines of a log with one rollout a visit, step by step."""
    estimator, found = contender.make(record.pass_rates), np.empty(len(record))
    for rows in np.split(np.arange(len(record)), np.flatnonzero(np.diff(record.step)) + 1):
        of = record.prompt[rows].tolist()
        sources = None if record.sources is None else [record.sources[i] for i in of]
        batch = RewardBatch([record.keys[i] for i in of], record.rewards[rows], sources=sources)
        found[rows] = estimator.estimate(batch).baselines
    return found


def true_noise(
    simulated: Simulated, found: Recommendation, contenders: Sequence[Contender]
) -> dict[str, float]:
    """``E (r - b)^2`` of each baseline with the true values, by name."""
    record, noise = simulated.record, {}
    bare = dataclasses.replace(record, pass_rates=None)
    pairs = [(record, contenders), (bare, without_pass_rates(contenders))]
    compared = {each.option.name for each in found.choice.ranked}
    for of, some in pairs:
        taking_part = [each for each in some if each.name in compared]
        if found.judge.as_logged:
            for each in taking_part:
                errors = (baselines_of(of, each) - simulated.values) ** 2
                noise[each.name] = float((errors + simulated.variances).mean())
            continue
        size = found.judge.batch_size
        # Other batches and rollouts than the recommendation's.
        shown = replay(of, taking_part, seeds=2, first_seed=10, cache_rollouts=0, batch_size=size)
        errors = (shown.baselines - simulated.values[shown.visit]) ** 2
        means = (errors + simulated.variances[shown.visit]).mean(axis=1)
        noise.update(zip(shown.names, means.tolist(), strict=True))
    return noise


def main() -> None:
    """Print a line for each kind of record, and how often each "sure" was right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = parser.parse_args().seeds
    warnings.simplefilter("ignore")
    sure, right = [], []
    for name, make in RECORDS.items():
        losses = []
        for seed in range(seeds):
            simulated = make(seed)
            every = usable(1, continuous=not simulated.record.is_binary)
            contenders = [each for each in every if each.estimator != LEFT_OUT]
            found = recommend(simulated.record, contenders=contenders)
            noise = true_noise(simulated, found, contenders)
            losses.append(noise[found.estimator] / min(noise.values()) - 1.0)
            sure.append(found.choice.sure)
            right.append(losses[-1] <= RIGHT)
        worse = sum(loss > 2 * RIGHT for loss in losses)
        print(
            f"{name:20} truly above the best: {np.mean(losses):.1%} on average, {max(losses):.1%} "
            f"at most, over {2 * RIGHT:.0%} in {worse} of {seeds}",
            flush=True,
        )
    said, were = np.array(sure), np.array(right)
    for low, high in ((0.0, 0.8), (0.8, 0.95), (0.95, 1.01)):
        some = (said >= low) & (said < high)
        if some.any():
            print(
                f"said {low:.0%} to {min(high, 1):.0%} sure: {some.sum()} times, "
                f"{said[some].mean():.0%} on average; right (within {RIGHT:.0%}) "
                f"{were[some].mean():.0%}"
            )


if __name__ == "__main__":
    main()
