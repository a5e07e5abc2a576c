"""Adaptive numbers of rollouts on a real training run: error of the pass rates against fixed n.

A prompt's rollouts of the first visits are shuffled, so that the policy's drift is the same
everywhere, and revealed as the rule asks. The truth is the mean of the rollouts that no rule can
reach, its own sampling variance taken off. Every rule sees the same shuffles. Then the same numbers
of rollouts make the cache of `Basis`, whose baselines are compared with later visits, as
`basis-rl lab replay` does.

    python benchmarks/adaptive_trace.py ../shared/data/traces/qwen25math15b_grpo_trace.jsonl
"""

from __future__ import annotations

import argparse
import dataclasses
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from basis_rl import Basis, PassRates
from basis_rl.lab.contenders import Contender
from basis_rl.lab.read import read_record, within
from basis_rl.lab.record import RewardRecord
from basis_rl.lab.replay import replay
from basis_rl.passrates.adaptive import expected_error, next_rollouts

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

REACHABLE = 64  # rollouts of a prompt that rules may see
FIXED = (8, 16, 24, 32, 40, 48, 64)
LIMITS = (28, 32, 40, 48, 56, 64)
ESTIMATES = ("raw", "jeffreys")
PSEUDO = {"raw": 0.0, "jeffreys": 0.5}


class Trace(NamedTuple):
    """Right answers of every prompt at its first visits, shape (P, visits), and the record."""

    keys: list[str]
    successes: IntArray
    per_visit: int
    record: RewardRecord


def read_trace(path: Path, *, visits: int = 44) -> Trace:
    """Read the first ``visits`` visits of every prompt."""
    record = read_record(path, steps=(1, visits))
    successes = np.zeros((len(record.keys), visits), dtype=np.int64)
    successes[record.prompt, record.step - 1] = np.add.reduceat(record.rewards, record.starts[:-1])
    return Trace(record.keys, successes, int(record.counts[0]), record)


class Result(NamedTuple):
    """One rule: means over the shuffles of every prompt.

    Attributes
    ----------
    n : array, shape (P,)
        Rollouts.
    errors : dict of str to array, shape (P,)
        Squared error of the raw and of the Jeffreys-smoothed pass rate.
    bias : array, shape (P,)
        Mean of the raw pass rate less the truth.
    stages : float
        Rounds of sampling.
    expected : float
        Mean of `expected_error`, squared.
    """

    n: FloatArray
    errors: dict[str, FloatArray]
    bias: FloatArray
    stages: float
    expected: float


def shuffled(trace: Trace, visits: int, seed: int) -> npt.NDArray[np.bool_]:
    """Rollouts of the first visits in random order; shape (P, visits x per_visit)."""
    right = trace.successes[:, :visits].sum(axis=1)
    pool = np.arange(visits * trace.per_visit)[None, :] < right[:, None]
    return np.random.default_rng(seed).permuted(pool, axis=1)


def adaptive_n(rollouts: npt.NDArray[np.bool_], limit: int) -> tuple[IntArray, int]:
    """Rollouts that the rule takes of each prompt, and in how many stages."""
    successes = np.pad(rollouts[:, :limit].cumsum(axis=1), ((0, 0), (1, 0)))
    n = np.zeros(len(rollouts), dtype=np.int64)
    stages = 0
    while True:
        found = np.take_along_axis(successes, n[:, None], axis=1)[:, 0]
        more = next_rollouts(found, found, n, n, limit=limit)
        if not more.any():
            return n, stages
        n += more
        stages += 1


def successes_at(rollouts: npt.NDArray[np.bool_], n: IntArray) -> IntArray:
    """Right answers among the first n rollouts of each prompt; shape (P,)."""
    inside = np.arange(rollouts.shape[1])[None, :] < n[:, None]
    found: IntArray = (rollouts & inside).sum(axis=1)
    return found


def measure(trace: Trace, limit: int, *, adaptive: bool, visits: int, seeds: int) -> Result:
    """Error of one rule's pass rates, averaged over shuffles."""
    sums: dict[str, FloatArray] = {
        name: np.zeros(len(trace.keys)) for name in ("n", "bias", *ESTIMATES)
    }
    stages = expected = 0.0
    for seed in range(seeds):
        rollouts = shuffled(trace, visits, seed)
        unseen = rollouts[:, REACHABLE:]
        truth = unseen.mean(axis=1)
        noise = truth * (1.0 - truth) / (unseen.shape[1] - 1)
        n, rounds = np.full(len(truth), limit), 1
        if adaptive:
            n, rounds = adaptive_n(rollouts, limit)
        found = successes_at(rollouts, n)
        sums["n"] += n
        sums["bias"] += found / n - truth
        for name, pseudo in PSEUDO.items():
            rates = (found + pseudo) / (n + 2.0 * pseudo)
            sums[name] += (rates - truth) ** 2 - noise
        stages += rounds
        expected += expected_error(found, found, n) ** 2
    means = {name: total / seeds for name, total in sums.items()}
    errors = {name: means[name] for name in ESTIMATES}
    return Result(means["n"], errors, means["bias"], stages / seeds, expected / seeds)


