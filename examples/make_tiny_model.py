"""Write a tiny model that can do a little arithmetic: for a first run without a GPU or a hub.

    python examples/make_tiny_model.py runs/tiny-model

A Qwen3 of 0.1M parameters with a tokenizer of single bytes. It sees each sum and difference of
two one-digit numbers a few dozen times, so that it gets about a quarter of them right.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

END, PADDING = "<|im_end|>", "<|endoftext|>"
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def make_tokenizer() -> Any:
    """A tokenizer with one token a byte and a chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([PADDING, "<|im_start|>", END, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PADDING,
        additional_special_tokens=["<|im_start|>"],
        chat_template=CHAT_TEMPLATE,
    )


def make_model(tokenizer: Any, *, seed: int = 0) -> Any:
    """A random Qwen3 with two layers of width 64."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,  # the least that vLLM takes on a CPU
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen3ForCausalLM(config)


def teach(model: Any, tokenizer: Any, *, steps: int) -> float:
    """Fit the answers of all one-digit sums and differences; returns the last loss."""
    texts = [
        (f"{a} {sign} {b}=", f"{a + b if sign == '+' else a - b}{END}")
        for a, b, sign in itertools.product(range(10), range(10), "+-")
    ]
    rows = [(tokenizer(q).input_ids, tokenizer(a).input_ids) for q, a in texts]
    width = max(len(q) + len(a) for q, a in rows)
    ids = torch.full((len(rows), width), tokenizer.pad_token_id)
    labels = torch.full((len(rows), width), -100)
    for i, (question, answer) in enumerate(rows):
        ids[i, : len(question) + len(answer)] = torch.tensor(question + answer)
        labels[i, len(question) : len(question) + len(answer)] = torch.tensor(answer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss = torch.tensor(0.0)
    for _ in range(steps):
        chosen = torch.randperm(len(rows))[:64]
        loss = model(input_ids=ids[chosen], labels=labels[chosen]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def write(folder: str | Path, *, steps: int = 120) -> None:
    """Make the model and save it with its tokenizer."""
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    loss = teach(model, tokenizer, steps=steps)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    ).save_pretrained(folder)
    print(f"wrote {folder} ({model.num_parameters():,} parameters, loss {loss:.2f})")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/make_tiny_model.py FOLDER")
    write(sys.argv[1])
