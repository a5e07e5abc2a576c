"""Other ways to write a prompt, for telling why a table does not know it."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from basis_rl.prompts import Prompt

Content = Any  # a text, or a list of messages


def variants(prompt: Content) -> Iterator[tuple[str, Content]]:
    """Near misses of a prompt, each with what the table would then know it as.

    The table stores hashes of its prompts, not their texts, so only changes that can be made to
    this prompt are tried: white space, Unicode form, lower case, text against chat, with a system
    message or without.
    """
    for name, change in _TEXT_CHANGES.items():
        changed = _with_texts(prompt, change)
        if changed is not None and changed != prompt:
            yield name, changed
    if isinstance(prompt, str):
        yield "as a chat message", [{"role": "user", "content": prompt}]
        return
    texts = [message.get("content") for message in prompt]
    if len(prompt) == 1 and isinstance(texts[0], str):
        yield "as a text, not a chat", texts[0]
    if len(prompt) == 2 and prompt[0].get("role") == "system":
        yield "without the system message", prompt[1:]
        if isinstance(texts[1], str):
            yield "as a text without the system message", texts[1]


_TEXT_CHANGES: dict[str, Callable[[str], str]] = {
    "without white space at the ends": str.strip,
    "with one line end behind it": lambda text: text.rstrip("\n") + "\n",
    "with single spaces": lambda text: " ".join(text.split()),
    "in Unicode's form NFC": lambda text: unicodedata.normalize("NFC", text),
    "in Unicode's form NFD": lambda text: unicodedata.normalize("NFD", text),
    "with Windows line ends": lambda text: text.replace("\r\n", "\n").replace("\n", "\r\n"),
    "with Unix line ends": lambda text: text.replace("\r\n", "\n"),
    "in lower case": str.lower,
}


def _with_texts(prompt: Content, change: Callable[[str], str]) -> Content | None:
    """The prompt with every message's text changed; None if one has no text."""
    if isinstance(prompt, str):
        return change(prompt)
    messages = []
    for message in prompt:
        if not isinstance(message.get("content"), str):
            return None
        messages.append({**message, "content": change(message["content"])})
    return messages


def known_variants(
    prompts: Sequence[Prompt], knows: Callable[[list[str]], Sequence[bool]]
) -> dict[str, int]:
    """How many of the prompts are known in another form, by form.

    Parameters
    ----------
    prompts : sequence of Prompt
        Prompts that the table does not know.
    knows : callable
        Whether the table knows each of some keys.
    """
    from basis_rl.passrates.keys import prompt_key

    found: dict[str, int] = {}
    for prompt in prompts:
        forms = list(variants(prompt.prompt))
        known = knows([prompt_key(form) for _, form in forms])
        for (name, _), is_known in zip(forms, known, strict=True):
            if is_known:
                found[name] = found.get(name, 0) + 1
                break
    return found
