"""Keys of prompts: a content hash that is the same in every process and on every platform.

The canonical form of a prompt is the JSON text of ``["text", prompt]`` or ``["chat", messages]``,
with sorted names, no spaces, and every character outside ASCII escaped::

    json.dumps(["text", prompt], sort_keys=True, separators=(",", ":"), ensure_ascii=True)

In messages, entries that are None are left out at every level (data-set libraries add them), and
tuples and NumPy arrays are lists. The text itself is not changed: no stripping, no Unicode
normalisation. The key is the first 32 hexadecimal digits of its SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from basis_rl.errors import PassRatesError

_quoted = json.encoder.encode_basestring_ascii

DIGITS = 32
HASH_DIGITS = 16


def prompt_key(prompt: str | Sequence[Mapping[str, Any]]) -> str:
    """Content hash of a prompt, 32 hexadecimal digits.

    Parameters
    ----------
    prompt : str or sequence of message dicts
        A text and a chat with one message of that text have different keys.

    Raises
    ------
    PassRatesError
        If the prompt is neither, or a message holds what JSON cannot (an image, say).
    """
    return hashlib.sha256(canonical(prompt).encode("ascii")).hexdigest()[:DIGITS]


def prompt_hash(prompt: str | Sequence[Mapping[str, Any]]) -> str:
    """Short hash that a table with named keys keeps, so that a changed prompt is noticed.

    The first 16 digits of `prompt_key`.

    Raises
    ------
    PassRatesError
        As `prompt_key`.
    """
    return prompt_key(prompt)[:HASH_DIGITS]


def canonical(prompt: str | Sequence[Mapping[str, Any]]) -> str:
    """Canonical form of a prompt, the ASCII text that `prompt_key` hashes.

    Raises
    ------
    PassRatesError
        As `prompt_key`.
    """
    if (plain := _plain_chat(prompt)) is not None:
        return plain
    if isinstance(prompt, str):
        form: list[Any] = ["text", str(prompt)]
    elif isinstance(prompt, list | tuple | np.ndarray):
        for position, message in enumerate(prompt):
            if not isinstance(message, Mapping):
                raise PassRatesError(
                    f"prompt[{position}] is {message!r}: give a text, or a list of message dicts "
                    "with role and content"
                )
        if not len(prompt):
            raise PassRatesError("the prompt has no messages: give at least one")
        form = ["chat", [_plain(message, f"prompt[{i}]") for i, message in enumerate(prompt)]]
    else:
        raise PassRatesError(
            f"the prompt is {prompt!r:.80} ({type(prompt).__name__}): give a text or a list of "
            "messages"
        )
    return json.dumps(form, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _plain_chat(prompt: Any) -> str | None:
    """Canonical form of a chat of role and content, both texts; None for any other prompt."""
    if type(prompt) is not list or not prompt:
        return None
    messages = []
    for message in prompt:
        if type(message) is not dict or len(message) != 2:
            return None
        role, content = message.get("role"), message.get("content")
        if type(role) is not str or type(content) is not str:
            return None
        messages.append(f'{{"content":{_quoted(content)},"role":{_quoted(role)}}}')
    return f'["chat",[{",".join(messages)}]]'


def _plain(value: Any, place: str) -> Any:
    """JSON types only, without None entries of dicts."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise PassRatesError(f"{place} has the name {name!r}: names in messages are texts")
        return {
            str(name): _plain(entry, f"{place}[{name!r}]")
            for name, entry in value.items()
            if entry is not None
        }
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(entry, f"{place}[{i}]") for i, entry in enumerate(value)]
    raise PassRatesError(
        f"{place} is {value!r:.80} ({type(value).__name__}), which has no canonical form: name a "
        "key column instead"
    )
