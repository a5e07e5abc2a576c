"""Prompts as token ids, each tokenised once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from basis_rl.errors import ConfigError
from basis_rl.rollouts.chat import chat_text, too_long
from basis_rl.rollouts.settings import Prompts

_TOGETHER = 1024  # prompts tokenised in one call: the tokenizer has its own threads


class PromptTokens:
    """Token ids of prompts, kept for the next call.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
    model : str
        What error messages call it.
    limit : int, optional
        Tokens that prompt and completion may have together.
    """

    def __init__(self, tokenizer: Any, model: str, limit: int | None = None) -> None:
        self.tokenizer = tokenizer
        self.model = model
        self.limit = limit
        self._known: dict[tuple[str, str], npt.NDArray[np.int32]] = {}

    def encode(self, prompts: Prompts, max_tokens: int) -> list[list[int]]:
        """Token ids of each prompt; chats go through the tokenizer's template.

        Parameters
        ----------
        prompts : sequence of str or of lists of messages
        max_tokens : int
            Longest completion.

        Raises
        ------
        ConfigError
            If a prompt has no tokens or is too long for the model, or the tokenizer has no chat
            template or its template refuses a chat.
        """
        found: list[list[int]] = []
        for start in range(0, len(prompts), _TOGETHER):
            found += self._encode(prompts[start : start + _TOGETHER])
        for prompt, tokens in zip(prompts, found, strict=True):
            self._check(prompt, len(tokens), max_tokens)
        return found

    def _encode(self, prompts: Prompts) -> list[list[int]]:
        names = [_name(prompt) for prompt in prompts]
        new = [i for i, name in enumerate(names) if name is None or name not in self._known]
        texts = [i for i in new if isinstance(prompts[i], str)]
        chats = [i for i in new if not isinstance(prompts[i], str)]
        made = dict(zip(texts, self._tokenise([prompts[i] for i in texts]), strict=True))
        rendered = [chat_text(self.tokenizer, prompts[i], model=self.model) for i in chats]
        # A template writes its special tokens itself.
        made |= dict(zip(chats, self._tokenise(rendered, add_special_tokens=False), strict=True))
        for i, tokens in made.items():
            name = names[i]
            if name is not None:
                self._known[name] = np.array(tokens, dtype=np.int32)
        return [
            made[i] if i in made or name is None else self._known[name].tolist()
            for i, name in enumerate(names)
        ]

    def _tokenise(self, texts: Sequence[str], **options: Any) -> list[list[int]]:
        if not texts:
            return []
        tokens: list[list[int]] = self.tokenizer(list(texts), **options)["input_ids"]
        return tokens

    def _check(self, prompt: Any, length: int, max_tokens: int) -> None:
        if not length:
            raise ConfigError(f"prompt {prompt!r:.80} has no tokens: leave it out")
        if self.limit is not None and length + max_tokens > self.limit:
            raise too_long(prompt, length, max_tokens, self.limit)


def _name(prompt: Any) -> tuple[str, str] | None:
    """What a prompt is known by; None for one that JSON cannot tell from others."""
    if isinstance(prompt, str):
        return "text", prompt
    try:
        return "chat", json.dumps(prompt)
    except (TypeError, ValueError):
        return None
