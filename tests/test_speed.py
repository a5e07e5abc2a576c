"""Ratios of times measured in turn, so that a busy machine slows both sides alike.

The thresholds are looser than the figures of `make bench`: they catch a lost fast path.
"""

from __future__ import annotations

from bench_estimator import large_batch, small_batch, warm_allocator


def test_one_training_step_is_many_times_faster_than_the_direct_evaluation():
    warm_allocator()
    ratios = [small_batch(512, repeats=60) for _ in range(3)]
    assert max(r["direct_over_paper"] for r in ratios) >= 10
    assert min(r["robust_over_paper"] for r in ratios) <= 1.0
    assert min(r["lookup_over_paper"] for r in ratios) <= 1.0


def test_a_million_rows_cost_about_what_numpy_cannot_avoid():
    ratios = [large_batch(1_000_000, repeats=5) for _ in range(2)]
    assert min(r["paper_over_passes"] for r in ratios) <= 2.0
    assert min(r["robust_over_passes"] for r in ratios) <= 2.0


def test_a_million_rows_need_a_few_arrays_of_memory():
    import tracemalloc

    import numpy as np

    from basis_rl import Basis, PassRates

    size = 1_000_000
    rng = np.random.default_rng(0)
    table = PassRates.from_counts([str(i) for i in range(1000)], rng.integers(0, 65, 1000), 64)
    rows, rewards = rng.integers(0, 1000, size), rng.integers(0, 2, size).astype(float)
    for preset in ("paper", "robust"):
        form = Basis(table, preset=preset)._form
        tracemalloc.start()
        form.baselines(rows, rewards, None)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 6 * 8 * size, preset
