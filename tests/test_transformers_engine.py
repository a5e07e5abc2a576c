from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Container, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from random_qwen3 import make_model, make_tokenizer, save_model

from basis_rl.errors import BasisError, ConfigError
from basis_rl.rollouts import (
    Completion,
    Request,
    Rollouts,
    SamplingSettings,
    TransformersEngine,
)
from basis_rl.rollouts.batch_size import BatchSize, cache_bytes
from basis_rl.rollouts.batches import Piece, longest_first, take_batch
from basis_rl.rollouts.loading import load_network
from basis_rl.rollouts.next_token import Uniforms, choose
from basis_rl.rollouts.prompt_tokens import PromptTokens
from basis_rl.rollouts.stop_texts import StopTexts

PROMPTS = ["1+1=", "a longer prompt, 17+4="]


@pytest.fixture(scope="module")
def engine() -> TransformersEngine:
    return TransformersEngine(make_model(), make_tokenizer(), name="tiny")


def test_shapes(engine: TransformersEngine) -> None:
    completions = engine.sample(PROMPTS, 3, SamplingSettings(max_tokens=4))
    assert [len(texts) for texts in completions] == [3, 3]
    assert len({text for texts in completions for text in texts}) == 6
    assert engine.sample([], 3) == []
    assert (engine.name, engine.model, engine.dtype) == ("transformers", "tiny", "float32")
    assert engine.version == transformers.__version__


def test_greedy_is_what_transformers_generates(engine: TransformersEngine) -> None:
    settings = SamplingSettings(temperature=0, max_tokens=20)
    ours = engine.sample(PROMPTS, 2, settings)
    for prompt, texts in zip(PROMPTS, ours, strict=True):
        inputs = engine.tokenizer(prompt, return_tensors="pt")
        output = engine.network.generate(**inputs, max_new_tokens=20, do_sample=False)
        expected = engine.tokenizer.decode(
            output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True
        )
        assert texts == [expected, expected]


def test_a_prompt_has_the_same_completions_in_every_batch(engine: TransformersEngine) -> None:
    settings = SamplingSettings(max_tokens=12)
    together = engine.sample(PROMPTS, 4, settings, seed=5)
    assert together == engine.sample(PROMPTS, 4, settings, seed=5)
    assert together[1:] == engine.sample(PROMPTS[1:], 4, settings, seed=5)
    assert together != engine.sample(PROMPTS, 4, settings, seed=6)
    other_keys = engine.sample(PROMPTS, 4, settings, seed=5, keys=["x", "y"])
    assert together != other_keys


