"""The engine for vLLM, with the real one on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from exact_texts import (
    ALPHA,
    SETTINGS,
    agreement,
    by_number,
    check_that_differences_show,
    drawn,
)
from small_caches import check_cache

from basis_rl.errors import BasisError, ConfigError
from basis_rl.rollouts import SamplingSettings
from basis_rl.rollouts.create import open_engine
from basis_rl.rollouts.engine import Request, completion_seed
from basis_rl.rollouts.vllm_engine import VllmEngine

TEN = SamplingSettings(max_tokens=10)
CHAT = [{"role": "user", "content": "hi"}]
CHAT_TEXT = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def start(folder: Path, **options: Any) -> VllmEngine:
    engine_args = {"enforce_eager": True, **options.pop("engine_args", {})}
    options = {"max_model_len": 256, "max_num_seqs": 256, "engine_args": engine_args} | options
    engine = open_engine("vllm", str(folder), dtype="float32", options=options)
    assert isinstance(engine, VllmEngine)
    return engine


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[VllmEngine]:
    with start(folder) as engine:
        yield engine


REQUESTS = [Request("a", "1+1=", 0, 5), Request("b", "hello", 3, 4)]


def test_every_completion_comes_once(engine: VllmEngine) -> None:
    found = by_number(engine, REQUESTS, TEN)
    assert set(found) == {("a", i) for i in range(5)} | {("b", i) for i in range(3, 7)}
    assert len({completion.text for completion in found.values()}) > 5
    for completion in found.values():
        assert 1 <= completion.tokens <= 10
        assert completion.tokens == 10 or not completion.is_cut
    assert any(completion.is_cut for completion in found.values())
    assert engine.sample([], 3) == []
    assert (engine.dtype, engine.name) == ("float32", "vllm")


def test_a_restart_gives_the_same_completions(engine: VllmEngine) -> None:
    whole = by_number(engine, REQUESTS, TEN)
    rest = by_number(engine, [Request("b", "hello", 5, 2), Request("a", "1+1=", 2, 1)], TEN)
    assert rest == {name: whole[name] for name in rest}


def test_seeds_are_those_of_one_request_with_n(engine: VllmEngine) -> None:
    """So that a vLLM server, asked for n at once, gives the same completions."""
    from vllm import SamplingParams

    n = 40
    params = SamplingParams(n=n, max_tokens=10, seed=completion_seed(3, "k", 2))
    (output,) = engine.llm.generate(["1+1="], params, use_tqdm=False)
    texts = [(len(one.token_ids), one.text.rstrip("\ufffd")) for one in output.outputs]
    found = by_number(engine, [Request("k", "1+1=", 2, n)], TEN)
    ours = [found["k", i] for i in range(2, n + 2)]
    assert [(one.tokens, one.text.rstrip("\ufffd")) for one in ours] == texts


def test_greedy_is_that_of_transformers(engine: VllmEngine, folder: Path) -> None:
    settings = SamplingSettings(temperature=0, max_tokens=12)
    prompts = ["1+1=", "hello", CHAT, [*CHAT, {"role": "assistant", "content": "ye"}]]
    with open_engine("transformers", str(folder), dtype="float32") as other:
        assert engine.sample(prompts, 2, settings) == other.sample(prompts, 2, settings)


def test_chats_go_through_the_template(engine: VllmEngine) -> None:
    as_chat = by_number(engine, [Request("k", CHAT, 0, 4)], TEN)
    assert as_chat == by_number(engine, [Request("k", CHAT_TEXT, 0, 4)], TEN)


def test_stop_texts(engine: VllmEngine) -> None:
    free = by_number(engine, [Request("k", "1+1=", 0, 60)], TEN)
    stop = ("a", "+=", "b")
    stopped = by_number(
        engine, [Request("k", "1+1=", 0, 60)], SamplingSettings(max_tokens=10, stop=stop)
    )
    shortened = 0
    for name, completion in free.items():
        ends = [completion.text.find(s) for s in stop if s in completion.text]
        text = completion.text[: min(ends)] if ends else completion.text
        assert stopped[name].text == text
        assert stopped[name].tokens <= completion.tokens
        if ends:
            shortened += 1
            assert not stopped[name].is_cut
    assert shortened >= 3


def test_a_prompt_that_is_too_long(engine: VllmEngine) -> None:
    engine.check(["p" * 246], TEN)
    with pytest.raises(ConfigError, match=r"prompt 'ppp.* has 247 tokens, with"):
        engine.check(["p", "p" * 247], TEN)
    with pytest.raises(ConfigError, match="has 247 tokens"):
        list(engine.stream([Request("k", "p" * 247)], TEN))
    with pytest.raises(ConfigError, match="has no tokens"):
        engine.check([""], TEN)


def test_more_long_prompts_than_one_step_reads(engine: VllmEngine) -> None:
    """Seeds and prompts that are read in parts end vLLM 0.32 on a CPU."""
    requests = [Request(str(i), f"{i:03d}" + "p" * 237) for i in range(120)]
    assert len(by_number(engine, requests, TEN)) == 120


def test_closing_ends_what_is_under_way(engine: VllmEngine) -> None:
    stream = engine.stream([Request("k", "1+1=", 0, 10**9)], TEN)
    next(stream)
    unfinished = engine.llm.llm_engine.get_num_unfinished_requests()
    assert 0 < unfinished <= engine.in_flight == 512
    stream.close()  # type: ignore[attr-defined]
    assert not engine.llm.llm_engine.has_unfinished_requests()
    assert by_number(engine, REQUESTS, TEN) == by_number(engine, REQUESTS, TEN)


def test_without_seeds_completions_differ_each_time(engine: VllmEngine) -> None:
    engine.seeds = False
    try:
        assert by_number(engine, REQUESTS, TEN) != by_number(engine, REQUESTS, TEN)
    finally:
        engine.seeds = True


def test_a_failure_of_the_engine_is_one_line(
    engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("dead\nmore")

    monkeypatch.setattr(engine.llm.llm_engine, "step", fail)
    with pytest.raises(BasisError, match=r"the vLLM engine failed \(dead\)") as raised:
        by_number(engine, REQUESTS, TEN)
    assert "\n" not in str(raised.value)
    monkeypatch.undo()
    assert len(by_number(engine, REQUESTS, TEN)) == 9


@pytest.mark.parametrize("name", SETTINGS)
def test_texts_have_the_models_probabilities(engine: VllmEngine, model: Any, name: str) -> None:
    assert agreement(model, drawn(engine, SETTINGS[name]), SETTINGS[name]) > ALPHA


def test_differences_show(engine: VllmEngine, model: Any) -> None:
    check_that_differences_show(engine, model)


def test_a_cache(engine: VllmEngine, folder: Path, tmp_path: Path) -> None:
    check_cache(engine, folder, tmp_path)


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot load model .*there is no such folder"):
        start(tmp_path / "nothing")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"vLLM cannot load model .*name a folder"):
        start(tmp_path)


def test_options_are_checked(folder: Path) -> None:
    with pytest.raises(ConfigError, match="dtype is 'float8': use one of"):
        open_engine("vllm", str(folder), dtype="float8")
    with pytest.raises(ConfigError, match="in_flight is 0"):
        open_engine("vllm", str(folder), options={"in_flight": 0})
    with pytest.raises(ConfigError, match="did you mean 'max_num_seqs'"):
        open_engine("vllm", str(folder), options={"max_num_seq": 1})
    with pytest.raises(ConfigError, match="vLLM cannot load model"):
        start(folder, engine_args={"no_such_argument": 1})
