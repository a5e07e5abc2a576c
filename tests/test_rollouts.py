from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from random_qwen3 import make_model, make_tokenizer, save_model

from basis_rl.errors import ConfigError
from basis_rl.rollouts import SamplingSettings, TransformersSampler
from basis_rl.rollouts.next_token import choose, uniforms

PROMPTS = ["1+1=", "a longer prompt, 17+4="]


@pytest.fixture(scope="module")
def sampler() -> TransformersSampler:
    return TransformersSampler(make_model(), make_tokenizer(), name="tiny")


def test_shapes(sampler: TransformersSampler) -> None:
    completions = sampler.sample(PROMPTS, 3, SamplingSettings(max_tokens=4))
    assert [len(texts) for texts in completions] == [3, 3]
    assert len({text for texts in completions for text in texts}) == 6
    assert sampler.sample([], 3) == []


def test_greedy_is_what_transformers_generates(sampler: TransformersSampler) -> None:
    settings = SamplingSettings(temperature=0, max_tokens=20)
    ours = sampler.sample(PROMPTS, 2, settings)
    for prompt, texts in zip(PROMPTS, ours, strict=True):
        inputs = sampler.tokenizer(prompt, return_tensors="pt")
        output = sampler.network.generate(**inputs, max_new_tokens=20, do_sample=False)
        expected = sampler.tokenizer.decode(
            output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True
        )
        assert texts == [expected, expected]


def test_a_prompt_has_the_same_completions_in_every_batch(sampler: TransformersSampler) -> None:
    settings = SamplingSettings(max_tokens=12)
    together = sampler.sample(PROMPTS, 4, settings, seed=5)
    assert together == sampler.sample(PROMPTS, 4, settings, seed=5)
    assert together[1:] == sampler.sample(PROMPTS[1:], 4, settings, seed=5)
    assert together != sampler.sample(PROMPTS, 4, settings, seed=6)
    other_keys = sampler.sample(PROMPTS, 4, settings, seed=5, keys=["x", "y"])
    assert together != other_keys


