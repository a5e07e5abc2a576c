"""Texts of two tokens that an engine samples, compared with the model's own probabilities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from random_qwen3 import make_tokenizer

from basis_rl.rollouts.engine import Completion, Engine, Request
from basis_rl.rollouts.settings import SamplingSettings

PROMPTS = ["1+1=", "hello, "]
DRAWS = 6000
LEAST = 20  # expected draws of a text that is counted by itself
# A right engine is below this once in a million runs.
ALPHA = 1e-6

SETTINGS = {
    "plain": SamplingSettings(max_tokens=2),
    "temperature": SamplingSettings(temperature=0.7, max_tokens=2),
    "top-p": SamplingSettings(top_p=0.6, max_tokens=2),
    "top-k": SamplingSettings(top_k=20, max_tokens=2),
    "all": SamplingSettings(temperature=1.3, top_p=0.8, top_k=50, max_tokens=2),
}


def network(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def next_token(logits: torch.Tensor, settings: SamplingSettings) -> torch.Tensor:
    """Probabilities of the next token, by the definition of the settings; shape (R, V)."""
    logits = logits.double() / settings.temperature
    if settings.top_k:
        least = logits.topk(settings.top_k).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    probabilities = logits.softmax(-1)
    if settings.top_p < 1:
        ordered, ids = probabilities.sort(-1, descending=True)
        before = ordered.cumsum(-1) - ordered
        ordered = ordered.masked_fill(before >= settings.top_p, 0)
        probabilities = torch.zeros_like(ordered).scatter(-1, ids, ordered)
    return probabilities / probabilities.sum(-1, keepdim=True)


def pairs(model: Any, prompt: str, settings: SamplingSettings) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities of the first token, (V,), and of the second after each first, (V, V)."""
    tokens = torch.tensor([make_tokenizer()(prompt)["input_ids"]])
    size = model.config.vocab_size
    with torch.inference_mode():
        first = next_token(model(tokens).logits[:, -1], settings)[0]
        both = torch.cat([tokens.expand(size, -1), torch.arange(size)[:, None]], dim=1)
        second = next_token(model(both).logits[:, -1], settings)
    return first, second


def expected_texts(model: Any, prompt: str, settings: SamplingSettings) -> dict[str, float]:
    """Probability of each text of ASCII characters, and of each first character."""
    tokenizer = make_tokenizer()
    first, second = pairs(model, prompt, settings)
    ids = tokenizer.convert_tokens_to_ids([chr(c) for c in range(33, 127)])
    joint = first[:, None] * second
    texts = {}
    # These two have no text and do not end a completion.
    silent = tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_start|>"])
    for a in ids:
        texts[tokenizer.decode([a])] = float(first[a] + joint[silent, a].sum())
        for b in ids:
            texts[tokenizer.decode([a, b])] = float(joint[a, b])
    return texts


def chi_square(texts: list[str], expected: dict[str, float]) -> tuple[float, int]:
    """The statistic and its degrees of freedom.

    Bins: texts of two characters that are often expected, first characters of the others, rest.
    """
    draws = len(texts)
    frequent = {t: p for t, p in expected.items() if len(t) == 2 and p * draws >= LEAST}
    bins = dict(frequent)
    for text, p in expected.items():
        if len(text) == 1:
            others = p - sum(q for t, q in frequent.items() if t[0] == text)
            if others * draws >= LEAST:
                bins[text + "…"] = others
    bins["rest"] = max(0.0, 1 - sum(bins.values()))

    def bin_of(text: str) -> str:
        if text in frequent:
            return text
        return text[:1] + "…" if text[:1] + "…" in bins else "rest"

    counts = Counter(map(bin_of, texts))
    statistic = 0.0
    for name, p in bins.items():
        if p * draws > 1e-9:
            statistic += (counts[name] - p * draws) ** 2 / (p * draws)
        elif counts[name]:
            return float("inf"), len(bins) - 1
    assert len(bins) > 5
    return statistic, len(bins) - 1


def probability(statistic: float, freedom: int) -> float:
    """How probable a chi-square statistic of at least this size is."""
    half = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def drawn(engine: Engine, settings: SamplingSettings, *, seed: int = 0) -> list[list[str]]:
    """Texts of DRAWS completions of each prompt."""
    requests = [Request(prompt, prompt, 0, DRAWS) for prompt in PROMPTS]
    texts: dict[str, list[str]] = {prompt: [] for prompt in PROMPTS}
    for finished in engine.stream(requests, settings, seed=seed):
        for part in finished:
            texts[part.key] += [completion.text for completion in part.completions]
    return list(texts.values())


def agreement(model: Any, texts: list[list[str]], settings: SamplingSettings) -> float:
    """How probable a statistic as large as that of these texts is, over all prompts."""
    found = [
        chi_square(row, expected_texts(model, prompt, settings))
        for row, prompt in zip(texts, PROMPTS, strict=True)
    ]
    return probability(sum(s for s, _ in found), sum(f for _, f in found))


def check_that_differences_show(engine: Engine, model: Any) -> None:
    """The same statistic refuses another temperature and settings that are not followed."""
    hotter = drawn(engine, SamplingSettings(temperature=1.1, max_tokens=2))
    assert agreement(model, hotter, SETTINGS["plain"]) < ALPHA
    plain = drawn(engine, SETTINGS["plain"], seed=1)
    for name in ("top-p", "top-k", "temperature"):
        assert agreement(model, plain, SETTINGS[name]) < ALPHA


def two_samples(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> float:
    """How probable it is that (right, all) counts of the same prompts differ as much as these."""
    statistic, freedom = 0.0, 0
    for (a, n), (b, m) in zip(one, other, strict=True):
        rate = (a + b) / (n + m)
        if min(n, m) * min(rate, 1 - rate) >= 5:
            statistic += (a / n - b / m) ** 2 / (rate * (1 - rate) * (1 / n + 1 / m))
            freedom += 1
    assert freedom >= 3
    return probability(statistic, freedom)


def by_number(
    engine: Engine, requests: Sequence[Request], settings: SamplingSettings
) -> dict[tuple[str, int], Completion]:
    """Completions by prompt key and number; each comes once."""
    found: dict[tuple[str, int], Completion] = {}
    for finished in engine.stream(requests, settings, seed=3):
        for part in finished:
            for number, completion in enumerate(part.completions, start=part.first):
                assert (part.key, number) not in found
                found[part.key, number] = completion
    return found