def test_the_next_token_has_the_models_probabilities(engine: TransformersEngine) -> None:
    """Compared with the softmax of a plain forward pass, by a chi-squared statistic."""
    draws = 4000
    settings = SamplingSettings(temperature=0.5, top_k=6, max_tokens=1)
    tokens = engine.tokenizer("1+1=", return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        logits = engine.network(input_ids=tokens).logits[0, -1]
        top, ids = (logits / 0.5).topk(6)
        expected = dict(zip(ids.tolist(), torch.softmax(top, -1).tolist(), strict=True))
        chosen = choose(logits.expand(draws, -1), Uniforms(range(draws)).next(), settings)
    counts = Counter(chosen.tolist())
    assert set(counts) <= set(expected)
    statistic = sum((counts[t] - draws * p) ** 2 / (draws * p) for t, p in expected.items())
    assert statistic < 20.5  # 99.9% of chi-squared with 5 degrees of freedom


def test_the_numbers_of_a_completion_are_its_seeds_alone() -> None:
    """Compared with a generator each, through blocks and dropped rows."""
    seeds, steps = [5, 2**63 - 1, 0], 200
    expected = [
        np.random.Generator(np.random.Philox(key=seed)).random(steps, dtype=np.float32)
        for seed in seeds
    ]
    numbers, alive = Uniforms(seeds), [0, 1, 2]
    for step in range(steps):
        if step == 70:
            numbers.keep([0, 2], torch.tensor([0, 2]))
            alive = [0, 2]
        assert numbers.next().tolist() == [expected[row][step] for row in alive]
    assert 0.45 < np.mean(expected) < 0.55


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


def scripted(text: str) -> tuple[TransformersEngine, Scripted]:
    tokenizer = make_tokenizer()
    network = Scripted(make_model(), tokenizer(text)["input_ids"])
    return TransformersEngine(network, tokenizer), network


def test_finished_rows_are_dropped_and_the_prompt_is_read_once() -> None:
    engine, network = scripted("abcdef")
    completions = engine.sample(["p"], 3, SamplingSettings(max_tokens=4))
    assert completions == [["a", "abcd", "abcd"]]
    assert network.rows == [1, 3, 2, 2]


@pytest.mark.parametrize(
    ("stop", "text", "passes"),
    [(("\n",), "12", 3), (("2\n3",), "1", 4), (("9", "3"), "12\n", 4), (("é",), "12\n3", 6)],
)
def test_stop_texts(stop: tuple[str, ...], text: str, passes: int) -> None:
    engine, network = scripted("12\n3é9")
    assert engine.sample(["p"], 1, SamplingSettings(max_tokens=7, stop=stop)) == [[text]]
    assert len(network.rows) == passes


@pytest.mark.parametrize("end", ["<|endoftext|>", "<|im_end|>"])
def test_every_end_token_ends_a_completion(end: str) -> None:
    engine, network = scripted(f"12{end}34")
    ids = engine.tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"])
    network.generation_config.eos_token_id = ids
    engine.tokenizer.eos_token = "<|im_start|>"
    assert engine.sample(["p"], 1, SamplingSettings(max_tokens=5)) == [["12"]]
    assert len(network.rows) == 3


def test_prompts_are_checked_without_sampling(engine: TransformersEngine) -> None:
    engine.check(PROMPTS, SamplingSettings(max_tokens=4))
    with pytest.raises(ConfigError, match="has 300 tokens"):
        engine.check([*PROMPTS, "p" * 300], SamplingSettings(max_tokens=4))


def test_chats_go_through_the_template(engine: TransformersEngine) -> None:
    chat = [{"role": "user", "content": "hi"}]
    as_text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    settings = SamplingSettings(max_tokens=6)
    assert engine.sample([chat], 2, settings, keys=["k"]) == engine.sample(
        [as_text], 2, settings, keys=["k"]
    )


def test_a_chat_goes_on_with_the_assistants_last_message(engine: TransformersEngine) -> None:
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ye"}]
    as_text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nye"
    settings = SamplingSettings(max_tokens=6)
    assert engine.sample([chat], 2, settings, keys=["k"]) == engine.sample(
        [as_text], 2, settings, keys=["k"]
    )


def test_a_chat_that_the_template_refuses(engine: TransformersEngine) -> None:
    with pytest.raises(ConfigError, match=r"chat template of 'tiny' refuses prompt \[\{'role'"):
        engine.sample([[{"role": "user"}]], 1, SamplingSettings(max_tokens=2))


def test_a_model_with_an_adapter() -> None:
    from peft import LoraConfig, get_peft_model

    settings = SamplingSettings(max_tokens=6)
    plain = TransformersEngine(make_model(), make_tokenizer()).sample(PROMPTS, 2, settings)
    adapted = get_peft_model(make_model(), LoraConfig(target_modules=["q_proj", "v_proj"]))
    # A new adapter adds nothing yet.
    assert TransformersEngine(adapted, make_tokenizer()).sample(PROMPTS, 2, settings) == plain


def test_a_training_network_is_left_in_training_mode() -> None:
    network = make_model().train()
    TransformersEngine(network, make_tokenizer()).sample(["p"], 1, SamplingSettings(max_tokens=2))
    assert network.training


def test_loading_from_a_folder(tmp_path: Path) -> None:
    folder = str(save_model(tmp_path / "model"))
    loaded = TransformersEngine.open(folder, dtype="bfloat16", device="cpu")
    assert (loaded.model, loaded.revision, loaded.dtype) == (folder, None, "bfloat16")
    assert loaded.sample(["p"], 1, SamplingSettings(max_tokens=2))


def test_what_cannot_be_sampled(engine: TransformersEngine, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="n is 0 for prompt 'p'"):
        engine.sample(["p"], 0, SamplingSettings(max_tokens=2))
    with pytest.raises(ConfigError, match=r"has 300 tokens, with max_tokens 256 more than .* 256"):
        engine.sample(["p" * 300], 1)
    with pytest.raises(ConfigError, match="has no tokens"):
        engine.sample([""], 1, SamplingSettings(max_tokens=2))
    plain = TransformersEngine(make_model(), make_tokenizer())
    plain.tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="no chat template"):
        plain.sample([[{"role": "user", "content": "hi"}]], 1, SamplingSettings(max_tokens=2))
    with pytest.raises(ConfigError, match="cannot load model") as caught:
        TransformersEngine.open(str(tmp_path / "nothing"))
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="dtype is 'int8'"):
        TransformersEngine.open("m", dtype="int8")


