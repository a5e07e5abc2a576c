"""What each worker of the Ray engine runs, and how requests travel to it and rollouts back.

Both travel as JSON text: Arrow would add the names of one message to all others, and has no text
with half a surrogate pair.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from basis_rl import errors
from basis_rl.errors import BasisError, ConfigError
from basis_rl.rollouts.create import open_engine
from basis_rl.rollouts.engine import Completion, Engine, Request, Rollouts
from basis_rl.rollouts.settings import SamplingSettings

Block = dict[str, Any]  # of Ray Data: column -> values
_ENDED = (
    "a worker's process ended (out of memory, a crash, a machine that went away): give workers "
    "more memory or fewer prompts at a time, and run it again"
)


class Worker:
    """Opens an engine and samples one group of requests after the other.

    An error is a result like others: raised here, Ray would wrap it, and start over an actor that
    fails in its constructor.

    Parameters
    ----------
    engine : str
    model : str
    opening : mapping
        Arguments of `open_engine`.
    settings : SamplingSettings
    seed : int
    """

    def __init__(
        self,
        engine: str,
        model: str,
        opening: Mapping[str, Any],
        settings: SamplingSettings,
        seed: int,
    ) -> None:
        self.settings = settings
        self.seed = seed
        self.engine: Engine | None = None
        self.error: str | None = None
        try:
            if _is_restarted():
                raise BasisError(_ENDED)
            self.engine = open_engine(engine, model, **opening)
        except Exception as error:
            self.error = error_text(error)

    def __call__(self, block: Block) -> Block:
        """Sample groups of requests; a JSON text each."""
        return {"rollouts": [self._sample(str(text)) for text in block["requests"]]}

    def _sample(self, text: str) -> str:
        if self.engine is None:
            return self.error or ""
        try:
            stream = self.engine.stream(requests_of(text), self.settings, seed=self.seed)
            return rollouts_text([part for finished in stream for part in finished])
        except Exception as error:
            return error_text(error)


def _is_restarted() -> bool:
    """Whether Ray has started this worker again; it would do so without end."""
    import ray

    context = ray.get_runtime_context()
    return context.get_actor_id() is not None and bool(context.was_current_actor_reconstructed)


def requests_text(requests: Sequence[Request]) -> str:
    """Requests as JSON text.

    Raises
    ------
    ConfigError
        If a prompt holds what JSON cannot.
    """
    try:
        return json.dumps([asdict(request) for request in requests])
    except (TypeError, ValueError):
        for request in requests:
            _check_json(request)
        raise


def _check_json(request: Request) -> None:
    try:
        json.dumps(request.prompt)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"prompt {request.prompt!r:.80} cannot be sent to another process ({error}): use "
            "texts, numbers, lists and dicts in messages"
        ) from None


def requests_of(text: str) -> list[Request]:
    """Requests of a JSON text."""
    return [Request(**entry) for entry in json.loads(text)]


def rollouts_text(rollouts: Sequence[Rollouts]) -> str:
    """Rollouts as JSON text."""
    return json.dumps([asdict(part) for part in rollouts])


def error_text(error: Exception) -> str:
    """Error as JSON text: its class and line where it is ours, its traceback where it is not."""
    if isinstance(error, BasisError):
        return json.dumps({"error": type(error).__name__, "line": str(error)})
    line = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    trace = "".join(traceback.format_exception(error))
    return json.dumps({"error": "BasisError", "line": f"a worker failed: {line}", "trace": trace})


def rollouts_of(text: str) -> list[Rollouts]:
    """Rollouts of a JSON text.

    Raises
    ------
    BasisError
        The worker's own, if there was one.
    """
    found = json.loads(text)
    if isinstance(found, dict):
        kind = getattr(errors, found["error"], BasisError)
        trace = found.get("trace")
        raise kind(found["line"]) from (RuntimeError(trace) if trace else None)
    return [
        Rollouts(part["key"], part["first"], tuple(Completion(**c) for c in part["completions"]))
        for part in found
    ]
