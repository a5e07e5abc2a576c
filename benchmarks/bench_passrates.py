"""Size, time and memory of tables of pass rates: save, load, 512 look-ups.

    OMP_NUM_THREADS=1 python benchmarks/bench_passrates.py
    OMP_NUM_THREADS=1 python benchmarks/bench_passrates.py --prompts 10000000

Each table is made in one process and loaded in another, whose peak memory is that of loading and
looking up alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from basis_rl.passrates import PassRates
from basis_rl.passrates.storage.texts import PackedTexts

PROMPTS = (17_398, 1_000_000)
BATCH = 512


def keys_of(prompts: int) -> Sequence[str]:
    """Random keys as `prompt_key` makes them."""
    digits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
    rng = np.random.default_rng(0)
    data = np.empty(prompts * 32, dtype=np.uint8)
    for start in range(0, len(data), 2**24):  # in pieces: the choice takes eight bytes a digit
        part = data[start : start + 2**24]
        part[:] = digits[rng.integers(0, 16, len(part))]
    keys = PackedTexts(data, np.arange(0, len(data) + 1, 32, dtype=np.int64))
    return list(keys) if prompts < 100_000 else keys


def make(path: str, prompts: int) -> None:
    """Save a table whose pass rates are often 0 or 1, as real ones are."""
    rng = np.random.default_rng(1)
    successes = rng.binomial(64, rng.beta(0.4, 0.4, prompts))
    table = PassRates.from_counts(keys_of(prompts), successes, 64)
    start = time.perf_counter()
    table.save(path)
    print(json.dumps({"save_s": time.perf_counter() - start}))


def measure(path: str) -> None:
    """Load a table and look up batches of 512 prompts, each another one."""
    start = time.perf_counter()
    table = PassRates.load(path)
    loads = [time.perf_counter() - start]
    if len(table) < 100_000:
        loads += [timed(lambda: PassRates.load(path)) for _ in range(9)]
    rng = np.random.default_rng(2)
    batches = []
    for _ in range(50):
        rows = rng.integers(0, len(table), BATCH)
        batches.append((rows, [table.keys[row] for row in rows.tolist()]))
    times = []
    for rows, keys in batches:
        start = time.perf_counter()
        found = table.rows(keys)
        times.append(time.perf_counter() - start)
        if not np.array_equal(found, rows):
            raise AssertionError("a key was found in another row")
    print(
        json.dumps(
            {
                "load_s": float(np.median(loads)),
                "fastest_load_s": min(loads),
                "first_lookup_ms": times[0] * 1e3,
                "lookup_ms": float(np.median(times)) * 1e3,
                "slowest_lookup_ms": max(times) * 1e3,
                "peak_mb": peak_mb(),
            }
        )
    )


def timed(function: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def peak_mb() -> float:
    """Largest resident memory of this process so far, in MB."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) * 1024 / 1e6
    import resource  # on Linux it counts what the process was forked from too

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # macOS: bytes


def run(step: str, path: Path, prompts: int) -> dict[str, float]:
    """Figures of one step, in a process of its own."""
    command = [sys.executable, __file__, "--step", step, "--path", str(path)]
    command += ["--prompts", str(prompts)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def figures_of(prompts: int, folder: Path) -> dict[str, float]:
    """Size, times and memory of a table with so many prompts."""
    path = folder / f"{prompts}.parquet"
    made = run("make", path, prompts)
    measured = run("measure", path, prompts)
    size = path.stat().st_size
    path.unlink()
    return {"file_mb": size / 1e6, **made, **measured}


def main() -> None:
    """Print the figures of tables of several sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, action="append", help="may be given several times")
    parser.add_argument("--step", choices=("make", "measure"), help=argparse.SUPPRESS)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    given = parser.parse_args()
    sizes = given.prompts or PROMPTS
    if given.step == "make":
        return make(given.path, sizes[0])
    if given.step == "measure":
        return measure(given.path)
    with tempfile.TemporaryDirectory() as folder:
        for prompts in sizes:
            f = figures_of(prompts, Path(folder))
            print(f"{prompts:,} prompts, n=64, hash keys:")
            print(f"  file                {f['file_mb']:10.3f} MB")
            print(f"  save                {f['save_s'] * 1e3:10.1f} ms")
            print(f"  load                {f['load_s'] * 1e3:10.1f} ms")
            print(
                f"  {BATCH} look-ups        {f['lookup_ms']:10.3f} ms   (the first "
                f"{f['first_lookup_ms']:.3f} ms, the slowest {f['slowest_lookup_ms']:.3f} ms)"
            )
            print(f"  peak memory         {f['peak_mb']:10.0f} MB   of loading and looking up")
    return None


if __name__ == "__main__":
    main()
