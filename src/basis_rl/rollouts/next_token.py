"""Choosing the next token from logits, with randomness that the caller brings."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from basis_rl.rollouts.settings import SamplingSettings

if TYPE_CHECKING:
    from torch import Tensor


def choose(logits: Tensor, uniforms: Tensor, settings: SamplingSettings) -> Tensor:
    """Next token of each row, by inversion of the cumulative distribution.

    Parameters
    ----------
    logits : tensor, shape (R, V)
    uniforms : tensor, shape (R,)
        In [0, 1).
    settings : SamplingSettings

    Returns
    -------
    int64 tensor, shape (R,)
    """
    import torch

    logits = logits.float()
    if settings.temperature == 0:
        return logits.argmax(-1)
    ids = None
    if settings.top_k or settings.top_p < 1:
        kept = min(settings.top_k or logits.shape[-1], logits.shape[-1])
        logits, ids = logits.topk(kept, dim=-1)  # descending
    probabilities = torch.softmax(logits / settings.temperature, dim=-1)
    if settings.top_p < 1:
        before = probabilities.cumsum(-1) - probabilities
        probabilities = probabilities.masked_fill(before >= settings.top_p, 0.0)
    cumulative = probabilities.cumsum(-1)
    total = cumulative[:, -1:]
    # Strictly below the total, or rounding could choose a token of probability 0.
    point = torch.minimum(uniforms[:, None] * total, torch.nextafter(total, total * 0))
    position = torch.searchsorted(cumulative, point, right=True)
    return (position if ids is None else ids.gather(-1, position)).squeeze(-1)


def uniforms(keys: Sequence[str], n: int, length: int, *, seed: int) -> Tensor:
    """Random numbers of every rollout and token, fixed by seed and prompt key alone.

    Returns
    -------
    float32 tensor, shape (len(keys) * n, length)
        In [0, 1); a prompt's n rollouts lie side by side.
    """
    import torch

    numbers = []
    for key in keys:
        digest = hashlib.sha256(f"{seed}\0{key}".encode("utf-8", "surrogatepass")).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        numbers.append(torch.rand(n, length, generator=generator))
    return torch.cat(numbers)
