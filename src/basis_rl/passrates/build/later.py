"""An engine that is opened when the first completion is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from basis_rl.rollouts.create import check_options, open_engine
from basis_rl.rollouts.engine import Engine, Request, Rollouts
from basis_rl.rollouts.settings import Prompts, SamplingSettings


class LaterEngine(Engine):
    """Knows what the engine is called, and loads the model once something has to be sampled.

    Parameters
    ----------
    name : str
        As for `open_engine`.
    model : str
    revision : str, optional
    dtype : str
        With "auto" it is unknown until the engine is open.
    options : mapping, optional
        The engine's own.

    Attributes
    ----------
    announce : callable or None
        Called before the model is loaded.

    Raises
    ------
    ConfigError
        If the engine or an option is unknown.
    """

    def __init__(
        self,
        name: str,
        model: str,
        *,
        revision: str | None = None,
        dtype: str = "auto",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        check_options(name, options or {})
        self.name = name  # type: ignore[misc]
        self.model, self.revision = model, revision
        self.dtype = None if dtype == "auto" else dtype
        self._dtype, self._options = dtype, options
        self.announce: Callable[[], None] | None = None
        self._opened: Engine | None = None

    @classmethod
    def open(
        cls, model: str, *, revision: str | None = None, dtype: str = "auto", **options: Any
    ) -> LaterEngine:
        """Make one for the engine named by the option ``engine``."""
        name = options.pop("engine", "transformers")
        return cls(name, model, revision=revision, dtype=dtype, options=options)

    def opened(self) -> Engine:
        """The engine itself, which is opened if it is not open yet."""
        if self._opened is None:
            if self.announce is not None:
                self.announce()
            self._opened = open_engine(
                self.name,
                self.model,
                revision=self.revision,
                dtype=self._dtype,
                options=self._options,
            )
            self.dtype, self.version = self._opened.dtype, self._opened.version
        return self._opened

    def stream(
        self, requests: Sequence[Request], settings: SamplingSettings, *, seed: int = 0
    ) -> Iterator[list[Rollouts]]:
        """Sample; see `Engine.stream`."""
        return self.opened().stream(requests, settings, seed=seed)

    def check(self, prompts: Prompts, settings: SamplingSettings) -> None:
        """Refuse prompts that cannot be sampled; see `Engine.check`."""
        self.opened().check(prompts, settings)

    def close(self) -> None:
        """Give back what the engine holds."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
