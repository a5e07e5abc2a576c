"""Options of engines are looked at before anything is loaded."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from basis_rl import cli
from basis_rl.errors import ConfigError
from basis_rl.rollouts import SamplingSettings
from basis_rl.rollouts.create import ENGINES, check_options, engine_class
from basis_rl.rollouts.openai_options import check_extra_body
from basis_rl.rollouts.openai_request import body
from basis_rl.rollouts.openai_server import GOES_ON, Server

URL = {"base_url": "http://127.0.0.1:9/v1"}


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_every_option_has_a_rule(name: str) -> None:
    engine = engine_class(name)
    parameters = inspect.signature(engine.open).parameters.values()
    options = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert set(engine.values) == options - {"revision", "dtype"}


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_defaults_are_good_and_nonsense_is_not(name: str) -> None:
    parameters = inspect.signature(engine_class(name).open).parameters
    needed = {"openai": URL}.get(name, {})
    defaults = {option: parameters[option].default for option in engine_class(name).values}
    check_options(name, defaults | needed)
    for option in defaults:
        with pytest.raises(ConfigError, match=f"^{option} is ") as caught:
            check_options(name, needed | {option: object()})
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("engine", "options", "text"),
    [
        ("openai", {"base_url": "localhost:8000"}, "base_url is 'localhost:8000': use an address"),
        ("openai", {"base_url": "http://"}, "base_url is 'http://'"),
        ("openai", {"concurrency": "abc"}, "concurrency is 'abc': use a whole number, at least 1"),
        ("openai", {"concurrency": True}, "concurrency is True"),
        ("openai", {"timeout_s": "x"}, "timeout_s is 'x': use a number above 0"),
        ("openai", {"timeout_s": float("inf")}, "timeout_s is inf"),
        ("openai", {"max_retries": 1.5}, "max_retries is 1.5"),
        ("openai", {"extra_body": 3}, "extra_body is 3: use a mapping"),
        ("openai", {"extra_body": {3: 1}}, "extra_body is {3: 1}"),
        ("openai", {"api_key": 123}, "api_key is no text: use a text"),
        ("transformers", {"batch_size": "big"}, "batch_size is 'big': use a positive number or 'a"),
        ("transformers", {"device": 0}, "device is 0: use a text"),
        ("transformers", {"batchsize": 3}, "no option 'batchsize': did you mean 'batch_size'"),
        ("vllm", {"gpu_memory_utilization": 2}, "utilization is 2: use a number above 0 and at m"),
        ("vllm", {"in_flight": -1}, "in_flight is -1"),
        ("vllm", {"seeds": "no"}, "seeds is 'no': use true or false"),
        ("vllm", {"engine_args": 7}, "engine_args is 7"),
        ("vllm", {"engine_args": {"seed": 7}}, "engine_args sets seed: leave it out"),
        ("vllm", {"engine_args": {"max_num_seqs": 7}}, "engine_args sets max_num_seqs: it is an"),
    ],
)
def test_wrong_values(engine: str, options: dict[str, Any], text: str) -> None:
    needed = URL if engine == "openai" else {}
    with pytest.raises(ConfigError, match=text):
        check_options(engine, {**needed, **options})


def test_a_missing_address() -> None:
    with pytest.raises(ConfigError, match="needs the address of a server: give --base-url http:"):
        check_options("openai", {"concurrency": 3})


@pytest.mark.parametrize("name", ["temperature", "stop", "max_completion_tokens", "stream"])
def test_an_extra_body_cannot_change_what_is_sampled(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^extra_body sets {name}: leave it out"):
        check_options("openai", {**URL, "extra_body": {"own": 1, name: 1}})
    check_options("openai", {**URL, "extra_body": {"own": 1}})


@pytest.mark.parametrize("kind", sorted(GOES_ON))
@pytest.mark.parametrize("prompt", ["p", [{"role": "assistant", "content": "ye"}]])
def test_nothing_that_a_request_holds_is_taken_from_an_extra_body(kind: str, prompt: Any) -> None:
    settings = SamplingSettings(top_k=3, stop=("x",))
    server = Server("http://s/v1", "m", kind)
    request = body(prompt, settings, server, count=2, seed=1, extra_body={})
    for name in {**request, **request["extra_body"]}.keys() - {"extra_body"}:
        with pytest.raises(ConfigError, match=f"extra_body sets {name}:"):
            check_extra_body([name])


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ModuleNotFoundError("No module named 'x'"), "No module named 'x': install it, or basis-"),
        (ImportError("needs x: install x"), "basis-rl: needs x: install x\n"),
    ],
)
def test_a_missing_package_is_one_line_and_exit_code_2(
    error: ImportError,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(**_: Any) -> None:
        raise error

    monkeypatch.setattr(cli.group, "main", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main(["cache"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1
