"""Order of the prompts: the same in an unbroken and in a resumed run, in every epoch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from trl.trainer.utils import RepeatSampler


class EpochSampler(RepeatSampler):  # type: ignore[misc]
    """TRL's sampler with an order that depends on seed and epoch alone.

    TRL's own draws each epoch's order from a generator that starts anew when a run is resumed:
    after the first epoch a resumed run sees other prompts than an unbroken one. The first epoch's
    order is the same here and there.

    Parameters
    ----------
    sampler : RepeatSampler
        Taken over as it is.
    epoch : callable
        Returns the epoch that begins or goes on; None before the first.
    """

    def __init__(self, sampler: RepeatSampler, epoch: Callable[[], float | None]) -> None:
        self.__dict__.update(vars(sampler))
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        if self.shuffle and self.seed is not None:
            # The trainer counts epochs in floating point.
            epoch = int((self._epoch() or 0.0) + 1e-6)
            self.generator.manual_seed(epoch_seed(self.seed, epoch))
        rows: Iterator[Any] = super().__iter__()
        return rows


def epoch_seed(seed: int, epoch: int) -> int:
    """Seed of an epoch's order: the run's own first, then a hash of both.

    Their sum would give two runs with neighbouring seeds the same orders, an epoch apart.
    """
    if epoch == 0:
        return seed
    digest = hashlib.sha256(f"{seed} {epoch}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1  # within torch's range
