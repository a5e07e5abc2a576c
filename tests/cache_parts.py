"""A stand-in engine, prompts and short calls for the tests of builds."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from basis_rl.passrates import PassRates
from basis_rl.passrates.build import build_cache, journal_path
from basis_rl.passrates.build.lines import decoded, encoded
from basis_rl.passrates.build.members import MemberFile, read_members
from basis_rl.prompts import Prompt
from basis_rl.rollouts import Completion, Engine, Request, Rollouts, SamplingSettings
from basis_rl.verifiers import NamedVerifier

SETTINGS = SamplingSettings(max_tokens=3)


class Digits(Engine):
    """Writes a digit drawn from seed, key and number; can be stopped after some batches."""

    name = "digits"

    def __init__(self, stop_after: int | None = None, *, batch: int = 3, **names: Any) -> None:
        self.model, self.revision, self.dtype, self.version = "digits", "r1", "float32", "1"
        self.batches = 0
        self.asked: list[tuple[str, int]] = []
        self.stop_after, self.batch = stop_after, batch
        vars(self).update(names)

    @classmethod
    def open(cls, model: str, **_: Any) -> Digits:  # type: ignore[override]
        return cls()

    def stream(
        self, requests: Sequence[Request], settings: SamplingSettings, *, seed: int = 0
    ) -> Iterator[list[Rollouts]]:
        for start in range(0, len(requests), self.batch):
            if self.batches == self.stop_after:
                raise KeyboardInterrupt
            self.batches += 1
            yield [self.answer(request, seed) for request in requests[start : start + self.batch]]

    def answer(self, request: Request, seed: int) -> Rollouts:
        numbers = range(request.first, request.first + request.count)
        self.asked += [(request.key, number) for number in numbers]
        texts = [digit(seed, request.key, number) for number in numbers]
        return Rollouts(
            request.key, request.first, tuple(Completion(text, 2, text == "9") for text in texts)
        )


def digit(seed: int, key: str, number: int) -> str:
    return str(random.Random(f"{seed} {key} {number}").randint(0, 9))


def prompts(count: int = 10) -> list[Prompt]:
    return [Prompt(f"k{i}", f"p{i}", "ab"[i % 2], {"answer": str(i)}) for i in range(count)]


def is_odd(version: str = "1") -> NamedVerifier:
    return NamedVerifier("odd", version, lambda completion, _: float(int(completion) % 2))


def build(path: Path, engine: Any = None, verifier: Any = None, **options: Any) -> PassRates:
    settings = {"n": 4, "settings": SETTINGS, **options}
    items = settings.pop("prompts", prompts())
    return build_cache(items, engine or Digits(), verifier or is_odd(), path, **settings)


def journal_lines(path: Path) -> list[dict[str, Any]]:
    """Lines of the journal of a build that writes ``path``."""
    return [line for m in read_members(journal_path(path)) for line in decoded(m.content)]


def write_journal(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Replace the journal of a build that writes ``path``; one member a line."""
    journal_path(path).unlink(missing_ok=True)
    file = MemberFile(journal_path(path))
    for line in lines:
        file.append(encoded([line]))
    file.close()


def rows(table: PassRates) -> Any:
    values = table.successes if table.reward_values is None else table.reward_values
    assert values is not None
    return list(table.keys), table.sources, table.n.tolist(), values.tolist()
