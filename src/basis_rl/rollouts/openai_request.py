"""One request to an OpenAI-compatible server: its body, and the completions in the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from basis_rl.errors import BasisError, ConfigError
from basis_rl.rollouts.chat import goes_on
from basis_rl.rollouts.engine import Completion
from basis_rl.rollouts.openai_server import GOES_ON, Server
from basis_rl.rollouts.settings import SamplingSettings

_SEEDS = 2**31  # what every server takes; vLLM takes 64 bits


def body(
    prompt: Any,
    settings: SamplingSettings,
    server: Server,
    *,
    count: int,
    seed: int | None,
    extra_body: Mapping[str, Any],
) -> dict[str, Any]:
    """Arguments of the openai package's ``create`` for ``count`` completions of a prompt.

    Raises
    ------
    ConfigError
        If a chat ends with the assistant's message and the server cannot go on with one.
    """
    is_chat = not isinstance(prompt, str)
    extra = dict(server.neutral)
    if settings.top_k:
        extra["top_k"] = settings.top_k
    if server.kind == "vllm" and count > 1:
        extra["return_token_ids"] = True  # the usage counts all completions together
    if is_chat and goes_on(prompt):
        extra.update(_go_on(prompt, server))
    arguments = {
        "model": server.model,
        "messages" if is_chat else "prompt": list(prompt) if is_chat else prompt,
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "n": count,
        "extra_body": {**extra, **extra_body},
    }
    if settings.stop:
        arguments["stop"] = list(settings.stop)
    if seed is not None:
        arguments["seed"] = seed if server.kind == "vllm" else seed % _SEEDS
    return arguments


def completions_of(answer: Any, server: Server) -> list[Completion]:
    """Completions in an answer, in the order of their numbers; maybe fewer than asked for.

    Tokens are counted by the server: exactly where it says so for each completion or there is
    one; else its sum is split evenly, and 0 where it gives none.

    Raises
    ------
    BasisError
        If it is no answer to such a request.
    """
    choices = getattr(answer, "choices", None)
    if not isinstance(choices, list) or not choices:
        said = answer if isinstance(answer, str) else type(answer).__name__
        raise BasisError(
            f"{server.url} answered without completions ({said!r:.80}): correct base_url, which "
            "ends in /v1 for most servers, or look at the server"
        )
    choices = sorted(choices, key=lambda choice: choice.index or 0)
    tokens = _token_counts(choices, answer)
    return [
        Completion(_text(choice), count, choice.finish_reason == "length")
        for choice, count in zip(choices, tokens, strict=True)
    ]


def check_lengths(
    completions: Sequence[Completion], settings: SamplingSettings, server: Server, prompt: Any
) -> None:
    """Refuse completions that a server cut before ``max_tokens``: it had no room for more.

    Raises
    ------
    ConfigError
        Naming the prompt.
    """
    for completion in completions:
        if completion.is_cut and 0 < completion.tokens < settings.max_tokens:
            raise ConfigError(
                f"{server.url} cut a completion of prompt {prompt!r:.80} after "
                f"{completion.tokens} tokens, max_tokens is {settings.max_tokens}: lower "
                "max_tokens, leave the prompt out or raise the server's own limit"
            )


def tokenize_body(prompt: Any, server: Server) -> dict[str, Any]:
    """Body of vLLM's ``/tokenize``."""
    if isinstance(prompt, str):
        return {"model": server.model, "prompt": prompt}
    more = GOES_ON["vllm"] if goes_on(prompt) else {}
    return {"model": server.model, "messages": list(prompt), **more}


def _go_on(prompt: Any, server: Server) -> dict[str, Any]:
    if server.kind not in GOES_ON:
        raise ConfigError(
            f"prompt {prompt!r:.80} ends with the assistant's message, and {server.url} is not "
            "known to go on with one (vLLM, SGLang and llama.cpp do): use a text prompt"
        )
    return GOES_ON[server.kind]


def _text(choice: Any) -> str:
    message = getattr(choice, "message", None)
    text = choice.text if message is None else message.content
    return text or ""


def _token_counts(choices: list[Any], answer: Any) -> list[int]:
    ids = [getattr(choice, "token_ids", None) for choice in choices]
    counts = [len(tokens) for tokens in ids if isinstance(tokens, list)]
    if len(counts) == len(choices):
        return counts
    total = getattr(getattr(answer, "usage", None), "completion_tokens", None) or 0
    share, rest = divmod(total, len(choices))
    return [share + (i < rest) for i in range(len(choices))]
