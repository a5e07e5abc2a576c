"""The same small cache from two engines."""

from __future__ import annotations

from pathlib import Path

from exact_texts import ALPHA, two_samples

from basis_rl import verifiers
from basis_rl.passrates import PassRates
from basis_rl.passrates.build import build_cache
from basis_rl.prompts import Prompt
from basis_rl.rollouts.create import open_engine
from basis_rl.rollouts.engine import Engine
from basis_rl.rollouts.settings import SamplingSettings

N = 400
# An answer is right where its text begins with the prompt's last character.
PROMPTS = [
    Prompt(key=text, prompt=text, source=None, columns={"answer": text[-1]})
    for text in ("1+1=", "hello", "ab", "x", "what?", "a longer prompt, 17+4=", "~~", "%")
]


def first_character(completion: str, answer: str, **_: object) -> float:
    return float(completion[:1] == answer)


def built(engine: Engine, path: Path, *, temperature: float = 1.0) -> PassRates:
    verifier = verifiers.create("small_caches:first_character")
    settings = SamplingSettings(max_tokens=3, temperature=temperature)
    try:
        return build_cache(PROMPTS, engine, verifier, path, n=N, settings=settings)
    finally:
        verifier.close()


def counts(table: PassRates) -> list[tuple[int, int]]:
    rows = table.rows([prompt.key for prompt in PROMPTS])
    assert table.successes is not None
    return list(zip(table.successes[rows].tolist(), table.n[rows].tolist(), strict=True))


def check_cache(engine: Engine, folder: Path, tmp_path: Path) -> None:
    """An engine's pass rates are those of the transformers engine, and a hotter one's are not."""
    table = built(engine, tmp_path / "one.parquet")
    assert (table.provenance.model, table.provenance.temperature) == (engine.model, 1.0)
    with open_engine("transformers", str(folder), dtype="float32") as other:
        reference = counts(built(other, tmp_path / "other.parquet"))
        hotter = counts(built(other, tmp_path / "hotter.parquet", temperature=1.5))
    assert [n for _, n in counts(table)] == [N] * len(PROMPTS)
    assert two_samples(counts(table), reference) > ALPHA
    assert two_samples(counts(table), hotter) < ALPHA