def equivalent_n(error: float, fixed: dict[int, float]) -> float:
    """Fixed n with this error, by straight lines between the measured (log n, log error)."""
    points = sorted((np.log(e), np.log(n)) for n, e in fixed.items())
    errors, numbers = zip(*points, strict=True)
    return float(np.exp(np.interp(np.log(error), errors, numbers)))


def share_at_equal_error(
    rule: Result, fixed: dict[int, Result], estimate: str, rows: IntArray
) -> float:
    """Rollouts of the rule over those of the fixed n that has its error, of some prompts."""
    curve = {n: float(result.errors[estimate][rows].mean()) for n, result in fixed.items()}
    mean_n = float(rule.n[rows].mean())
    return mean_n / equivalent_n(float(rule.errors[estimate][rows].mean()), curve)


def interval(
    rule: Result, fixed: dict[int, Result], estimate: str, *, draws: int = 400
) -> tuple[float, float]:
    """95% interval of `share_at_equal_error`: prompts drawn again with replacement."""
    rng = np.random.default_rng(0)
    prompts = len(rule.n)
    shares = [
        share_at_equal_error(rule, fixed, estimate, rng.integers(0, prompts, prompts))
        for _ in range(draws)
    ]
    low, high = np.quantile(shares, [0.025, 0.975])
    return float(low), float(high)


def known_rate_share(trace: Trace, visits: int) -> float:
    """Share that n proportional to sqrt(V (1 - V)) takes where V is known: the least there is."""
    total = visits * trace.per_visit
    rates = trace.successes[:, :visits].sum(axis=1) / total
    variance = rates * (1.0 - rates) * total / (total - 1)
    return float(np.sqrt(variance).mean() ** 2 / variance.mean())


def replayed(
    trace: Trace,
    limit: int,
    *,
    adaptive: bool,
    seeds: int,
    preset: str = "robust",
    cache_visits: int = 8,
) -> FloatArray:
    """MSE of the baselines of `Basis` with such a cache; shape (seeds, quarters of the run)."""
    later = within(trace.record, (cache_visits + 1, int(trace.record.step[-1])))
    rows = []
    for seed in range(seeds):
        rollouts = shuffled(trace, cache_visits, seed)
        n = adaptive_n(rollouts, limit)[0] if adaptive else np.full(len(rollouts), limit)
        cache = PassRates.from_counts(trace.keys, successes_at(rollouts, n), n)
        record = dataclasses.replace(later, pass_rates=cache)
        contender = Contender("basis", preset, partial(_with_cache, preset))
        found = replay(record, [contender], seeds=1, first_seed=seed)
        rows.append([found.mse("basis", part).value for part in found.by_step(4).rows])
    return np.array(rows)


def _with_cache(preset: str, cache: PassRates | None) -> Basis:
    assert cache is not None
    return Basis(cache, preset=preset)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--visits", type=int, default=16, help="first visits of each prompt")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--replay-seeds", type=int, default=10)
    parser.add_argument("--preset", default="robust", help="preset of Basis in the last table")
    options = parser.parse_args()
    trace = read_trace(options.trace)
    settings = {"visits": options.visits, "seeds": options.seeds}
    fixed = {n: measure(trace, n, adaptive=False, **settings) for n in FIXED}
    adaptive = {n: measure(trace, n, adaptive=True, **settings) for n in LIMITS}
    everyone = np.arange(len(trace.keys))
    print(f"{len(trace.keys)} prompts, first {options.visits} visits, {options.seeds} shuffles")
    print("rule            rollouts stages  RMSE x 1000: raw jeffreys expected   bias x 1000")
    for title, results in (("fixed n", fixed), ("adaptive", adaptive)):
        for n, result in results.items():
            raw, smoothed = (1e3 * np.sqrt(result.errors[e].mean()) for e in ESTIMATES)
            print(
                f"{title:8s} {n:6d} {result.n.mean():9.1f} {result.stages:6.1f} {raw:17.1f} "
                f"{smoothed:8.1f} {1e3 * np.sqrt(result.expected):8.1f} "
                f"{1e3 * result.bias.mean():13.2f}"
            )
    print("\nrollouts of the rule / rollouts of the fixed n with the same error (95% interval)")
    for n, result in adaptive.items():
        texts = []
        for name in ESTIMATES:
            share = share_at_equal_error(result, fixed, name, everyone)
            low, high = interval(result, fixed, name)
            texts.append(f"{name} {share:.3f} ({low:.3f} to {high:.3f})")
        print(f"adaptive {n:6d}  " + "   ".join(texts))
    print(f"with V known: {known_rate_share(trace, options.visits):.3f}")
    print(f"\nMSE x 1000 of the baselines of Basis ({options.preset}) by quarter (standard error)")
    for title, numbers in (("fixed n", FIXED), ("adaptive", LIMITS)):
        for n in numbers:
            errors = 1e3 * replayed(
                trace,
                n,
                adaptive=title == "adaptive",
                seeds=options.replay_seeds,
                preset=options.preset,
            )
            spread = errors.std(axis=0, ddof=1) / np.sqrt(len(errors))
            means = zip(errors.mean(axis=0), spread, strict=True)
            cells = [f"{mean:6.2f} ({error:.2f})" for mean, error in means]
            print(f"{title:8s} {n:6d}  " + "  ".join(cells))


if __name__ == "__main__":
    main()
