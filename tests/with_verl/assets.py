"""A tiny random Qwen3, its tokenizer, prompts and their pass rates, made at test time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from basis_rl import PassRates
from basis_rl.passrates import Provenance

SPECIAL = ["<pad>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SOURCE = "toy/addition"


@dataclass(frozen=True)
class Assets:
    """Files that a job needs."""

    model: Path
    train: Path
    validation: Path
    pass_rates: Path


def make_assets(
    folder: Path, *, prompts: int = 64, n: int = 8, seed: int = 0, model: Path | None = None
) -> Assets:
    """Distinct additions with ids "train-00000", … and pass rates 1/n, 2/n, …, (n-1)/n, 1/n, …."""
    folder.mkdir(parents=True, exist_ok=True)
    model = model or save_model(folder / "model", seed=seed)
    train = write_rows(folder / "train.parquet", addition_rows(prompts, "train"))
    validation = write_rows(folder / "validation.parquet", addition_rows(8, "validation"))
    table = folder / "pass_rates.parquet"
    keys = [row["prompt_id"] for row in addition_rows(prompts, "train")]
    table_of(keys, n=n, model=str(model)).save(table)
    return Assets(model, train, validation, table)


def addition_rows(count: int, split: str) -> list[dict[str, Any]]:
    """Rows as verl's Parquet files have them: one addition of two digits each."""
    return [
        {
            "prompt_id": f"{split}-{i:05d}",
            "data_source": SOURCE,
            "prompt": [{"role": "user", "content": f"{i // 10}+{i % 10}="}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": str(i // 10 + i % 10)},
            "extra_info": {"split": split, "index": i},
        }
        for i in range(count)
    ]


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


def table_of(keys: Sequence[str], *, n: int = 8, **provenance: Any) -> PassRates:
    """Pass rates of the keys, sampled with a job's own settings."""
    sampling = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 8}
    successes = [1 + i % (n - 1) for i in range(len(keys))]
    return PassRates.from_counts(
        list(keys), successes, n, provenance=Provenance(**(sampling | provenance))
    )


def save_model(folder: Path, *, seed: int = 0, hidden: int = 64) -> Path:
    """Two layers with random weights (about 94 thousand), and a tokenizer of single bytes."""
    import torch
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    tokenizer = byte_tokenizer()
    torch.manual_seed(seed)
    ends = {
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
    }
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=hidden // 4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        **ends,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    GenerationConfig(**ends).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def byte_tokenizer() -> Any:
    """The special tokens, then one token a byte."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: number for number, token in enumerate([*SPECIAL, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=SPECIAL[0],
        eos_token=SPECIAL[3],
        additional_special_tokens=SPECIAL[1:3],
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
    )
