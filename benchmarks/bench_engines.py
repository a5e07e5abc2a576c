"""Tokens per second of a build beside those of its engine alone and of a plain script.

    python benchmarks/bench_engines.py [--engine transformers] [--rounds 5] [--n 8] ...
    python benchmarks/bench_engines.py --rows 8 16 32 64 128

The plain script calls the model's own `generate` (vLLM: `LLM.generate`) on the same prompts, in
batches of the same size. The three take turns, so that a busy neighbour slows all of them, and are
compared round by round. Without --model a random Qwen3 is made. With --rows: tokens per second of
the transformers engine by the rollouts sampled at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from basis_rl import verifiers
from basis_rl.passrates.build import build_cache
from basis_rl.prompts import Prompt
from basis_rl.rollouts import Engine, Request, SamplingSettings, open_engine

Options = argparse.Namespace


def save_model(folder: Path, options: Options) -> str:
    """Write a random Qwen3 with one token a byte."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    tokens = ["<pad>", "<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    bytewise = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[]))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bytewise, pad_token="<pad>", eos_token="<eos>"
    ).save_pretrained(str(folder))
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=options.vocab,
        hidden_size=options.hidden,
        intermediate_size=3 * options.hidden,
        num_hidden_layers=options.layers,
        num_attention_heads=options.hidden // 64,
        num_key_value_heads=max(1, options.hidden // 128),
        head_dim=64,
        tie_word_embeddings=True,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
    )
    Qwen3ForCausalLM(config).save_pretrained(str(folder))
    return str(folder)


def counted(engine: Engine) -> list[int]:
    """Let an engine count the tokens that it samples, into the first entry."""
    tokens, stream = [0], engine.stream

    def counting(*args: Any, **options: Any) -> Iterator[Any]:
        for finished in stream(*args, **options):
            tokens[0] += sum(c.tokens for part in finished for c in part.completions)
            yield finished

    engine.stream = counting  # type: ignore[method-assign]
    return tokens


