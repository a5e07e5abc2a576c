"""A stand-in sampler, prompts and short calls for the tests of builds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from basis_rl.passrates import PassRates
from basis_rl.passrates.builder import build_cache
from basis_rl.passrates.journal import Journal
from basis_rl.prompts import Prompt
from basis_rl.rollouts import SamplingSettings
from basis_rl.verifiers import NamedVerifier

SETTINGS = SamplingSettings(max_tokens=3)


class Digits:
    """A sampler that writes a digit drawn from seed and key, and can be stopped after a batch."""

    model = "digits"
    revision = "r1"

    def __init__(self, stop_after: int | None = None) -> None:
        self.calls = 0
        self.stop_after = stop_after

    def sample(
        self,
        prompts: Sequence[Any],
        n: int = 1,
        settings: SamplingSettings | None = None,
        *,
        seed: int = 0,
        keys: Sequence[str] | None = None,
    ) -> list[list[str]]:
        if self.calls == self.stop_after:
            raise KeyboardInterrupt
        self.calls += 1
        assert keys is not None
        return [
            [str(random.Random(f"{seed} {key} {i}").randint(0, 9)) for i in range(n)]
            for key in keys
        ]


def prompts(count: int = 10) -> list[Prompt]:
    return [Prompt(f"k{i}", f"p{i}", "ab"[i % 2], {"answer": str(i)}) for i in range(count)]


def is_odd() -> NamedVerifier:
    return NamedVerifier("odd", "1", lambda completion, _: float(int(completion) % 2))


def build(path: Path, sampler: Any = None, verifier: Any = None, **options: Any) -> PassRates:
    settings = {"n": 4, "settings": SETTINGS, "batch_size": 3, **options}
    items = settings.pop("prompts", prompts())
    return build_cache(items, sampler or Digits(), verifier or is_odd(), path, **settings)


def open_journal(path: Path, batch_sizes: Sequence[int] = (), n: int = 4) -> Journal:
    return Journal(path, {}, created="now", batch_sizes=batch_sizes, n=n)


def rows(table: PassRates) -> Any:
    values = table.successes if table.reward_values is None else table.reward_values
    assert values is not None
    return table.keys, table.sources, table.n.tolist(), values.tolist()
