"""Stop texts: when a completion ends, and what is left of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from basis_rl.rollouts.chat import cut_at_stop

# A token has a byte or more, so a stop text of b bytes lies within the last b tokens and a few.
_MARGIN = 4
_INCOMPLETE = "\ufffd"  # what part of a character is decoded to


class StopTexts:
    """Finds stop texts in what is being sampled.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
    texts : sequence of str
    """

    def __init__(self, tokenizer: Any, texts: Sequence[str]) -> None:
        self.texts = tuple(texts)
        self._tokenizer = tokenizer
        self._window = max((_bytes(text) for text in self.texts), default=0) + _MARGIN
        self._characters = frozenset("".join(self.texts))
        self._can_end: dict[int, bool] = {}

    def reached(self, tokens: list[int]) -> bool:
        """Whether the newest token completes a stop text."""
        if not self.texts or not self._may_end(tokens[-1]):
            return False
        text = self._decoded(tokens[-self._window :])
        return any(stop in text for stop in self.texts)

    def text(self, tokens: list[int]) -> str:
        """Text of a completion, without special tokens and up to the first stop text."""
        return cut_at_stop(self._decoded(tokens), self.texts)

    def _may_end(self, token: int) -> bool:
        """Whether a token holds a character of a stop text: most do not, and need no decoding."""
        if token not in self._can_end:
            text = self._decoded([token])
            # Alone, a token may lose the space before it; and one with no text may be a space.
            held = {*text, " "} if text else self._characters
            self._can_end[token] = _INCOMPLETE in text or not self._characters.isdisjoint(held)
        return self._can_end[token]

    def _decoded(self, tokens: list[int]) -> str:
        text: str = self._tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