def plain_transformers(
    engine: Any, prompts: list[Prompt], settings: SamplingSettings, options: Options
) -> int:
    """Sampled tokens of `model.generate` on prompts sorted by length."""
    texts = sorted((str(prompt.prompt) for prompt in prompts), key=len, reverse=True)
    engine.tokenizer.padding_side = "left"
    tokens = 0
    together = max(1, options.batch_size // options.n)
    for start in range(0, len(texts), together):
        inputs = engine.tokenizer(
            texts[start : start + together], padding=True, return_tensors="pt"
        ).to(engine.network.device)
        output = engine.network.generate(
            **inputs,
            do_sample=True,
            temperature=settings.temperature,
            top_k=0,
            num_return_sequences=options.n,
            max_new_tokens=settings.max_tokens,
        )
        sampled = output[:, inputs["input_ids"].shape[1] :]
        engine.tokenizer.batch_decode(sampled, skip_special_tokens=True)
        tokens += int((sampled != engine.tokenizer.pad_token_id).sum())
    return tokens


def plain_vllm(
    llm: Any, prompts: list[Prompt], settings: SamplingSettings, options: Options
) -> int:
    """Sampled tokens of one `LLM.generate`."""
    from vllm import SamplingParams

    sampling = SamplingParams(
        n=options.n, temperature=settings.temperature, max_tokens=settings.max_tokens
    )
    outputs = llm.generate([str(p.prompt) for p in prompts], sampling, use_tqdm=False)
    return sum(len(one.token_ids) for output in outputs for one in output.outputs)


PLAIN: dict[str, Callable[..., int]] = {"transformers": plain_transformers, "vllm": plain_vllm}


def opened(model: str, options: Options) -> tuple[Engine, Any]:
    """The engine, and what the plain script samples with: the same weights."""
    given = {name: json.loads(value) for name, value in (o.split("=", 1) for o in options.option)}
    if options.engine == "transformers":
        given = {"batch_size": options.batch_size, **given}
        engine = open_engine("transformers", model, options=given)
        return engine, engine
    from vllm import LLM

    from basis_rl.rollouts.vllm_engine import VllmEngine

    llm = LLM(model, generation_config="vllm", **given)
    return VllmEngine(llm, model=model), llm


def compare(engine: Engine, plain: Any, prompts: list[Prompt], options: Options) -> None:
    """Print tokens per second and ratios, round by round."""
    settings = SamplingSettings(max_tokens=options.tokens)
    tokens = counted(engine)
    verifier = verifiers.create(options.verifier)
    warnings.filterwarnings("ignore", ".*completion.* was right")  # of random weights

    def stream(seed: int) -> int:
        tokens[0] = 0
        requests = [Request(p.key, p.prompt, 0, options.n) for p in prompts]
        for _ in engine.stream(requests, settings, seed=seed):
            pass
        return tokens[0]

    def build(seed: int) -> int:
        tokens[0] = 0
        with tempfile.TemporaryDirectory() as folder:
            build_cache(
                prompts,
                engine,
                verifier,
                Path(folder) / "cache.parquet",
                n=options.n,
                settings=settings,
                seed=seed,
            )
        return tokens[0]

    runs: dict[str, Callable[[int], int]] = {
        "plain script": lambda _: PLAIN[options.engine](plain, prompts, settings, options),
        "engine": stream,
        "build": build,
    }
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    for round_number in range(-1, options.rounds):  # the first one warms up
        for name in runs if round_number % 2 else reversed(runs):
            start = time.perf_counter()
            sampled = runs[name](round_number + 1)
            if round_number >= 0:
                speeds[name].append(sampled / (time.perf_counter() - start))
    verifier.close()
    for name, measured in speeds.items():
        print(f"{name:14s}{statistics.median(measured):10.0f} tokens/s")
    for one, other in (("build", "engine"), ("build", "plain script"), ("engine", "plain script")):
        ratios = [a / b for a, b in zip(speeds[one], speeds[other], strict=True)]
        print(
            f"{one} / {other}: {statistics.median(ratios):.3f} "
            f"(rounds: {min(ratios):.3f} to {max(ratios):.3f})"
        )


def by_rows(engine: Any, prompts: list[Prompt], options: Options) -> None:
    """Print tokens per second by rollouts sampled at a time."""
    from basis_rl.rollouts.batch_size import BatchSize

    settings = SamplingSettings(max_tokens=options.tokens)
    requests = [Request(p.key, p.prompt, 0, options.n) for p in prompts]
    speeds: dict[int, list[float]] = {rows: [] for rows in options.rows}
    for round_number in range(options.rounds):
        for rows in options.rows if round_number % 2 else reversed(options.rows):
            engine.batch_size = BatchSize(engine.network, rows)
            start = time.perf_counter()
            sampled = sum(
                completion.tokens
                for finished in engine.stream(requests, settings)
                for part in finished
                for completion in part.completions
            )
            speeds[rows].append(sampled / (time.perf_counter() - start))
    for rows, measured in speeds.items():
        print(f"{rows:5d} rows: {statistics.median(measured):8.0f} tokens/s")


def main() -> None:
    """Open the engine, make prompts, measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", default="transformers", choices=sorted(PLAIN))
    parser.add_argument("--model", help="folder or hub id; a random Qwen3 without it")
    parser.add_argument(
        "--option", action="append", default=[], help="of the engine (vLLM: of LLM): name=JSON"
    )
    parser.add_argument("--verifier", default="exact")
    parser.add_argument("--rows", type=int, nargs="+", help="rollouts at a time to try")
    for option, default in (
        ("rounds", 5), ("prompts", 64), ("n", 8), ("tokens", 64), ("batch-size", 64),
        ("vocab", 4096), ("hidden", 256), ("layers", 4),
    ):  # fmt: skip
        parser.add_argument(f"--{option}", type=int, default=default, help=f"default {default}")
    options = parser.parse_args()
    prompts = [
        Prompt(f"k{i}", f"{'#' * (i * 37 % 120)} {i}+{i}=", None, {"answer": str(2 * i)})
        for i in range(options.prompts)
    ]
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or save_model(Path(folder), options)
        what = options.model or (
            f"a random Qwen3 (hidden {options.hidden}, layers {options.layers}, vocabulary "
            f"{options.vocab})"
        )
        engine, plain = opened(model, options)
        with engine:
            print(
                f"{engine.name} {engine.version}, {what}, {options.prompts} prompts, n "
                f"{options.n}, up to {options.tokens} tokens"
            )
            if options.rows:
                by_rows(engine, prompts, options)
            else:
                compare(engine, plain, prompts, options)


if __name__ == "__main__":
    main()
