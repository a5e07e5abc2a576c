"""Parts of a data set, so that several machines can build one cache."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from basis_rl.errors import ConfigError

if TYPE_CHECKING:
    from basis_rl.prompts import Prompt

Shard = tuple[int, int]


def as_shard(text: str) -> Shard:
    """Shard of a text like ``3/16``: the third of sixteen.

    Raises
    ------
    ConfigError
        If it has another form or there is no such shard.
    """
    found = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    if not found:
        raise ConfigError(f"shard is {text!r}: write it as 3/16, the third of sixteen")
    shard = int(found[1]), int(found[2])
    check_shard(shard)
    return shard


def check_shard(shard: Shard) -> None:
    """Refuse a shard that there is not.

    Raises
    ------
    ConfigError
    """
    number, count = shard
    if not 1 <= number <= count:
        raise ConfigError(f"shard is {number}/{count}: use 1/{count} to {count}/{count}")


def of_shard(prompts: Sequence[Prompt], shard: Shard | None) -> list[Prompt]:
    """Prompts of a shard, in order: those whose key's hash falls into it.

    A prompt is in the same shard whatever other prompts there are.
    """
    if shard is None:
        return list(prompts)
    number, count = shard
    return [prompt for prompt in prompts if _place(prompt.key, count) == number - 1]


def _place(key: str, count: int) -> int:
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % count
