"""The client of the openai package, which tries again, and here says so."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

from basis_rl.errors import ConfigError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_CONNECT_S = 10.0
_TRIED_AGAIN = (408, 409, 429)  # and 5xx


def connect(base_url: str, api_key: str | None, timeout_s: float, max_retries: int) -> AsyncOpenAI:
    """Client that warns once when a request has to be tried again.

    Raises
    ------
    ConfigError
        If the openai package is missing.
    """
    try:
        from openai import AsyncOpenAI, Timeout
    except ImportError as error:
        raise ConfigError(
            "engine 'openai' needs the openai package: pip install openai, or install basis-rl "
            "with its extra [openai]"
        ) from error
    return AsyncOpenAI(
        base_url=base_url,
        api_key=api_key or os.environ.get("OPENAI_API_KEY") or "none",
        timeout=Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s)),
        max_retries=max_retries,
        http_client=_announcing_client(max_retries),
    )


def _announcing_client(max_retries: int) -> Any:
    """HTTP client that warns once when the openai package is to try again."""
    from openai import DefaultAsyncHttpxClient

    class Announcing(DefaultAsyncHttpxClient):
        said = False

        async def send(self, request: Any, **options: Any) -> Any:
            try:
                response = await super().send(request, **options)
            except Exception as error:
                self._say(request, " ".join(f"{type(error).__name__} {error}".split()))
                raise
            status = response.status_code
            if status in _TRIED_AGAIN or status >= 500:
                self._say(request, f"status {status}")
            return response

        def _say(self, request: Any, error: str) -> None:
            # What is asked with GET, at the start, is asked once.
            if self.said or not max_retries or request.method != "POST":
                return
            self.said = True
            warnings.warn(
                f"a request to {request.url} failed ({error:.200}): such requests are tried "
                f"again up to {max_retries} times, each time later; see the server's log if "
                "nothing moves",
                stacklevel=2,
            )

    return Announcing()
