"""What a build adds to the time of an engine: processor time per completion, by batch size.

A stand-in engine gives completions of real text as fast as they are taken, and a verifier judges
them at once, so that all the time measured is the builder's. Run: python benchmarks/bench_build.py
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from basis_rl.passrates.build import build_cache, journal_path
from basis_rl.prompts import Prompt
from basis_rl.rollouts import Completion, Engine, Request, Rollouts, SamplingSettings
from basis_rl.verifiers import NamedVerifier

TOKENS_PER_CHARACTER = 0.25
PAGES = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))


class Ready(Engine):
    """Has its completions before it is asked."""

    name = "ready"

    def __init__(self, texts: Sequence[str], together: int) -> None:
        self.model = "ready"
        self._texts, self._together = texts, together

    @classmethod
    def open(cls, model: str, **_: Any) -> Ready:
        """Make one with a single text."""
        return cls([model], 1)

    def stream(
        self, requests: Sequence[Request], settings: SamplingSettings, *, seed: int = 0
    ) -> Iterator[list[Rollouts]]:
        """Give all completions, so many at a time."""
        finished: list[Rollouts] = []
        for place, request in enumerate(requests):
            first = place * request.count
            texts = [self._texts[(first + i) % len(self._texts)] for i in range(request.count)]
            done = tuple(Completion(t, int(len(t) * TOKENS_PER_CHARACTER)) for t in texts)
            finished.append(Rollouts(request.key, request.first, done))
            if sum(len(part.completions) for part in finished) >= self._together:
                yield finished
                finished = []
        if finished:
            yield finished


def main() -> None:
    """Print processor time and capacity for several numbers of completions in a batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--completions", type=int, default=8192)
    parser.add_argument("--characters", type=int, default=2000)
    options = parser.parse_args()
    content = "".join(path.read_text() for path in PAGES)
    starts = random.Random(0).choices(range(len(content) - options.characters), k=2000)
    texts = [content[start : start + options.characters] for start in starts]
    settings = SamplingSettings()
    for n, together in ((1, 1), (8, 8), (8, 64), (64, 512)):
        prompts = [
            Prompt(f"k{i}", f"p{i}", None, {"answer": "x"}) for i in range(options.completions // n)
        ]
        requests = [Request(p.key, p.prompt, 0, n) for p in prompts]
        start = time.process_time()
        for _ in Ready(texts, together).stream(requests, settings):
            pass
        alone = time.process_time() - start
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "t.parquet"
            start = time.process_time()
            verifier = NamedVerifier("short", "1", lambda text, _: float(len(text) % 2))
            build_cache(prompts, Ready(texts, together), verifier, path, n=n, settings=settings)
            each = (time.process_time() - start - alone) / options.completions
            size = journal_path(path).stat().st_size / options.completions
            start = time.process_time()
            path.unlink()
            build_cache(prompts, Ready(texts, together), verifier, path, n=n, settings=settings)
            again = options.completions / (time.process_time() - start)
        tokens = options.characters * TOKENS_PER_CHARACTER
        print(
            f"{together:4d} completions at a time: {each * 1e6:4.0f} us each, up to "
            f"{1 / each:7,.0f} completions/s; {7000 / tokens * each:.3%} of the time of an engine "
            f"with 7,000 tokens/s, {100_000 / tokens * each:.2%} with 100,000; journal "
            f"{size:5.0f} bytes each, read at {again:7,.0f}/s"
        )


if __name__ == "__main__":
    main()
