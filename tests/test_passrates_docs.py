"""The page on pass rates: its Python runs as it stands, from top to bottom."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from basis_rl.passrates import PassRates, prompt_key
from basis_rl.rollouts import SamplingSettings, TransformersSampler

PAGE = Path(__file__).parents[1] / "docs" / "pass-rates.md"


class Knowing:
    """Stands for the model that the page loads: it answers every second time."""

    model = "knowing"
    revision = None

    def sample(
        self,
        prompts: Sequence[Any],
        n: int = 1,
        settings: SamplingSettings | None = None,
        *,
        seed: int = 0,
        keys: Sequence[str] | None = None,
    ) -> list[list[str]]:
        return [["It is 21.", "I do not know."] * (n // 2) for _ in prompts]


def test_python_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(TransformersSampler, "from_pretrained", lambda _: Knowing())
    known = prompt_key("17+4=")
    PassRates.from_counts([known], [3], 8).save("pass-rates.parquet")
    Path("prompts.jsonl").write_text(json.dumps({"prompt": "17+4=", "answer": "21"}) + "\n")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
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