class Recording:
    """A network that keeps what it reads and gives."""

    def __init__(self, network: Any) -> None:
        self.forward = network.forward
        self.calls: list[tuple[Any, Any]] = []
        self._network = network

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def __call__(self, **inputs: Any) -> Any:
        output = self._network(**inputs)
        self.calls.append((inputs["input_ids"], output.logits[:, -1].clone()))
        return output


def test_logits_are_those_of_a_pass_over_all_tokens_so_far() -> None:
    """Padding, positions and the shared prompt, in a model where every one of them matters."""
    model = make_model()
    for parameter in model.parameters():
        parameter.data *= 5
    model.generation_config.eos_token_id = None
    network = Recording(model)
    engine = TransformersEngine(network, make_tokenizer())
    engine.tokenizer.eos_token = None
    requests = [Request("a", PROMPTS[0], 0, 2), Request("b", PROMPTS[1], 0, 3)]
    list(engine.stream(requests, SamplingSettings(max_tokens=5)))
    written = torch.cat([ids for ids, _ in network.calls[1:]], dim=1)
    assert written.shape == (5, 4)
    for row, prompt in enumerate([PROMPTS[1]] * 3 + [PROMPTS[0]] * 2):  # the longer one first
        ids = torch.tensor([[*engine.tokenizer(prompt)["input_ids"], *written[row].tolist()]])
        with torch.inference_mode():
            whole = model(input_ids=ids).logits[0]
        for step, (_, logits) in enumerate(network.calls[1:], start=1):
            expected = whole[ids.shape[1] - 5 + step]
            torch.testing.assert_close(logits[row], expected, rtol=1e-4, atol=1e-4)


MANY = [Request(f"k{i}", "p" * (1 + i * 5 % 7), i % 3, 1 + i * 3 % 8) for i in range(13)]


def flat(batches: Any) -> dict[tuple[str, int], Any]:
    """Every completion by key and number; each comes once."""
    found: dict[tuple[str, int], Any] = {}
    for part in (part for batch in batches for part in batch):
        for number, completion in enumerate(part.completions, start=part.first):
            assert (part.key, number) not in found
            found[part.key, number] = completion
    return found


def asked(requests: Sequence[Request]) -> set[tuple[str, int]]:
    return {(r.key, r.first + i) for r in requests for i in range(r.count)}


def left(requests: Sequence[Request], done: Container[tuple[str, int]]) -> list[Request]:
    """What has not been done, as somebody would ask for it who starts again."""
    rest = []
    for r in requests:
        numbers = [r.first + i for i in range(r.count) if (r.key, r.first + i) not in done]
        if numbers:
            assert numbers == list(range(numbers[0], numbers[-1] + 1))
            rest.append(Request(r.key, r.prompt, numbers[0], len(numbers)))
    return rest


def engine_of(rows: int, **options: Any) -> TransformersEngine:
    return TransformersEngine(make_model(**options), make_tokenizer(), batch_size=rows)


def test_a_stream_gives_every_completion_once_in_batches() -> None:
    settings = SamplingSettings(max_tokens=6)
    batches = list(engine_of(10).stream(MANY, settings, seed=2))
    sizes = [sum(len(part.completions) for part in batch) for batch in batches]
    assert sizes == [10, 10, 10, 10, 10, 5]
    assert set(flat(batches)) == asked(MANY)
    lengths = {request.key: -len(request.prompt) for request in MANY}
    order = [part.key for batch in batches for part in batch]
    assert order == sorted(order, key=lambda key: (lengths[key], int(key[1:])))


def test_after_a_kill_the_other_batches_stay_bit_for_bit() -> None:
    settings = SamplingSettings(max_tokens=6)
    batches = list(engine_of(10).stream(MANY, settings, seed=2))
    for kept in range(1, len(batches)):
        rest = left(MANY, flat(batches[:kept]))
        assert list(engine_of(10).stream(rest, settings, seed=2)) == batches[kept:]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(1, 40)), max_size=12),
    st.integers(1, 20),
    st.integers(0, 30),
    st.booleans(),
)
def test_batches_without_the_first_ones_are_the_others(
    shapes: list[tuple[int, int, int]], rows: int, kept: int, once: bool
) -> None:
    requests = [
        Request(f"k{i}", "p" * length, first, count)
        for i, (length, first, count) in enumerate(shapes)
    ]

    def batches(of: Sequence[Request]) -> list[list[tuple[str, int, int, int]]]:
        pending = longest_first(of, [[0] * len(r.prompt) for r in of], once=once)
        found: list[list[Piece]] = []
        while pending:
            found.append(take_batch(pending, rows))
        assert all(sum(p.count for p in batch) == rows for batch in found[:-1])
        return [[(p.request.key, p.first, p.count, p.copies) for p in batch] for batch in found]

    whole = batches(requests)
    done = [piece for batch in whole[:kept] for piece in batch]
    numbers = {(key, first + i) for key, first, n, copies in done for i in range(n * copies)}
    assert batches(left(requests, numbers)) == whole[kept:]
    every = [piece for batch in whole for piece in batch]
    assert sum(count * copies for _, _, count, copies in every) == sum(r.count for r in requests)


