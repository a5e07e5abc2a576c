"""The tests' own completion server, without Ray: what a resumed job's equality rests on."""

from __future__ import annotations

import asyncio

import pytest
import torch
from assets import byte_tokenizer
from cpu_server import Completion, CPUServer
from transformers import AutoModelForCausalLM

TOKENS = 8
PROMPTS = ["1+1=", "12+30=", "7+2="]


def ids(text: str) -> list[int]:
    return byte_tokenizer()(text)["input_ids"]


def new_server(assets, seed: int = 0, version: int = 0) -> CPUServer:
    server = CPUServer(str(assets.model), TOKENS, seed)
    weights = AutoModelForCausalLM.from_pretrained(assets.model).state_dict()
    asyncio.run(server.load_weights(weights, version))
    return server


async def ask(server: CPUServer, texts: list[str], **params: float) -> list[Completion]:
    params = {"temperature": 1.0} | params
    requests = [server.generate("x", prompt_ids=ids(t), sampling_params=params) for t in texts]
    return list(await asyncio.gather(*requests))


def tokens(completions: list[Completion]) -> list[list[int]]:
    return [one.token_ids for one in completions]


def sampled(assets, texts: list[str], **server: int) -> list[list[int]]:
    return tokens(asyncio.run(ask(new_server(assets, **server), texts)))


def test_same_whatever_the_order(assets):
    forward, backward = sampled(assets, PROMPTS), sampled(assets, PROMPTS[::-1])
    assert forward == backward[::-1]
    assert len(set(map(tuple, forward))) == len(PROMPTS)
    assert sampled(assets, PROMPTS[:1]) == forward[:1]


def test_seed_version_and_number_of_times_matter(assets):
    one = sampled(assets, PROMPTS)
    assert sampled(assets, PROMPTS, seed=1) != one
    assert sampled(assets, PROMPTS, version=1) != one
    twice = sampled(assets, PROMPTS[:1] * 2)
    assert twice[0] == one[0] != twice[1]


def test_log_probs_are_the_models(assets):
    (answer,) = asyncio.run(ask(new_server(assets), PROMPTS[:1], temperature=0.7))
    model = AutoModelForCausalLM.from_pretrained(assets.model)
    prompt = ids(PROMPTS[0])
    row = torch.tensor([prompt + answer.token_ids])
    with torch.no_grad():
        log_probs = (model(row).logits[0].double() / 0.7).log_softmax(-1)
    place = torch.arange(len(prompt) - 1, row.shape[1] - 1)
    expected = log_probs[place, row[0, len(prompt) :]]
    assert answer.log_probs == pytest.approx(expected.tolist(), abs=1e-5)
    assert answer.extra_fields["global_steps"] == 0


def test_greedy_is_the_most_likely(assets):
    answers = asyncio.run(ask(new_server(assets), PROMPTS, temperature=0))
    model = AutoModelForCausalLM.from_pretrained(assets.model)
    for text, answer in zip(PROMPTS, answers, strict=True):
        prompt = torch.tensor([ids(text)])
        row = model.generate(prompt, max_new_tokens=TOKENS, do_sample=False)
        assert answer.token_ids == row[0, prompt.shape[1] :].tolist()


def test_stops_and_goes_on(assets):
    """Told to stop, it returns what there is; what comes then waits for new weights."""

    async def run() -> tuple[list[Completion], bool, list[Completion]]:
        server.stop = True
        cut = await ask(server, PROMPTS)
        await server.abort_all_requests()
        later = asyncio.create_task(ask(server, PROMPTS))
        await asyncio.sleep(0.2)
        held = not later.done()
        await server.resume_generation()
        return cut, held, await later

    server = new_server(assets)
    cut, held, later = asyncio.run(asyncio.wait_for(run(), 60))
    assert [one.stop_reason for one in cut] == ["aborted"] * len(PROMPTS)
    assert [len(one.token_ids) for one in cut] == [1] * len(PROMPTS)
    assert held
    assert [one.stop_reason for one in later] == ["completed"] * len(PROMPTS)


def test_weights_that_do_not_fit(assets):
    with pytest.raises(ValueError, match="weights do not fit"):
        asyncio.run(new_server(assets).load_weights({"other": torch.zeros(1)}, 1))
