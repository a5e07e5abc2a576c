"""Choosing the next token from logits, with randomness that the caller brings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from basis_rl.rollouts.settings import SamplingSettings

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 64  # tokens that random numbers are drawn for at a time


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


class Uniforms:
    """Random numbers of completions, each from its own generator.

    Parameters
    ----------
    seeds : sequence of int, length R
        From 0 to 2**63 - 1; the numbers of a completion depend on its seed alone.
    device : torch.device
        Where the numbers are needed.
    """

    def __init__(self, seeds: Sequence[int], device: Any = "cpu") -> None:
        self._generators = [np.random.Generator(np.random.Philox(key=seed)) for seed in seeds]
        self._device = device
        self._left: Tensor | None = None

    def next(self) -> Tensor:
        """One number of each completion, in [0, 1): float32, shape (R,)."""
        if self._left is None or not self._left.shape[1]:
            self._left = self._drawn()
        numbers, self._left = self._left[:, 0], self._left[:, 1:]
        return numbers

    def keep(self, rows: Sequence[int], index: Tensor) -> None:
        """Go on with these completions only; ``index`` is the same as a tensor."""
        self._generators = [self._generators[row] for row in rows]
        if self._left is not None:
            self._left = self._left[index]

    def _drawn(self) -> Tensor:
        import torch

        numbers = np.empty((len(self._generators), _BLOCK), dtype=np.float32)
        for generator, row in zip(self._generators, numbers, strict=True):
            generator.random(out=row, dtype=np.float32)
        return torch.from_numpy(numbers).to(self._device)