def test_more_completions_leave_the_others_as_they_were(engine: TransformersEngine) -> None:
    settings = SamplingSettings(max_tokens=12)
    few = flat(engine.stream([Request("k", "1+1=", 0, 8)], settings))
    many = flat(engine.stream([Request("k", "1+1=", 0, 16)], settings))
    later = flat(engine.stream([Request("k", "1+1=", 5, 11)], settings))
    assert many == {**few, **later}
    assert len({completion.text for completion in many.values()}) == 16
    other = flat(engine.stream([Request("k", "1+1=", 0, 8)], settings, seed=1))
    assert not set(other.values()) & set(few.values())


def test_tokens_are_counted_and_cut_completions_marked() -> None:
    engine, _ = scripted("12\n3é9")
    settings = SamplingSettings(max_tokens=4, stop=("3",))
    finished = flat(engine.stream([Request("k", "p", 0, 2)], settings))
    # The first rollout ends with its second token, the end token.
    assert finished["k", 0] == Completion("1", 2, False)
    assert finished["k", 1] == Completion("12\n", 4, False)
    engine, _ = scripted("12\n3é9")
    finished = flat(engine.stream([Request("k", "p")], SamplingSettings(max_tokens=2)))
    assert finished["k", 0] == Completion("12", 2, True)


def test_greedy_completions_are_sampled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, network = scripted("abcdef")
    settings = SamplingSettings(temperature=0, max_tokens=3)
    (batch,) = engine.stream([Request("k", "p", 4, 100)], settings)
    assert network.rows == [1, 1, 1]
    assert batch == [Rollouts("k", 4, (Completion("abc", 3, True),) * 100)]


class Small:
    """A network that has room for so many rows."""

    def __init__(self, network: Any, room: int) -> None:
        self.room = room
        self.rows: list[int] = []
        self._network = network

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def __call__(self, **inputs: Any) -> Any:
        if inputs["input_ids"].shape[1] == 1:  # not the prefill
            self.rows.append(len(inputs["input_ids"]))
            if self.rows[-1] > self.room:
                raise torch.OutOfMemoryError("CUDA out of memory")
        return self._network(**inputs)


def test_half_of_what_does_not_fit_is_tried_and_nothing_is_lost() -> None:
    settings = SamplingSettings(max_tokens=3)
    network = Small(make_model(), room=7)
    network.forward = network._network.forward
    engine = TransformersEngine(network, make_tokenizer(), batch_size=50)
    expected = flat(engine_of(6).stream(MANY, settings))
    found = flat(engine.stream(MANY, settings))
    assert found == expected
    assert list(found) == list(expected)  # in their order
    assert [rows for rows in network.rows if rows > 7] == [50, 25, 12]
    assert engine.network.training is False
    network.rows = []
    assert flat(engine.stream(MANY, settings)) == expected
    assert max(network.rows) == 6  # it does not try again
    network.room = 0
    with pytest.raises(BasisError, match=r"prompt 'p+' with up to 3 tokens does not fit") as caught:
        list(engine.stream(MANY, settings))
    assert "\n" not in str(caught.value)


def on_gpu(free: int, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 2 * free))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 0)
    network = make_model()
    return SimpleNamespace(config=network.config, dtype=torch.bfloat16, device=torch.device("cuda"))


