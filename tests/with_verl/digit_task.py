"""A task that a tiny model learns in thirty steps: "name 7 or more" is answered by one digit.

The model starts from answering with any digit, whatever is asked. So a prompt's pass rate is known
from the digit in it, .8 for "2 or more" and .1 for "9 or more"; the best answer to all is 9. The
evaluation's prompts have words that neither the training nor the model's start has seen.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from assets import Assets, save_model, write_rows

WORDS = [
    "say", "name", "pick", "give", "read", "tell", "type", "show",
    "draw", "take", "send", "find", "want", "list", "call", "note",
]  # fmt: skip
NEW_WORDS = ["sign", "mark", "ship", "play", "move", "keep", "hold", "print"]
LEAST = range(2, 10)
SOURCE = "toy/digits"
MAX_PROMPT = 36  # tokens
MAX_TOKENS = 4
WARM_UP = 120  # steps


def make_task(folder: Path, *, seed: int = 0) -> Assets:
    """Model and prompts; the pass rates are to be built where the last path says."""
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "model"
    save_model(model, seed=seed)
    answer_with_any_digit(model, seed=seed)
    train = write_rows(folder / "train.parquet", rows(WORDS, "train"))
    held_out = write_rows(folder / "held_out.parquet", rows(NEW_WORDS, "held_out"))
    return Assets(model, train, held_out, folder / "pass_rates.parquet")


def rows(words: Sequence[str], split: str) -> list[dict[str, Any]]:
    """Rows as verl's Parquet files have them: every word with every least digit."""
    pairs = [(word, least) for word in words for least in LEAST]
    return [
        {
            "data_source": SOURCE,
            "prompt": [{"role": "user", "content": f"{word} {least} or more"}],
            "ability": "digits",
            "reward_model": {"style": "rule", "ground_truth": str(least)},
            "extra_info": {"split": split, "index": i},
        }
        for i, (word, least) in enumerate(pairs)
    ]


def answer_with_any_digit(folder: Path, *, seed: int) -> None:
    """Next-token training of a saved model on random digits as answers; some seconds."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    prompts = [row["prompt"] for row in rows(WORDS, "train")]
    draw = random.Random(seed)
    for step in range(WARM_UP):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, 2 * (1 - step / WARM_UP))
        texts = [
            tokenizer.apply_chat_template(
                draw.choice(prompts), tokenize=False, add_generation_prompt=True
            )
            + str(draw.randrange(10))
            + tokenizer.eos_token
            for _ in range(64)
        ]
        batch = tokenizer(texts, return_tensors="pt", padding=True)
        labels = batch["input_ids"].clone()
        labels[:, :-2] = -100  # the digit and the end
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
