"""How much the constants of `basis-online` matter: each is changed alone, on a real record.

    python benchmarks/online_constants.py ../shared/data/traces/qwen25math15b_grpo_trace.jsonl

Rows are mean squared errors by quarter of the record, like those of `basis-rl lab replay`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from basis_rl.estimators import basis_online
from basis_rl.estimators.online import mixture, model, shift
from basis_rl.lab.contenders import contenders
from basis_rl.lab.read import read_record
from basis_rl.lab.record import RewardRecord
from basis_rl.lab.replay import replay

CHANGES: list[tuple[Any, str, Any]] = [
    (model, "DEVIATIONS", 0.009 * 2.5 ** np.arange(5)),
    (model, "DEVIATIONS", 0.01 * 2.0 ** np.arange(6)),
    (model, "DEVIATIONS", 0.003 * 4.0 ** np.arange(4)),
    (model, "SWITCHING", 0.0002),
    (model, "SWITCHING", 0.005),
    (model, "SCATTER", 2.0),
    (model, "SCATTER", 25.0),
    (mixture, "ITERATIONS", 20),
    (shift, "DEVIATIONS", 0.01 * 4.0 ** np.arange(4)),
    (shift, "DEVIATIONS", 0.005 * 2.0 ** np.arange(7)),
    (shift, "SWITCHING", 0.002),
    (shift, "SWITCHING", 0.05),
    (basis_online, "SHIFT_AFTER_TABLE", 0.01),
    (basis_online, "SHIFT_AFTER_TABLE", 0.25),
    (shift, "SHARPENING_START", 0.004),
    (shift, "SHARPENING_START", 0.1),
    (shift, "SHARPENING_SHARE", 0.02),
    (shift, "SHARPENING_SHARE", 0.5),
    (shift, "TREND_START", 1e-8),
    (shift, "TREND_START", 1e-4),
    (shift, "TREND_SHARE", 3e-5),
    (shift, "TREND_SHARE", 3e-3),
    (shift, "TREND_MEMORY", 0.95),
    (shift, "TREND_MEMORY", 0.998),
]


@contextmanager
def changed(module: Any, name: str, value: Any) -> Iterator[None]:
    """With another value of a constant."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def errors(record: RewardRecord, cache: int, seeds: int) -> str:
    """Mean squared error of "basis-online" by quarter, as text."""
    result = replay(record, contenders(["basis-online"]), cache_rollouts=cache, seeds=seeds)
    rows = result.by_step(4).rows
    return " ".join(f"{result.mse('basis-online', part).value:.4f}" for part in rows)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record")
    parser.add_argument("--steps", default="1:44")
    parser.add_argument("--caches", default="32,8")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    first, last = map(int, arguments.steps.split(":"))
    record = read_record(arguments.record, steps=(first, last))
    for cache in map(int, arguments.caches.split(",")):
        print(f"cache of {cache}: {'as it is':34s} {errors(record, cache, arguments.seeds)}")
        for module, name, value in CHANGES:
            with changed(module, name, value):
                shown = np.array2string(np.asarray(value), precision=3, separator=",")
                label = f"{module.__name__.split('.')[-1]}.{name} {shown}"
                print(f"  {label:60.60s} {errors(record, cache, arguments.seeds)}", flush=True)


if __name__ == "__main__":
    main()