def test_the_batch_size_follows_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_model().config
    # Keys and values of 2 layers with 1 head of 16 numbers.
    assert cache_bytes(config, 2) == 2 * 2 * 16 * 2
    with torch.no_grad():
        cache = make_model()(torch.zeros(1, 10, dtype=torch.int64)).past_key_values
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert held == 10 * cache_bytes(config, 4)

    size = BatchSize(on_gpu(10_000_000, monkeypatch))
    each = 100 * 128 + 6 * 4 * config.vocab_size
    assert size.rows(100) == 6_000_000 // each
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (0, 0))
    assert size.rows(100) == 6_000_000 // each  # found once: batches stay the same
    assert size.rows(10) > size.rows(1000)
    assert size.rows(10**9) == 1
    size.halve(64)
    assert (size.rows(10), size.rows(10**9)) == (32, 1)
    assert BatchSize(on_gpu(10**12, monkeypatch)).rows(10) == 512
    assert BatchSize(on_gpu(0, monkeypatch), 7).rows(10) == 7
    assert BatchSize(make_model()).rows(10**9) == 64


@pytest.mark.parametrize("batch_size", [0, -1, "many", 2.5, True, None])
def test_a_wrong_batch_size(batch_size: Any) -> None:
    with pytest.raises(ConfigError, match="use a positive number or 'auto'"):
        TransformersEngine(make_model(), make_tokenizer(), batch_size=batch_size)
    with pytest.raises(ConfigError, match="batch_size is"):
        TransformersEngine.open("none", batch_size=batch_size)


def test_a_device_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        transformers.AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("loaded")
    )
    folder = str(save_model(tmp_path / "model"))
    for device in ["foo", "meta", f"cuda:{torch.cuda.device_count()}"]:
        with pytest.raises(ConfigError, match=f"^device is '{device}' .*: use cpu") as caught:
            TransformersEngine.open(folder, device=device)
        assert "\n" not in str(caught.value)


def test_folders_without_what_is_needed(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model")
    for path in folder.glob("tokenizer*"):
        path.unlink()
    (tmp_path / "empty").mkdir()
    for name, words in [
        ("../models/nope", "there is no such folder"),
        (str(tmp_path / "nope"), "there is no such folder"),
        (str(tmp_path / "empty"), "has no model, there is no config.json"),
        (str(folder), r"has no tokenizer\): save it there"),
        (str(folder / "config.json"), "it is a file"),
    ]:
        with pytest.raises(ConfigError, match=f"^cannot load model '.*{words}"):
            TransformersEngine.open(name)
    # The tokenizer may be elsewhere.
    assert load_network(str(folder)).config.vocab_size


def test_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError, match=r"needs torch and transformers .*extra \[trl\]$"):
        TransformersEngine.open("none")


class Counting:
    def __init__(self) -> None:
        self.tokenizer = make_tokenizer()
        self.texts: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)

    def __call__(self, texts: list[str], **options: Any) -> Any:
        self.texts += texts
        return self.tokenizer(texts, **options)


def test_prompts_are_tokenised_once() -> None:
    counting = Counting()
    tokens = PromptTokens(counting, "tiny", 256)
    chat = [{"role": "user", "content": "hi"}]
    prompts = ["a", chat, "b", [{"role": "user", "content": "ho"}], json.dumps(chat)]
    found = tokens.encode(prompts, 10)
    as_text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert found[1] == counting.tokenizer(as_text, add_special_tokens=False)["input_ids"]
    assert found[4] == counting.tokenizer(json.dumps(chat))["input_ids"]
    assert len(counting.texts) == 5
    assert tokens.encode(prompts[::-1], 20) == found[::-1]
    assert len(counting.texts) == 5
    with pytest.raises(ConfigError, match="with max_tokens 256"):
        tokens.encode(["a"], 256)
    array = np.array(["x"])  # JSON cannot tell it from others
    for _ in range(2):
        tokens.encode([[{"role": "user", "content": "x", "more": array}]], 10)
    assert len(counting.texts) == 7


TOKENIZER = make_tokenizer()


@settings(deadline=None)
@given(
    st.text(alphabet="ab1\n é€", max_size=12),
    st.lists(st.text(alphabet="ab1\n é€", min_size=1, max_size=3), min_size=1, max_size=3),
)
def test_stop_texts_are_found_as_by_looking_at_everything(text: str, stop: list[str]) -> None:
    stops = StopTexts(TOKENIZER, tuple(stop))
    tokens = TOKENIZER(text)["input_ids"]
    for end in range(1, len(tokens) + 1):
        written = TOKENIZER.decode(tokens[:end])
        expected = any(s in written for s in stop)
        assert stops.reached(tokens[:end]) == expected
        if expected:
            assert stops.text(tokens[:end]) == min(written.split(s)[0] for s in stop)
            break


def test_importing_the_engines_needs_no_torch() -> None:
    code = "import basis_rl.rollouts, sys; print([m for m in ('torch', 'ray') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


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
