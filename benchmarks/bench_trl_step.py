"""Time of a training step: TRL's `GRPOTrainer` beside `BasisTrainer`, same rollouts per step.

    python benchmarks/bench_trl_step.py [--rounds 7] [--vocab 8192] [--hidden 128] ...

In every round each trainer starts from the same random Qwen3 and takes a few steps; rounds are
interleaved, so that a busy neighbour slows all of them, and compared in pairs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    PrinterCallback,
    Qwen3Config,
    Qwen3ForCausalLM,
    TrainerCallback,
    logging,
)
from trl import GRPOConfig, GRPOTrainer

from basis_rl import PassRates
from basis_rl.passrates import prompt_key
from basis_rl.trl import BasisConfig, BasisTrainer

BASIS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "basis": lambda options: {"num_generations": options.group},
    "basis, one rollout": lambda options: {"num_generations": 1},
    "basis, fused head": lambda options: {"num_generations": options.group, "plain_logits": False},
}


class Clock(TrainerCallback):
    """Seconds of each step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._start = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Start."""
        self._start = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Stop."""
        self.seconds.append(time.perf_counter() - self._start)


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte."""
    tokens = ["<pad>", "<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    bytewise = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[]))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bytewise, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )


def model(options: argparse.Namespace) -> Qwen3ForCausalLM:
    """Random weights."""
    torch.manual_seed(0)
    made = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=options.vocab,
            hidden_size=options.hidden,
            intermediate_size=2 * options.hidden,
            num_hidden_layers=options.layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=options.hidden // 4,
            tie_word_embeddings=True,
            eos_token_id=1,
            pad_token_id=0,
            bos_token_id=None,
        )
    )
    made.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        eos_token_id=1, pad_token_id=0
    )
    return made


def reward(completions: list[str], **_: Any) -> list[float]:
    """Something that varies and costs nothing."""
    return [float(len(text) % 2) for text in completions]


def step_times(name: str, options: argparse.Namespace, data: Dataset, table: PassRates) -> float:
    """Median seconds of a step, the first one left out."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {
            "output_dir": folder,
            "use_cpu": not torch.cuda.is_available(),
            "bf16": False,
            "gradient_checkpointing": False,
            "per_device_train_batch_size": options.rollouts,
            "gradient_accumulation_steps": 1,
            "max_steps": options.steps + 1,
            "max_completion_length": options.tokens,
            # Everybody samples the same number of tokens.
            "generation_kwargs": {"min_new_tokens": options.tokens},
            "report_to": "none",
            "save_strategy": "no",
            "logging_strategy": "no",
            "disable_tqdm": True,
        }
        common: dict[str, Any] = {"processing_class": tokenizer(), "callbacks": [clock]}
        if name == "trl":
            config = GRPOConfig(**settings, num_generations=options.group, loss_type="grpo")
            trainer = GRPOTrainer(model(options), reward, config, data, **common)
        else:
            config = BasisConfig(**settings, **BASIS[name](options))
            trainer = BasisTrainer(model(options), reward, config, data, pass_rates=table, **common)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return statistics.median(clock.seconds[1:])


def main() -> None:
    """Print medians and the paired ratios to TRL's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for option, default in (
        ("rounds", 7), ("steps", 6), ("rollouts", 64), ("group", 8), ("tokens", 16),
        ("prompt", 24), ("vocab", 4096), ("hidden", 128), ("layers", 2),
    ):  # fmt: skip
        parser.add_argument(f"--{option}", type=int, default=default, help=f"default {default}")
    options = parser.parse_args()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    prompts = [f"{i}+{i}=".rjust(options.prompt, "#") for i in range(options.rollouts * 4)]
    data = Dataset.from_dict({"prompt": prompts})
    table = PassRates.from_counts([prompt_key(p) for p in prompts], [4] * len(prompts), 8)
    names = ("trl", *BASIS)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for round_number in range(options.rounds):
        for name in names if round_number % 2 else names[::-1]:
            seconds[name].append(step_times(name, options, data, table))
    print(f"{options.rollouts} rollouts a step, {torch.get_num_threads()} threads")
    for name in names:
        ratios = [one / stock for one, stock in zip(seconds[name], seconds["trl"], strict=True)]
        print(
            f"{name:20s} {1e3 * statistics.median(seconds[name]):8.1f} ms a step, "
            f"{statistics.median(ratios):.3f} of TRL's "
            f"(rounds: {min(ratios):.3f} to {max(ratios):.3f})"
        )


if __name__ == "__main__":
    main()