def test_the_next_token_has_the_models_probabilities(sampler: TransformersSampler) -> None:
    """Compared with the softmax of a plain forward pass, by a chi-squared statistic."""
    draws = 4000
    settings = SamplingSettings(temperature=0.5, top_k=6, max_tokens=1)
    tokens = sampler.tokenizer("1+1=", return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        logits = sampler.network(input_ids=tokens).logits[0, -1]
        top, ids = (logits / 0.5).topk(6)
        expected = dict(zip(ids.tolist(), torch.softmax(top, -1).tolist(), strict=True))
        chosen = choose(logits.expand(draws, -1), uniforms(["k"], draws, 1, seed=0)[:, 0], settings)
    counts = Counter(chosen.tolist())
    assert set(counts) <= set(expected)
    statistic = sum((counts[t] - draws * p) ** 2 / (draws * p) for t, p in expected.items())
    assert statistic < 20.5  # 99.9% of chi-squared with 5 degrees of freedom


LOGITS = torch.log(torch.tensor([[0.1, 0.5, 0.25, 0.15]]))


@pytest.mark.parametrize(
    ("options", "uniform", "token"),
    [
        ({}, 0.05, 0),
        ({}, 0.11, 1),
        ({}, 0.61, 2),
        ({}, 0.99999994, 3),
        ({"temperature": 0.0}, 0.0, 1),
        ({"top_k": 1}, 0.99, 1),
        ({"top_k": 2}, 0.6, 1),
        ({"top_k": 2}, 0.7, 2),
        ({"top_k": 99}, 0.99, 0),
        ({"top_p": 0.5}, 0.99, 1),
        ({"top_p": 0.6}, 0.7, 2),
        ({"top_p": 0.6}, 0.6, 1),
        ({"top_p": 1e-9}, 0.99, 1),
    ],
)
def test_choosing_by_hand(options: dict[str, Any], uniform: float, token: int) -> None:
    chosen = choose(LOGITS, torch.tensor([uniform]), SamplingSettings(**options))
    assert chosen.tolist() == [token]


def test_a_token_of_probability_0_is_never_chosen() -> None:
    logits = torch.tensor([[0.0, 0.0, float("-inf")], [float("-inf"), 0.0, float("-inf")]])
    largest = torch.full((2,), 1 - 2**-24)
    assert choose(logits, largest, SamplingSettings()).tolist() == [1, 1]
    assert choose(logits, torch.zeros(2), SamplingSettings()).tolist() == [0, 1]


class Scripted:
    """A stand-in network that writes the same text whatever it sees."""

    def __init__(self, network: Any, tokens: list[int]) -> None:
        self.tokens = tokens
        self.rows: list[int] = []
        self._network = network

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def forward(self, input_ids: Any, cache: Any = None, logits_to_keep: int = 0) -> None: ...

    def __call__(self, **inputs: Any) -> Any:
        output = self._network(**inputs)
        output.logits[:] = -1e9
        step = len(self.rows)
        self.rows.append(len(output.logits))
        output.logits[:, -1, self.tokens[step]] = 0.0
        if step == 1 and len(output.logits) > 1:  # the first rollout ends earlier
            output.logits[0, -1] = -1e9
            output.logits[0, -1, self._network.generation_config.eos_token_id] = 0.0
        return output


def scripted(text: str) -> tuple[TransformersSampler, Scripted]:
    tokenizer = make_tokenizer()
    network = Scripted(make_model(), tokenizer(text)["input_ids"])
    return TransformersSampler(network, tokenizer), network


def test_finished_rows_are_dropped_and_the_prompt_is_read_once() -> None:
    sampler, network = scripted("abcdef")
    completions = sampler.sample(["p"], 3, SamplingSettings(max_tokens=4))
    assert completions == [["a", "abcd", "abcd"]]
    assert network.rows == [1, 3, 2, 2]


@pytest.mark.parametrize(
    ("stop", "text", "passes"),
    [(("\n",), "12", 3), (("2\n3",), "1", 4), (("9", "3"), "12\n", 4), (("é",), "12\n3", 6)],
)
def test_stop_texts(stop: tuple[str, ...], text: str, passes: int) -> None:
    sampler, network = scripted("12\n3é9")
    assert sampler.sample(["p"], 1, SamplingSettings(max_tokens=7, stop=stop)) == [[text]]
    assert len(network.rows) == passes


@pytest.mark.parametrize("end", ["<|endoftext|>", "<|im_end|>"])
def test_every_end_token_ends_a_completion(end: str) -> None:
    sampler, network = scripted(f"12{end}34")
    ids = sampler.tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"])
    network.generation_config.eos_token_id = ids
    sampler.tokenizer.eos_token = "<|im_start|>"
    assert sampler.sample(["p"], 1, SamplingSettings(max_tokens=5)) == [["12"]]
    assert len(network.rows) == 3


def test_prompts_are_checked_without_sampling(sampler: TransformersSampler) -> None:
    sampler.check(PROMPTS, SamplingSettings(max_tokens=4))
    with pytest.raises(ConfigError, match="has 300 tokens"):
        sampler.check([*PROMPTS, "p" * 300], SamplingSettings(max_tokens=4))


def test_chats_go_through_the_template(sampler: TransformersSampler) -> None:
    chat = [{"role": "user", "content": "hi"}]
    as_text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    settings = SamplingSettings(max_tokens=6)
    assert sampler.sample([chat], 2, settings, keys=["k"]) == sampler.sample(
        [as_text], 2, settings, keys=["k"]
    )


def test_a_chat_goes_on_with_the_assistants_last_message(sampler: TransformersSampler) -> None:
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ye"}]
    as_text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nye"
    settings = SamplingSettings(max_tokens=6)
    assert sampler.sample([chat], 2, settings, keys=["k"]) == sampler.sample(
        [as_text], 2, settings, keys=["k"]
    )


def test_a_chat_that_the_template_refuses(sampler: TransformersSampler) -> None:
    with pytest.raises(ConfigError, match=r"chat template of 'tiny' refuses prompt \[\{'role'"):
        sampler.sample([[{"role": "user"}]], 1, SamplingSettings(max_tokens=2))


def test_a_model_with_an_adapter() -> None:
    from peft import LoraConfig, get_peft_model

    settings = SamplingSettings(max_tokens=6)
    plain = TransformersSampler(make_model(), make_tokenizer()).sample(PROMPTS, 2, settings)
    adapted = get_peft_model(make_model(), LoraConfig(target_modules=["q_proj", "v_proj"]))
    # A new adapter adds nothing yet.
    assert TransformersSampler(adapted, make_tokenizer()).sample(PROMPTS, 2, settings) == plain


def test_a_training_network_is_left_in_training_mode() -> None:
    network = make_model().train()
    TransformersSampler(network, make_tokenizer()).sample(["p"], 1, SamplingSettings(max_tokens=2))
    assert network.training


def test_loading_from_a_folder(tmp_path: Path) -> None:
    folder = str(save_model(tmp_path / "model"))
    loaded = TransformersSampler.from_pretrained(folder, dtype="bfloat16", device="cpu")
    assert (loaded.model, loaded.revision, loaded.dtype) == (folder, None, "bfloat16")
    assert loaded.sample(["p"], 1, SamplingSettings(max_tokens=2))


def test_what_cannot_be_sampled(sampler: TransformersSampler, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="n is 0"):
        sampler.sample(["p"], 0)
    with pytest.raises(ConfigError, match=r"has 300 tokens, with max_tokens 256 more than .* 256"):
        sampler.sample(["p" * 300], 1)
    with pytest.raises(ConfigError, match="has no tokens"):
        sampler.sample([""], 1, SamplingSettings(max_tokens=2))
    plain = TransformersSampler(make_model(), make_tokenizer())
    plain.tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="no chat template"):
        plain.sample([[{"role": "user", "content": "hi"}]], 1, SamplingSettings(max_tokens=2))
    with pytest.raises(ConfigError, match="cannot load model") as caught:
        TransformersSampler.from_pretrained(str(tmp_path / "nothing"))
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="dtype is 'int8'"):
        TransformersSampler.from_pretrained("m", dtype="int8")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": float("inf")}, "temperature is inf"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"top_k": -1}, "top_k is -1"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"stop": "\n"}, "pass a tuple"),
        ({"stop": ("",)}, "none empty"),
    ],
)
def test_settings_out_of_range(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SamplingSettings(**options)
    assert words in str(caught.value)
