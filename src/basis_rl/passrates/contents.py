"""What a table of pass rates holds of its prompts' rollouts: checked, read-only arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from basis_rl.batch import FloatArray, IntArray
from basis_rl.errors import PassRatesError
from basis_rl.passrates.checks import (
    check_n,
    check_rewards,
    check_successes,
    frozen,
    whole_counts,
    whole_rates,
)

Kind = Literal["counts", "rewards", "rates"]
_ARRAYS = ("n", "successes", "reward_values", "reward_offsets", "rates")


class Contents:
    """Numbers of a table of one kind; the attributes are those of `PassRates`.

    Raises
    ------
    PassRatesError
        If there are none or those of two kinds, or a number is out of range.
    """

    n: IntArray
    successes: IntArray | None = None
    reward_values: FloatArray | None = None
    reward_offsets: IntArray | None = None
    rates: FloatArray | None = None

    def __init__(
        self,
        keys: Sequence[str],
        n: npt.ArrayLike,
        successes: npt.ArrayLike | None,
        reward_values: npt.ArrayLike | None,
        rates: npt.ArrayLike | None,
    ) -> None:
        if sum(values is not None for values in (successes, reward_values, rates)) != 1:
            raise PassRatesError(
                "a table holds successes, rewards or rates: pass exactly one of successes, "
                "reward_values and rates"
            )
        self.n = frozen(whole_counts(n, len(keys), keys, what="n", scalar=True))
        if rates is not None:
            if self.n.any():
                raise PassRatesError("rates have no n: pass successes and n with from_counts")
            self.rates = frozen(whole_rates(rates, keys))
            return
        check_n(self.n, keys)
        if successes is not None:
            counts = whole_counts(successes, len(keys), keys, what="successes")
            check_successes(counts, self.n, keys)
            self.successes = frozen(counts)
            return
        offsets: IntArray = np.concatenate([[0], np.cumsum(self.n)])
        values: FloatArray = np.array(reward_values, dtype=np.float64)
        check_rewards(values, offsets, keys)
        self.reward_values, self.reward_offsets = frozen(values), frozen(offsets)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in _ARRAYS:
            array = getattr(self, name)
            if array is not None:
                array.flags.writeable = False  # a copy of a read-only array is writable

    @property
    def kind(self) -> Kind:
        """What the table holds: "counts", "rewards" or "rates"."""
        if self.rates is not None:
            return "rates"
        return "rewards" if self.successes is None else "counts"

    @property
    def is_continuous(self) -> bool:
        """Whether the table holds rewards of any value."""
        return self.reward_values is not None

    @property
    def means(self) -> FloatArray:
        """Mean reward of each prompt (its raw pass rate); float64, shape (P,)."""
        if self.rates is not None:
            return self.rates
        if self.successes is not None:
            means: FloatArray = self.successes / self.n
            return means
        assert self.reward_values is not None
        assert self.reward_offsets is not None
        sums: FloatArray = np.add.reduceat(self.reward_values, self.reward_offsets[:-1])
        return sums / self.n
