"""Requests as batches of rollouts, the same ones after a restart."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from basis_rl.errors import ConfigError
from basis_rl.rollouts.engine import Request


@dataclass(frozen=True)
class Piece:
    """Completions ``first`` to ``first + count - 1`` of a request's prompt.

    Attributes
    ----------
    request : Request
        What it is a part of.
    tokens : list of int
        Of the prompt.
    first, count : int
    copies : int
        How often each completion is given.
    """

    request: Request
    tokens: list[int]
    first: int
    count: int
    copies: int = 1


def longest_first(
    requests: Sequence[Request], tokens: Sequence[list[int]], *, once: bool = False
) -> deque[Piece]:
    """Requests by length of the prompt, those of one length in their order.

    Prompts of a batch are padded to the longest; and the batch that needs most memory comes first.

    Parameters
    ----------
    requests : sequence of Request
    tokens : sequence of lists of int
        Of their prompts.
    once : bool
        A prompt's completions are all the same: sample one and copy it.

    Raises
    ------
    ConfigError
        If a request asks for no completion.
    """
    for request in requests:
        if request.count < 1:
            raise ConfigError(
                f"n is {request.count} for prompt {request.prompt!r:.80}: sample at least one "
                "completion of each prompt"
            )
    order = sorted(range(len(requests)), key=lambda i: -len(tokens[i]))
    pieces = (Piece(requests[i], tokens[i], requests[i].first, requests[i].count) for i in order)
    if once:
        return deque(replace(piece, count=1, copies=piece.count) for piece in pieces)
    return deque(pieces)


def take_batch(pending: deque[Piece], rows: int) -> list[Piece]:
    """Take the next ``rows`` completions off the left.

    Every batch but the last has that many; what a request has left goes into the next one. So
    the batches stay the same when those before them have been done and are not asked for again.
    """
    batch: list[Piece] = []
    while pending and rows:
        piece = pending.popleft()
        here = min(piece.count, rows)
        batch.append(replace(piece, count=here))
        rows -= here
        if here < piece.count:
            rest = piece.count - here
            pending.appendleft(replace(piece, first=piece.first + here, count=rest))
    return batch
