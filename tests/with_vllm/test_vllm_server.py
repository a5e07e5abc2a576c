"""The engine for servers, with a real vLLM server on this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
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

from basis_rl.errors import ConfigError
from basis_rl.rollouts import SamplingSettings
from basis_rl.rollouts.create import open_engine
from basis_rl.rollouts.engine import Engine, Request

START_S = 180.0
TEN = SamplingSettings(max_tokens=10)
CHAT = [{"role": "user", "content": "hi"}]
CHAT_TEXT = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def url(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server, whose model's own settings would spoil the samples."""
    config = folder / "generation_config.json"
    before = config.read_text()
    own = {"top_k": 2, "top_p": 0.5, "temperature": 0.3, "repetition_penalty": 3.0}
    config.write_text(json.dumps(json.loads(before) | own | {"do_sample": True}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = {"model": folder, "served-model-name": "tiny", "host": "127.0.0.1", "port": port}
    arguments |= {"dtype": "float32", "max-model-len": 256, "max-num-seqs": 256}
    options = [text for name, value in arguments.items() for text in (f"--{name}", str(value))]
    # With seeds, a prompt that is read in parts ends vLLM 0.32 on a CPU.
    options += ["--enforce-eager", "--no-enable-chunked-prefill", "--disable-uvicorn-access-log"]
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "vllm.entrypoints.openai.api_server",
                *options,
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/health", process, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its engine is a process of its own
        process.wait(10)
        config.write_text(before)


def wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"the server did not start: {log.read_text()[-3000:]}")


def connect(url: str, **options: Any) -> Engine:
    return open_engine("openai", "tiny", options={"base_url": url, **options})


@pytest.fixture(scope="module")
def engine(url: str) -> Iterator[Engine]:
    with connect(url) as engine:
        yield engine


REQUESTS = [Request("a", "1+1=", 0, 13), Request("b", "hello", 3, 4)]


def test_the_server_is_recognised(engine: Engine) -> None:
    import vllm

    assert engine.version == f"vllm {vllm.__version__}"


def test_completions_are_those_of_one_request_each(engine: Engine, url: str) -> None:
    """Texts, exact token counts and ends, with n completions a request and with one."""
    found = by_number(engine, REQUESTS, TEN)
    assert set(found) == {("a", i) for i in range(13)} | {("b", i) for i in range(3, 7)}
    assert len({completion.text for completion in found.values()}) > 10
    assert any(completion.is_cut for completion in found.values())
    with connect(url, completions_per_request=1) as singly:
        assert by_number(singly, REQUESTS, TEN) == found
    rest = by_number(engine, [Request("a", "1+1=", 6, 3)], TEN)
    assert rest == {name: found[name] for name in rest}


def test_greedy_is_that_of_transformers(engine: Engine, folder: Path) -> None:
    settings = SamplingSettings(temperature=0, max_tokens=12)
    prompts = ["1+1=", "hello", CHAT, [*CHAT, {"role": "assistant", "content": "ye"}]]
    with open_engine("transformers", str(folder), dtype="float32") as other:
        expected = other.sample(prompts, 2, settings)
    # The server drops the bytes of a character that is not complete.
    assert engine.sample(prompts, 2, settings) == [
        [text.rstrip("\ufffd") for text in texts] for texts in expected
    ]


def test_chats_go_through_the_template(engine: Engine) -> None:
    as_chat = by_number(engine, [Request("k", CHAT, 0, 12)], TEN)
    as_text = by_number(engine, [Request("k", CHAT_TEXT, 0, 12)], TEN)
    assert as_chat == as_text


def test_stop_texts(engine: Engine) -> None:
    free = by_number(engine, [Request("k", "1+1=", 0, 60)], TEN)
    stop = ("a", "+=", "b")
    settings = SamplingSettings(max_tokens=10, stop=stop)
    stopped = by_number(engine, [Request("k", "1+1=", 0, 60)], settings)
    shortened = 0
    for name, completion in free.items():
        ends = [completion.text.find(s) for s in stop if s in completion.text]
        assert stopped[name].text == (completion.text[: min(ends)] if ends else completion.text)
        shortened += bool(ends)
    assert shortened >= 3


def test_a_prompt_that_is_too_long(engine: Engine) -> None:
    engine.check(["p" * 246, CHAT], TEN)
    with pytest.raises(ConfigError, match=r"prompt 'ppp.* has 247 tokens, with max_tokens 10"):
        engine.check(["p", "p" * 247], TEN)
    with pytest.raises(ConfigError, match=r"cut a completion of prompt 'ppp.* after 9 tokens"):
        list(engine.stream([Request("k", "p" * 247)], TEN))
    with pytest.raises(ConfigError, match=r"refuses prompt 'ppp.* \(400: .*256"):
        list(engine.stream([Request("k", "p" * 257)], TEN))


def test_closing_ends_what_is_under_way(engine: Engine) -> None:
    stream = engine.stream([Request("k", "1+1=", 0, 10**9)], TEN)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert len(by_number(engine, REQUESTS, TEN)) == 17


def test_a_model_that_is_not_served(url: str) -> None:
    with pytest.raises(ConfigError, match="does not serve model 'tinny': did you mean 'tiny'"):
        open_engine("openai", "tinny", options={"base_url": url})


@pytest.fixture(scope="module")
def in_bulk(url: str) -> Iterator[Engine]:
    with connect(url, completions_per_request=100) as engine:
        yield engine


@pytest.mark.parametrize("name", SETTINGS)
def test_texts_have_the_models_probabilities(in_bulk: Engine, model: Any, name: str) -> None:
    assert agreement(model, drawn(in_bulk, SETTINGS[name]), SETTINGS[name]) > ALPHA


def test_differences_show(in_bulk: Engine, model: Any) -> None:
    check_that_differences_show(in_bulk, model)


def test_a_cache(engine: Engine, folder: Path, tmp_path: Path) -> None:
    check_cache(engine, folder, tmp_path)
