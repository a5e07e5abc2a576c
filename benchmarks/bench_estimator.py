"""Time the estimator beside the direct evaluation of the paper's formulas, in pairs, one core.

    OMP_NUM_THREADS=1 python benchmarks/bench_estimator.py

Every pair is run in turn and medians are compared, so a busy machine slows both sides. Large arrays
are freed first: from then on the C library keeps memory for arrays of the direct evaluation's size,
as in a process that trains. In a fresh one it is three times slower still.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np
import numpy.typing as npt

from basis_rl import Basis, PassRates, RewardBatch
from basis_rl.estimators.basis_grid import BinaryGrid
from basis_rl.estimators.basis_shift import BinaryShift
from basis_rl.values import beta_grid, tilted_value

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def direct_paper(
    table: FloatArray, rows: IntArray, rewards: FloatArray, epsilon: float = 1e-6
) -> FloatArray:
    """Algorithm 1 for every row and beta; ``table`` has the values of all prompts, (K, P)."""
    values = table[:, rows]
    active = (values > epsilon) & (values < 1.0 - epsilon)
    safe = np.where(active, values, 0.5)
    reward_terms = np.where(active, rewards / (1.0 - safe), 0.0)
    mass_terms = np.where(active, safe / (1.0 - safe), 0.0)
    numerator = reward_terms.sum(axis=1, keepdims=True) - reward_terms
    mass = mass_terms.sum(axis=1, keepdims=True) - mass_terms
    baselines = np.where(active, values * numerator / np.where(mass > 0, mass, 1.0), 0.0)
    losses = ((rewards - baselines) ** 2).mean(axis=1)
    return np.asarray(baselines[losses.argmin()])


def unavoidable_passes(levels: IntArray, rewards: FloatArray, by_code: FloatArray) -> FloatArray:
    """Pair codes, bincount, gather, subtract: what any method over counts has to do."""
    codes = 2 * levels + rewards.astype(np.int64)
    np.bincount(codes, minlength=len(by_code))
    return rewards - by_code[codes]


def warm_allocator() -> None:
    """Free large arrays, as training does: smaller ones then come from kept memory."""
    for _ in range(3):
        np.zeros(3_000_000).sum()


def medians(
    first: Callable[[], object], second: Callable[[], object], repeats: int
) -> tuple[float, float]:
    """Median seconds of two functions, in turn in blocks of up to 10 calls.

    In blocks, because the larger one would clear the processor's cache for the smaller.
    """
    times: tuple[list[float], list[float]] = ([], [])
    block = min(10, repeats)
    for _ in range(repeats // block):
        for function, spent in zip((first, second), times, strict=True):
            function()
            for _ in range(block):
                start = time.perf_counter()
                function()
                spent.append(time.perf_counter() - start)
    return float(np.median(times[0])), float(np.median(times[1]))


def make_table(prompts: int, n: int | IntArray, seed: int) -> PassRates:
    """Pass rates with many prompts near 0 and 1, as real ones have."""
    rng = np.random.default_rng(seed)
    keys = [f"prompt-{i:08d}" for i in range(prompts)]
    return PassRates.from_counts(keys, rng.binomial(n, rng.beta(0.4, 0.4, prompts)), n)


def small_batch(size: int, repeats: int) -> dict[str, float]:
    """Ratios at one training step's size; a lookup's share included."""
    rng = np.random.default_rng(1)
    table = make_table(17_398, 64, 0)
    paper, robust = Basis(table, preset="paper"), Basis(table)
    keys = [table.keys[i] for i in rng.choice(len(table.keys), size, replace=False)]
    rewards = (rng.random(size) < 0.5).astype(np.float64)
    rows = table.rows(keys)
    assert isinstance(paper._form, BinaryGrid)
    assert isinstance(robust._form, BinaryShift)
    grid, shift, betas = paper._form, robust._form, beta_grid()
    values = tilted_value(grid.logits[None, :], 1.0 / betas[:, None])

    def direct() -> FloatArray:
        return direct_paper(values, rows, rewards)

    if not np.allclose(direct(), grid.baselines(rows, rewards, None)[0], rtol=1e-6, atol=1e-9):
        raise AssertionError("the two ways disagree")
    batch = RewardBatch(keys, rewards)
    d, p = medians(direct, lambda: grid.baselines(rows, rewards, None), repeats)
    p2, r = medians(
        lambda: grid.baselines(rows, rewards, None),
        lambda: shift.baselines(rows, rewards, None),
        repeats,
    )
    lookup, p3 = medians(
        lambda: table.rows(keys), lambda: grid.baselines(rows, rewards, None), repeats
    )
    whole, whole_robust = medians(
        lambda: paper.estimate(batch), lambda: robust.estimate(batch), repeats
    )
    print(f"B={size}, one n=64, {len(betas)} betas, medians of {repeats}:")
    print(f"  direct evaluation        {d * 1e3:8.3f} ms")
    print(f"  paper                    {p * 1e3:8.3f} ms   {d / p:6.1f} times faster than direct")
    print(f"  robust                   {r * 1e3:8.3f} ms   {r / p2:6.2f} of paper")
    print(f"  look-up of the keys      {lookup * 1e3:8.3f} ms   {lookup / p3:6.2f} of paper")
    print(f"  estimate(), paper        {whole * 1e3:8.3f} ms   with look-up, checks and metrics")
    print(f"  estimate(), robust       {whole_robust * 1e3:8.3f} ms")
    return {
        "direct_over_paper": d / p,
        "robust_over_paper": r / p2,
        "lookup_over_paper": lookup / p3,
    }


def mixed_counts(size: int, repeats: int) -> None:
    """Every prompt with an n of its own: the pairs are nearly all different."""
    rng = np.random.default_rng(2)
    n = rng.integers(20, 2000, 17_398)
    table = make_table(17_398, n, 3)
    paper, robust = Basis(table, preset="paper"), Basis(table)
    rows = rng.choice(len(table.keys), size, replace=False)
    rewards = (rng.random(size) < 0.5).astype(np.float64)
    assert isinstance(paper._form, BinaryGrid)
    values = tilted_value(paper._form.logits[None, :], 1.0 / beta_grid()[:, None])
    d, p = medians(
        lambda: direct_paper(values, rows, rewards),
        lambda: paper._form.baselines(rows, rewards, None),
        repeats,
    )
    _, r = medians(lambda: None, lambda: robust._form.baselines(rows, rewards, None), repeats)
    print(f"B={size}, n from 20 to 1999:")
    print(f"  direct evaluation        {d * 1e3:8.3f} ms")
    print(f"  paper                    {p * 1e3:8.3f} ms   {d / p:6.1f} times faster than direct")
    print(f"  robust                   {r * 1e3:8.3f} ms   {d / r:6.1f} times faster than direct")


def large_batch(size: int, repeats: int) -> dict[str, float]:
    """A million rows, pass rates looked up, against the passes that cannot be avoided."""
    rng = np.random.default_rng(4)
    table = make_table(17_398, 64, 0)
    rows = rng.integers(0, len(table.keys), size)
    rewards = (rng.random(size) < 0.5).astype(np.float64)
    paper, robust = Basis(table, preset="paper"), Basis(table)
    assert isinstance(paper._form, BinaryGrid)
    assert isinstance(robust._form, BinaryShift)
    grid, shift = paper._form, robust._form
    levels = grid.levels.nearest[rows]
    by_code = np.zeros(2 * len(grid.levels.logits))
    passes = lambda: unavoidable_passes(levels, rewards, by_code)  # noqa: E731
    four, p = medians(
        passes, lambda: rewards - grid.baselines_at(levels, rows, rewards)[0], repeats
    )
    batch = shift.tracker.begin(None, size)
    four_again, r = medians(
        passes, lambda: rewards - shift.baselines_at(levels, rewards, batch)[0], repeats
    )
    print(f"B={size:,}, one n, pass rates looked up:")
    print(f"  four NumPy passes        {four * 1e3:8.2f} ms")
    print(f"  paper                    {p * 1e3:8.2f} ms   {p / four:6.2f} of the four passes")
    print(
        f"  robust                   {r * 1e3:8.2f} ms   {r / four_again:6.2f} of the four passes"
    )
    return {"paper_over_passes": p / four, "robust_over_passes": r / four_again}


def main() -> None:
    """Print all comparisons."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=200)
    repeats = parser.parse_args().repeats
    warm_allocator()
    small_batch(512, repeats)
    mixed_counts(512, repeats)
    large_batch(1_000_000, max(repeats // 10, 5))


if __name__ == "__main__":
    main()
