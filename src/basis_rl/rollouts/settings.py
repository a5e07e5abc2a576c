"""How completions are sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from basis_rl.errors import ConfigError

Prompts = Sequence[Any]  # texts or lists of chat messages


@dataclass(frozen=True)
class SamplingSettings:
    """How completions are sampled; no other settings of a model's generation_config are used.

    Attributes
    ----------
    temperature : float
        0 takes the most likely token.
    top_p : float
        In (0, 1]; the fewest tokens that have at least this probability are kept.
    top_k : int
        The most likely tokens that are kept; 0 keeps all.
    max_tokens : int
        Longest completion.
    stop : tuple of str
        A completion ends before the first of these texts, besides at the model's end tokens.

    Raises
    ------
    ConfigError
        If a value is out of range.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise ConfigError(f"temperature is {self.temperature}: use 0 (greedy) or above")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p is {self.top_p}: use a number above 0 and up to 1 (off)")
        if self.top_k < 0:
            raise ConfigError(f"top_k is {self.top_k}: use 0 (off) or a positive number")
        if self.max_tokens < 1:
            raise ConfigError(f"max_tokens is {self.max_tokens}: use at least 1")
        if not isinstance(self.stop, tuple) or not all(self.stop):
            raise ConfigError(f"stop is {self.stop!r}: pass a tuple of texts, none empty")
