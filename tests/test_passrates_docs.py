"""The pages on pass rates: their Python runs as it stands, from top to bottom."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from basis_rl.passrates import PassRates, prompt_key
from basis_rl.rollouts import Completion, Engine, Request, Rollouts, SamplingSettings
from basis_rl.rollouts.create import ENGINES

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("pass-rates.md", "tables.md")


class Knowing(Engine):
    """Stands for the model that the page loads: it answers every second time."""

    name = "knowing"
    model = "knowing"

    @classmethod
    def open(cls, model: str, **_: Any) -> Knowing:
        return cls()

    def stream(
        self, requests: Sequence[Request], settings: SamplingSettings, *, seed: int = 0
    ) -> Iterator[list[Rollouts]]:
        texts = ("It is 21.", "I do not know.")
        for request in requests:
            answers = tuple(Completion(texts[i % 2], 5) for i in range(request.count))
            yield [Rollouts(request.key, request.first, answers)]


def test_python_of_the_pages_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(ENGINES, "transformers", (__name__, "Knowing"))
    known = prompt_key("17+4=")
    PassRates.from_counts([known], [3], 8).save("pass-rates.parquet")
    Path("prompts.jsonl").write_text(json.dumps({"prompt": "17+4=", "answer": "21"}) + "\n")
    text = "\n".join((DOCS / page).read_text() for page in PAGES)
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, Any] = {}
    for block in blocks:
        names = {}  # each block is whole in itself
        exec(block, names)
    assert names["key"] == known
    more = PassRates.load("more.parquet")
    assert more.keys == [known, prompt_key("80-1=")]
    assert more.n.tolist() == [16, 8]
    assert PassRates.load("own.parquet").means.tolist() == [3 / 8, 0.0]
    assert PassRates.load("qwen3.parquet").means.tolist() == [0.5]
