"""What an OpenAI-compatible server is: its kind, its models, and how it says no."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from basis_rl.errors import BasisError, ConfigError, nearest

if TYPE_CHECKING:
    from openai import AsyncOpenAI

# `owned_by` of a server's models -> what switches its own sampling defaults off (those of the
# model's generation_config in vLLM and SGLang).
_NEUTRAL: dict[str, dict[str, Any]] = {
    "vllm": {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0},
    "sglang": {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0},
    "llamacpp": {"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0},
}
# Body that makes a chat go on with its last message; llama.cpp does so unasked.
_GO_ON = {"add_generation_prompt": False, "continue_final_message": True}
GOES_ON: dict[str, dict[str, Any]] = {"vllm": _GO_ON, "sglang": _GO_ON, "llamacpp": {}}
_START_S = 5.0


@dataclass(frozen=True)
class Server:
    """A server and what is known of it.

    Attributes
    ----------
    url : str
        Up to and with ``/v1``.
    model : str
    kind : str
        vllm, sglang, llamacpp, or "" for any other.
    version : str or None
    limit : int or None
        Tokens of prompt and completion together.
    """

    url: str
    model: str
    kind: str = ""
    version: str | None = None
    limit: int | None = None
    neutral: Mapping[str, Any] = field(default_factory=dict)

    @property
    def root(self) -> str:
        """Address of what is outside the OpenAI interface."""
        return self.url.rstrip("/").removesuffix("/v1")


async def look_at(client: AsyncOpenAI, model: str) -> Server:
    """Ask a server what it is and whether it serves a model, within a few seconds.

    Raises
    ------
    ConfigError
        If it cannot be reached, refuses the key or does not serve the model.
    """
    from openai import APIError, APITimeoutError, NotFoundError

    quick = client.with_options(max_retries=0, timeout=_START_S)
    server = Server(str(client.base_url).rstrip("/"), model)
    try:
        served = (await quick.models.list()).data
    except NotFoundError:  # a server without a list of models
        await _check_v1(quick, server)
        return server
    except APITimeoutError as error:
        raise ConfigError(
            f"{server.url} gave no answer within {_START_S:g} s: look at the server, or correct "
            "base_url"
        ) from error
    except (APIError, ValueError) as error:
        raise ConfigError(str(explained(error, server))) from error
    found = {entry.id: entry for entry in served or ()}
    if model not in found:
        others = nearest(model, sorted(found)) if found else ": it serves none"
        raise ConfigError(f"{server.url} does not serve model {model!r}{others}")
    entry = found[model]
    kind = entry.owned_by if entry.owned_by in _NEUTRAL else ""
    limit = getattr(entry, "max_model_len", None)
    version = await _version(quick, server.root) if kind == "vllm" else None
    return Server(server.url, model, kind, version, limit, _NEUTRAL.get(kind, {}))


async def _check_v1(client: AsyncOpenAI, server: Server) -> None:
    """Refuse an address without ``/v1`` where the one with it has a list of models."""
    from openai import APIError

    longer = f"{server.url}/v1"
    if server.url.endswith("/v1"):
        return
    try:
        await client.get(f"{longer}/models", cast_to=object)
    except (APIError, ValueError):
        return
    raise ConfigError(f"there is no interface at {server.url}, but one at {longer}: use that one")


async def _version(client: AsyncOpenAI, root: str) -> str | None:
    from openai import APIError

    try:
        answer: Any = await client.get(f"{root}/version", cast_to=object)
        return f"vllm {answer['version']}"
    except (APIError, KeyError, TypeError, ValueError):
        return None


def explained(error: Exception, server: Server, prompt: Any = None) -> BasisError:
    """The error of one line that a failed request ends in.

    Parameters
    ----------
    error : Exception
        Of the openai package.
    server : Server
    prompt : str or list of messages, optional
        What was to be sampled.

    Returns
    -------
    BasisError
        A ConfigError where something has to be changed before it can work.
    """
    import openai

    said = _said(error)
    status = getattr(error, "status_code", None)
    if isinstance(error, openai.APITimeoutError):
        return BasisError(
            f"{server.url} gave no answer in time: raise timeout_s, lower concurrency or look "
            "at the server"
        )
    if isinstance(error, openai.APIConnectionError):
        return BasisError(
            f"{server.url} cannot be reached ({said}): start the server or correct base_url"
        )
    if status in (401, 403):
        return ConfigError(
            f"{server.url} refuses the API key ({said}): set OPENAI_API_KEY or pass api_key"
        )
    if status == 404:
        where = "" if server.url.endswith("/v1") else "add /v1 to base_url if it needs one, "
        return ConfigError(
            f"{server.url} does not know model {server.model!r} or this kind of prompt ({said}): "
            f"{where}correct the model's name, or use texts instead of chats or the other way round"
        )
    if status == 429:
        return BasisError(
            f"{server.url} has too much to do ({said}): lower concurrency or raise max_retries"
        )
    if status is not None and status < 500:
        return ConfigError(
            f"{server.url} refuses prompt {prompt!r:.80} ({said}): leave it out or change it, or "
            "correct the sampling settings"
        )
    return BasisError(f"{server.url} failed ({said}): look at the server's log, then start again")


def _said(error: Exception) -> str:
    """What the server or the network said, in one line."""
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, Mapping) else None
    text = " ".join(str(message or error.__cause__ or error).split())
    status = getattr(error, "status_code", None)
    return (f"{status}: {text}" if status else text)[:300]
