"""What samples completions: requests in, completions out, in any order."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar

from basis_rl.errors import BasisError
from basis_rl.passrates.keys import prompt_key
from basis_rl.rollouts.options import Values, check_options
from basis_rl.rollouts.settings import Prompts, SamplingSettings

SEEDS = 2**63


@dataclass(frozen=True)
class Request:
    """Completions number ``first`` to ``first + count - 1`` of one prompt.

    Attributes
    ----------
    key : str
        The prompt's key.
    prompt : str or list of messages
    first : int
        A completion is identified by its prompt's key and its number, from 0.
    count : int
        At least 1.
    """

    key: str
    prompt: str | list[dict[str, Any]]
    first: int = 0
    count: int = 1


@dataclass(frozen=True)
class Completion:
    """What the model wrote.

    Attributes
    ----------
    text : str
        Without special tokens and stop texts.
    tokens : int
        Sampled tokens, an end token included.
    is_cut : bool
        Whether it ended because it had ``max_tokens`` tokens.
    """

    text: str
    tokens: int
    is_cut: bool = False


@dataclass(frozen=True)
class Rollouts:
    """Completions number ``first``, ``first + 1``, … of the prompt with this key."""

    key: str
    first: int
    completions: tuple[Completion, ...]


class Engine(ABC):
    """Samples completions of a reference policy; a context manager.

    Attributes
    ----------
    name : str
        Of the engine: "transformers", "vllm", ….
    model : str
        Name or folder of the reference policy.
    revision : str or None
    dtype : str or None
        Number type, None where unknown.
    version : str or None
        Of the package that samples, None where unknown.
    """

    name: ClassVar[str]
    values: ClassVar[Mapping[str, Values]] = {}  # of an option of `open`: what it may be
    model: str
    revision: str | None = None
    dtype: str | None = None
    version: str | None = None

    @classmethod
    @abstractmethod
    def open(
        cls, model: str, *, revision: str | None = None, dtype: str = "auto", **options: Any
    ) -> Engine:
        """Load a model, or connect to its server; options are the engine's own keywords.

        Raises
        ------
        ConfigError
            If a package is missing, an option is wrong or the model cannot be had.
        """

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuse options that `open` would not take, without loading anything.

        Raises
        ------
        ConfigError
            If one is unknown, missing, or of a wrong type or size.
        """
        check_options(cls.name, cls.open, cls.values, options)

    @abstractmethod
    def stream(
        self, requests: Sequence[Request], settings: SamplingSettings, *, seed: int = 0
    ) -> Iterator[list[Rollouts]]:
        """Sample what is asked for, and give completions as they finish.

        Parameters
        ----------
        requests : sequence of Request
            No two ask for the same completion. An engine may take them in any order.
        settings : SamplingSettings
        seed : int
            Completion i of a prompt has the seed ``completion_seed(seed, key, i)``.

        Yields
        ------
        list of Rollouts
            What finished together. Each requested completion comes exactly once; a request may
            be answered in parts.

        Raises
        ------
        BasisError
            If a prompt cannot be sampled or the engine fails.
        """

    def check(self, prompts: Prompts, settings: SamplingSettings) -> None:
        """Refuse prompts that cannot be sampled, before any is.

        Raises
        ------
        BasisError
            Naming the prompt and the remedy.
        """
        return

    def close(self) -> None:
        """Give back what the engine holds: memory, processes, connections."""
        return

    def sample(
        self,
        prompts: Prompts,
        n: int = 1,
        settings: SamplingSettings | None = None,
        *,
        seed: int = 0,
        keys: Sequence[str] | None = None,
    ) -> list[list[str]]:
        """Texts of n completions of each prompt: `stream` for those who want all at once.

        Parameters
        ----------
        prompts : sequence of str or of lists of messages, length P
        n : int
        settings : SamplingSettings, optional
        seed : int
        keys : sequence of str, length P, optional
            By default the prompts' content hashes.

        Returns
        -------
        list of P lists of n texts

        Raises
        ------
        BasisError
            As `stream`; if the engine leaves a completion out.
        """
        if keys is None:
            keys = [prompt_key(prompt) for prompt in prompts]
        requests = [Request(key, prompt, 0, n) for key, prompt in zip(keys, prompts, strict=True)]
        found: dict[tuple[str, int], str] = {}
        for finished in self.stream(requests, settings or SamplingSettings(), seed=seed):
            for part in finished:
                for number, completion in enumerate(part.completions, start=part.first):
                    found[part.key, number] = completion.text
        try:
            return [[found[key, number] for number in range(n)] for key in keys]
        except KeyError as error:
            raise BasisError(
                f"engine {self.name!r} gave no completion for {error}: report it as a bug"
            ) from None

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def completion_seed(seed: int, key: str, number: int) -> int:
    """Seed of one completion: a hash of seed and prompt key, plus the completion's number.

    Returns
    -------
    int
        From 0 to 2**63 - 1. Consecutive completions have consecutive seeds, as those of one
        request with n completions have in vLLM.
    """
    digest = hashlib.sha256(f"{seed}\0{key}".encode("utf-8", "surrogatepass")).digest()
    return (int.from_bytes(digest[:8], "big") + number) % SEEDS
