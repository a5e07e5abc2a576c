"""A tiny random Qwen3 with an in-memory tokenizer, and trainers for it; nothing is downloaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from basis_rl import PassRates
from basis_rl.passrates import Provenance, prompt_key
from basis_rl.trl import BasisConfig, BasisTrainer

SPECIAL = ["<pad>", "<eos>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level tokenizer: the special tokens, then one token a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: number for number, token in enumerate([*SPECIAL, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        additional_special_tokens=SPECIAL[2:],
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
    )


def tiny_model(seed: int = 0, *, hidden: int = 32, end_tokens: int = 1) -> Qwen3ForCausalLM:
    """Two layers, random weights, float32; ``end_tokens`` of the 260 tokens end a completion."""
    torch.manual_seed(seed)
    ends = list(range(1, 1 + end_tokens)) if end_tokens > 1 else 1
    config = Qwen3Config(
        vocab_size=len(SPECIAL) + 256,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=hidden // 4,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=0)
    return model


def sums(rows: int, **columns: list[Any]) -> Dataset:
    """Distinct addition prompts; further columns as lists."""
    lists = {
        "prompt": [f"{i // 10}+{i % 10}=" for i in range(rows)],
        "id": [f"sum-{i}" for i in range(rows)],
        **columns,
    }
    return Dataset.from_dict(lists)


def keys_of(rows: list[dict[str, Any]]) -> list[str]:
    """Keys of the rows of a generation batch."""
    return [prompt_key(row["prompt"]) for row in rows]


def table_for(data: Dataset, *, n: int = 8, **provenance: Any) -> PassRates:
    """Pass rates 1/n, 2/n, … (n-1)/n, 1/n, … of a data set's prompts."""
    keys = [prompt_key(prompt) for prompt in data["prompt"]]
    successes = [1 + i % (n - 1) for i in range(len(keys))]
    return PassRates.from_counts(keys, successes, n, provenance=Provenance(**provenance))


def tiny_config(folder: Path, **changes: Any) -> BasisConfig:
    """Four prompts a step, six tokens, one step; silent."""
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "max_steps": 1,
        "max_completion_length": 6,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    return BasisConfig(**(settings | changes))


class RecordingTrainer(BasisTrainer):
    """Keeps the rows and TRL's batch of every generation, and the inputs of every loss."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.generated: list[tuple[list[dict[str, Any]], dict[str, Any]]] = []
        self.losses: list[dict[str, Any]] = []
        super().__init__(*args, **kwargs)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        if self.model.training:
            self.generated.append((inputs, dict(output)))
        return output

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        self.losses.append(dict(inputs))
        return super().compute_loss(model, inputs, *args, **kwargs)


def parity(prompts: list[Any], **_: Any) -> list[float]:
    """Reward by the prompt alone: 1 where its digits add up to an odd number."""
    return [float(sum(int(c) for c in str(prompt) if c.isdigit()) % 2) for prompt in prompts]


def tiny_trainer(
    config: BasisConfig, data: Dataset, rewards: Any = parity, **kwargs: Any
) -> RecordingTrainer:
    """Recording trainer of the tiny model; pass rates of all prompts unless something is given."""
    if not {"pass_rates", "estimator"} & kwargs.keys() and config.pass_rates is None:
        kwargs["pass_rates"] = table_for(data)
    model = kwargs.pop("model", None) or tiny_model()
    return RecordingTrainer(
        model, rewards, config, data, processing_class=tiny_tokenizer(), **kwargs
    )
