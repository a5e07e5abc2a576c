"""The engine for servers, against a real HTTP server on this machine that misbehaves."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from completion_server import Answer, CompletionServer, completions, refusal, serving, slowly

from basis_rl.errors import BasisError, ConfigError
from basis_rl.rollouts import SamplingSettings
from basis_rl.rollouts.create import open_engine
from basis_rl.rollouts.engine import Engine, Request, Rollouts, completion_seed

SETTINGS = SamplingSettings(max_tokens=5)
CHAT = [{"role": "user", "content": "hi"}]


def connect(server: CompletionServer, **options: Any) -> Engine:
    return open_engine("openai", "tiny", options={"base_url": server.url, **options})


def sampled(
    engine: Engine, requests: list[Request], settings: SamplingSettings = SETTINGS
) -> dict[tuple[str, int], str]:
    """Texts by key and number; none may come twice."""
    found: dict[tuple[str, int], str] = {}
    for finished in engine.stream(requests, settings, seed=3):
        for part in finished:
            for number, completion in enumerate(part.completions, start=part.first):
                assert (part.key, number) not in found
                found[part.key, number] = completion.text
    return found


def failing(times: int, failure: Answer) -> Callable[[dict[str, Any]], Answer]:
    """Answers the first requests so, then well."""
    left = [times]
    lock = threading.Lock()

    def answer(request: dict[str, Any]) -> Answer:
        with lock:
            left[0] -= 1
            fails = left[0] >= 0
        return failure if fails else completions(request)

    return answer


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The openai package waits half a second before it tries again."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.05)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.mark.parametrize(("owner", "modulus"), [("vllm", 2**63), ("someone", 2**31)])
@pytest.mark.parametrize("prompt", ["p", CHAT])
def test_each_completion_has_its_seed(owner: str, modulus: int, prompt: Any) -> None:
    with serving(owner=owner) as server, connect(server) as engine:
        found = sampled(engine, [Request("k", prompt, 2, 11)])
    name = prompt if isinstance(prompt, str) else "hi"
    assert found == {
        ("k", i): f"{name}|{completion_seed(3, 'k', i) % modulus}" for i in range(2, 13)
    }
    sizes = sorted(request["n"] for request in server.requests)
    assert sizes == ([3, 8] if owner == "vllm" else [1] * 11)


def test_the_server_is_asked_what_it_is() -> None:
    with serving(owner="vllm") as server, connect(server) as engine:
        assert (engine.name, engine.model, engine.version) == ("openai", "tiny", "vllm 9.9")
    with serving() as server, connect(server) as engine:
        assert engine.version is None
        engine.check(["p" * 1000], SETTINGS)
    assert server.calls["/tokenize"] == 0


@pytest.mark.parametrize(
    ("owner", "top_k", "sent"),
    [
        ("vllm", 0, {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}),
        ("sglang", 4, {"top_k": 4, "min_p": 0.0, "repetition_penalty": 1.0}),
        ("llamacpp", 0, {"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0}),
        ("someone", 0, {}),
        ("someone", 4, {"top_k": 4}),
    ],
)
def test_a_servers_own_settings_are_switched_off(
    owner: str, top_k: int, sent: dict[str, Any]
) -> None:
    settings = SamplingSettings(
        temperature=0.5, top_p=0.9, top_k=top_k, max_tokens=5, stop=("\n", "x")
    )
    with serving(owner=owner) as server, connect(server, extra_body={"own": 1}) as engine:
        sampled(engine, [Request("k", "p")], settings)
    (request,) = server.requests
    request.pop("seed")
    assert request == {
        "model": "tiny",
        "prompt": "p",
        "n": 1,
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 5,
        "stop": ["\n", "x"],
        "own": 1,
        **sent,
    }


def test_greedy_completions_are_asked_for_once() -> None:
    with serving(owner="vllm") as server, connect(server) as engine:
        found = sampled(engine, [Request("k", "p", 1, 20)], SamplingSettings(temperature=0))
    assert found == {("k", i): "p|None" for i in range(1, 21)}
    assert [request["n"] for request in server.requests] == [1]


@pytest.mark.parametrize(("owner", "body"), [("vllm", 2), ("llamacpp", 0)])
def test_a_chat_that_goes_on(owner: str, body: int) -> None:
    chat = [*CHAT, {"role": "assistant", "content": "ye"}]
    with serving(owner=owner) as server, connect(server) as engine:
        sampled(engine, [Request("k", chat)])
    (request,) = server.requests
    assert len({"add_generation_prompt", "continue_final_message"} & set(request)) == body


def test_a_chat_that_the_server_cannot_go_on_with() -> None:
    chat = [*CHAT, {"role": "assistant", "content": "ye"}]
    with serving() as server, connect(server) as engine:
        with pytest.raises(ConfigError, match="ends with the assistant's message"):
            sampled(engine, [Request("k", chat)])
        assert server.requests == []


def counts(engine: Engine, n: int) -> list[tuple[int, bool]]:
    (parts,) = engine.stream([Request("k", "p", 0, n)], SETTINGS)
    return [(c.tokens, c.is_cut) for part in parts for c in part.completions]


def test_token_counts_are_exact_or_add_up() -> None:
    with serving(owner="vllm") as server, connect(server) as engine:
        assert counts(engine, 3) == [(1, False), (2, False), (3, False)]
        assert counts(engine, 1) == [(7, False)]
    with serving() as server, connect(server, completions_per_request=3) as engine:
        assert counts(engine, 3) == [(3, False), (2, False), (2, False)]


def test_completions_that_were_cut() -> None:
    def answer(request: dict[str, Any]) -> Answer:
        body = {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}
        return 200, {}, body

    with serving(answer) as server, connect(server) as engine:
        assert counts(engine, 1) == [(0, True)]


def test_completions_that_were_cut_too_early() -> None:
    def answer(request: dict[str, Any]) -> Answer:
        choice = {"index": 0, "text": "a", "finish_reason": "length"}
        return 200, {}, {"choices": [choice], "usage": {"completion_tokens": request["seed"] % 6}}

    text = r"after [1-4] tokens, max_tokens is 5: lower"
    with (
        serving(answer) as server,
        connect(server) as engine,
        pytest.raises(ConfigError, match=text),
    ):
        sampled(engine, [Request("k", "p", 0, 6)])


def test_a_server_that_gives_fewer_completions_is_asked_singly() -> None:
    def answer(request: dict[str, Any]) -> Answer:
        return completions(request, count=1)

    with serving(answer) as server, connect(server, completions_per_request=4) as engine:
        with pytest.warns(UserWarning, match="gave 1 of 4 completions") as warned:
            found = sampled(engine, [Request(key, "p", 0, 4) for key in "abc"])
        found |= sampled(engine, [Request("d", "p", 0, 4)])
    assert found == {
        (key, i): f"p|{completion_seed(3, key, i) % 2**31}" for key in "abcd" for i in range(4)
    }
    assert len(warned) == 1
    assert [request["n"] for request in server.requests[-4:]] == [1] * 4


def test_a_server_that_gives_more_completions_than_asked_for() -> None:
    def answer(request: dict[str, Any]) -> Answer:
        return completions(request, count=3)

    with serving(answer) as server, connect(server) as engine:
        assert len(sampled(engine, [Request("k", "p", 0, 2)])) == 2


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (refusal(500, "x"), "status 500"),
        (refusal(503, "x"), "status 503"),
        ("cut", "Server disconnected"),
    ],
)
def test_failures_are_tried_again_and_it_is_said_once(failure: Answer, text: str) -> None:
    requests = [Request(str(i), "p") for i in range(6)]
    with (
        serving(failing(5, failure)) as server,
        connect(server) as engine,
        pytest.warns(UserWarning, match=f"{text}.*tried again up to 8 times") as warned,
    ):
        assert len(sampled(engine, requests)) == 6
    assert len(server.requests) == 11
    assert len(warned) == 1


def test_a_busy_server_says_when_to_come_back() -> None:
    busy = failing(1, refusal(429, "busy", **{"Retry-After": "1"}))
    with serving(busy) as server, connect(server) as engine:
        start = time.monotonic()
        assert len(sampled(engine, [Request("k", "p")])) == 1
        assert 0.9 < time.monotonic() - start < 2.5


def test_a_request_that_hangs_is_tried_again() -> None:
    with serving(failing(1, "hang")) as server, connect(server, timeout_s=0.3) as engine:
        assert len(sampled(engine, [Request("k", "p")])) == 1
    assert len(server.requests) == 2


HTML = (200, {"Content-Type": "text/html"}, b"<html>welcome</html>")


@pytest.mark.parametrize(
    ("failure", "kind", "text"),
    [
        (refusal(429, "busy"), BasisError, "too much to do .*lower concurrency"),
        (refusal(429, "busy", **{"Retry-After": "900"}), BasisError, "too much to do"),
        (refusal(500, "no memory"), BasisError, r"failed \(500: .*no memory.*server's log"),
        ("cut", BasisError, "cannot be reached .*start the server"),
        ("hang", BasisError, "no answer in time: raise timeout_s"),
        (HTML, BasisError, "answered without completions .*<html>.*base_url"),
        ((200, {}, {"choices": []}), BasisError, "answered without completions"),
        ((200, {}, b'{"choices": [{'), BasisError, "failed .*server's log"),
        ((200, {}, []), BasisError, "answered without completions"),
        (refusal(400, "maximum context length"), ConfigError, "refuses prompt 'bad' .*maximum con"),
        (refusal(422, "no"), ConfigError, "refuses prompt 'bad'"),
        (refusal(401, "wrong key"), ConfigError, "refuses the API key .*OPENAI_API_KEY"),
        (refusal(404, "no model"), ConfigError, "does not know model 'tiny'"),
    ],
)
def test_what_is_finished_comes_before_the_error(
    failure: Answer, kind: type[BasisError], text: str
) -> None:
    done = threading.Event()

    def answer(request: dict[str, Any]) -> Answer:
        if request["prompt"] != "bad":
            return completions(request)
        done.wait(2)  # until the others are done
        return failure

    options = {"timeout_s": 0.6, "max_retries": 1, "concurrency": 4}
    requests = [Request("0", "bad"), *(Request(str(i), "p") for i in range(1, 4))]
    got: list[Rollouts] = []
    with serving(answer) as server, connect(server, **options) as engine:
        stream = engine.stream(requests, SETTINGS)
        while len(got) < 3:
            got += next(stream)
        done.set()
        with pytest.raises(kind, match=text) as raised:
            next(stream)
        assert "\n" not in str(raised.value)
        assert sorted(part.key for part in got) == ["1", "2", "3"]
        # The engine is still good for other requests.
        assert len(sampled(engine, requests[1:])) == 3


def test_no_more_requests_than_concurrency_at_a_time() -> None:
    requests = [Request(str(i), "p") for i in range(60)]
    with serving(slowly(0.02)) as server, connect(server, concurrency=5) as engine:
        assert len(sampled(engine, requests)) == 60
    assert server.most == 5


def test_a_slow_reader_holds_the_requests_back() -> None:
    """What is finished and not yet taken is bounded too."""
    requests = (Request(str(i), "p") for i in range(2000))
    with serving() as server, connect(server, concurrency=4) as engine:
        stream = engine.stream(requests, SETTINGS)  # type: ignore[arg-type]
        next(stream)
        time.sleep(0.3)
        assert len(server.requests) <= 2 * 4
        stream.close()  # type: ignore[attr-defined]


def test_closing_cancels_what_is_under_way() -> None:
    def answer(request: dict[str, Any]) -> Answer:
        return completions(request) if request["prompt"] == "quick" else slow(request)

    slow = slowly(0.3)

    requests = [Request("q", "quick"), *(Request(str(i), "slow") for i in range(50))]
    with serving(answer) as server, connect(server, concurrency=4) as engine:
        stream = engine.stream(requests, SETTINGS)
        assert next(stream)[0].key == "q"
        stream.close()  # type: ignore[attr-defined]
        time.sleep(0.8)
        assert len(server.requests) <= 5  # not those that waited for their turn
        start = time.monotonic()
        engine.close()
        engine.close()
        assert time.monotonic() - start < 1
    assert not any(thread.name.startswith("openai") for thread in threading.enumerate())


def test_a_closed_engines_thread_is_gone() -> None:
    with serving() as server:
        before = threading.active_count()
        engines = [connect(server) for _ in range(3)]
        for engine in engines:
            engine.close()
        with pytest.raises(ConfigError):
            open_engine("openai", "unknown", options={"base_url": server.url})
        time.sleep(0.2)  # the server's own threads
        assert threading.active_count() <= before + 3


def test_the_longest_prompts_are_counted_before_any_is_sampled() -> None:
    with serving(owner="vllm") as server, connect(server) as engine:
        engine.check([f"{i}" for i in range(500)], SETTINGS)
        assert server.calls["/tokenize"] == 64
        engine.check(["q" * 95, CHAT], SETTINGS)
        with pytest.raises(ConfigError, match=r"prompt 'qqq.* has 96 tokens"):
            engine.check([*"abc", "q" * 96], SETTINGS)
        assert server.requests == []


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        start = time.monotonic()
        with pytest.raises(ConfigError, match=r"cannot be reached .*start the server or correct"):
            open_engine("openai", "tiny", options={"base_url": url})
    assert time.monotonic() - start < 2


def test_a_model_that_is_not_served() -> None:
    with serving() as server:
        with pytest.raises(ConfigError, match=r"not serve model 'tinny': did you mean 'tiny'\?"):
            open_engine("openai", "tinny", options={"base_url": server.url})
        server.models = []
        with pytest.raises(ConfigError, match="does not serve model 'tiny': it serves none"):
            connect(server)


def test_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server:
        server.key = "secret"
        with pytest.raises(ConfigError, match="refuses the API key") as raised:
            connect(server, api_key="wrong-one")
        assert "wrong-one" not in str(raised.value)
        connect(server, api_key="secret").close()
        monkeypatch.setenv("OPENAI_API_KEY", "secret")
        connect(server).close()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"base_url": "localhost:8000"}, "base_url is 'localhost:8000'"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"max_retries": -1}, "max_retries is -1"),
        ({"completions_per_request": "many"}, "completions_per_request is 'many'"),
        ({"concurency": 3}, "no option 'concurency': did you mean 'concurrency'"),
    ],
)
def test_options_are_checked(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        open_engine("openai", "m", options={"base_url": "http://127.0.0.1:9/v1", **options})


def test_an_address_without_v1() -> None:
    with serving() as server:
        short = server.url.removesuffix("/v1")
        with pytest.raises(ConfigError, match=rf"no interface at {short}, but one at {server.url}"):
            connect(server, base_url=short)
        # Without a list of models the first request shows it.
        server.lists = False
        server.answer = lambda _: refusal(404, "Not Found")
        with (
            connect(server, base_url=short) as engine,
            pytest.raises(ConfigError, match="add /v1 to base_url if it needs one"),
        ):
            sampled(engine, [Request("k", "p")])


def test_nothing_is_said_where_nothing_is_tried_again(recwarn: pytest.WarningsRecorder) -> None:
    with serving(failing(1, refusal(503, "x"))) as server:
        with connect(server, max_retries=0) as engine, pytest.raises(BasisError):
            sampled(engine, [Request("k", "p")])
        with connect(server) as engine:
            sampled(engine, [Request("k", "p")])
    assert not [warning for warning in recwarn if "tried again" in str(warning.message)]
