"""A tiny language model that can partly add, made in a minute or two: for `basis-rl lab gradient`.

    python benchmarks/tiny_policy.py tiny
    basis-rl lab gradient tiny/model --data tiny/sums.jsonl --verifier exact --max-tokens 3

writes a model of two layers (27,000 numbers) with its tokenizer, and the sums as prompts.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from random_qwen3 import make_model, make_tokenizer  # type: ignore[import-not-found]

LARGEST = 16
BATCH = 64


def sums() -> list[tuple[str, str]]:
    """Prompts and answers; the larger the numbers, the more seldom they are trained on."""
    return [(f"{a}+{b}=", str(a + b)) for a in range(LARGEST) for b in range(LARGEST)]


def train(model: Any, tokenizer: Any, steps: int, seed: int) -> float:
    """Next-token training on the sums, small numbers more often; returns the last loss."""
    generator = torch.Generator().manual_seed(seed)
    rows = sums()
    weights = torch.tensor([1.0 / (1.0 + i // LARGEST + i % LARGEST) for i in range(len(rows))])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss = float("nan")
    model.train()
    for _ in range(steps):
        chosen = torch.multinomial(weights, BATCH, replacement=True, generator=generator)
        texts = [rows[i][0] + rows[i][1] + tokenizer.eos_token for i in chosen.tolist()]
        batch = tokenizer(texts, return_tensors="pt", padding=True)
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        output = model(**batch, labels=labels)
        output.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss = float(output.loss)
    return loss


def main() -> None:
    """Write the model and its prompts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    model, tokenizer = make_model(seed=options.seed), make_tokenizer()
    loss = train(model, tokenizer, options.steps, options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    model.eval().save_pretrained(options.out / "model")
    tokenizer.save_pretrained(options.out / "model")
    lines = [json.dumps({"prompt": p, "answer": a}) + "\n" for p, a in sums()]
    (options.out / "sums.jsonl").write_text("".join(lines))
    parameters = sum(p.numel() for p in model.parameters())
    print(f"wrote {options.out}: {parameters:,} parameters, last loss {loss:.3f}")


if __name__ == "__main__":
    main()
