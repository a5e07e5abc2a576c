"""Pass rates of prompts under a reference policy, as counts or as the rewards themselves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from basis_rl.batch import FloatArray, IntArray
from basis_rl.errors import PassRatesError
from basis_rl.passrates.checks import (
    Keys,
    as_keys,
    check_length,
    check_n,
    check_rewards,
    check_successes,
    frozen,
    index_of,
    reward_list,
    whole_counts,
)
from basis_rl.passrates.provenance import Provenance

if TYPE_CHECKING:
    import os


class PassRates:
    """Reference rollouts of P prompts, one row a prompt; immutable.

    Make one with `from_counts` (rewards 0 and 1), `from_rewards` (any rewards) or `load`.

    Attributes
    ----------
    keys : list of str, length P
        All different.
    sources : list of str, length P, or None
        Data set or task of each prompt.
    n : int64 array, shape (P,)
        Reference rollouts of each prompt, at least 1.
    successes : int64 array, shape (P,), or None
        Rewards of 1 among them; None in a table of rewards.
    reward_values : float64 array, shape (sum of n,), or None
        Rewards of all prompts in a row; None in a table of counts.
    reward_offsets : int64 array, shape (P + 1,), or None
        Prompt i has ``reward_values[reward_offsets[i]:reward_offsets[i + 1]]``.
    provenance : Provenance
        What made the table.
    """

    def __init__(
        self,
        keys: Keys,
        n: npt.ArrayLike,
        *,
        successes: npt.ArrayLike | None = None,
        reward_values: npt.ArrayLike | None = None,
        sources: Keys | None = None,
        provenance: Provenance | None = None,
    ) -> None:
        self.keys = as_keys(keys, what="keys")
        self._row_of = index_of(self.keys)
        prompts = len(self.keys)
        self.n = frozen(whole_counts(n, prompts, self.keys, what="n", scalar=True))
        check_n(self.n, self.keys)
        self.successes: IntArray | None = None
        self.reward_values: FloatArray | None = None
        self.reward_offsets: IntArray | None = None
        if (successes is None) == (reward_values is None):
            raise PassRatesError("a table holds successes or rewards: pass exactly one of the two")
        if successes is not None:
            counts = whole_counts(successes, prompts, self.keys, what="successes")
            check_successes(counts, self.n, self.keys)
            self.successes = frozen(counts)
        else:
            offsets: IntArray = np.concatenate([[0], np.cumsum(self.n)])
            values: FloatArray = np.array(reward_values, dtype=np.float64)
            check_rewards(values, offsets, self.keys)
            self.reward_values = frozen(values)
            self.reward_offsets = frozen(offsets)
        self.sources = None if sources is None else as_keys(sources, what="sources")
        if self.sources is not None:
            check_length(len(self.sources), prompts, what="sources")
        self.provenance = provenance or Provenance()

    @classmethod
    def from_counts(
        cls,
        keys: Keys,
        successes: npt.ArrayLike,
        n: npt.ArrayLike,
        *,
        sources: Keys | None = None,
        provenance: Provenance | None = None,
    ) -> PassRates:
        """Table of 0/1 rewards: ``successes[i]`` of ``n[i]`` rollouts of prompt i were right.

        Parameters
        ----------
        keys : sequence of str or int, shape (P,)
            All different; integers are taken as their decimal strings.
        successes : array of int, shape (P,)
            0 to n.
        n : int or array of int, shape (P,)
            At least 1.
        sources : sequence of str, shape (P,), optional
        provenance : Provenance, optional

        Raises
        ------
        PassRatesError
            If a key appears twice, a count is out of range or not whole, lengths differ, or
            there are no prompts.
        """
        return cls(keys, n, successes=successes, sources=sources, provenance=provenance)

    @classmethod
    def from_rewards(
        cls,
        keys: Keys,
        rewards: Sequence[npt.ArrayLike],
        *,
        sources: Keys | None = None,
        provenance: Provenance | None = None,
    ) -> PassRates:
        """Table of any rewards: prompt i had ``rewards[i]``, a list with one per rollout.

        Parameters
        ----------
        keys : sequence of str or int, shape (P,)
            All different; integers are taken as their decimal strings.
        rewards : sequence of P sequences of float
            Lists may differ in length; none may be empty, all values are finite.
        sources : sequence of str, shape (P,), optional
        provenance : Provenance, optional

        Raises
        ------
        PassRatesError
            If a key appears twice, a list is empty, a reward is not finite, lengths differ, or
            there are no prompts.
        """
        names = as_keys(keys, what="keys")
        lists = [reward_list(values, row, names) for row, values in enumerate(rewards)]
        check_length(len(lists), len(names), what="rewards")
        values = np.array(list(chain.from_iterable(lists)), dtype=np.float64)
        n = [len(values) for values in lists]
        return cls(names, n, reward_values=values, sources=sources, provenance=provenance)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PassRates:
        """Read a Parquet file that `save` wrote.

        Raises
        ------
        PassRatesError
            If the file is missing, damaged, of a newer version or not a table of pass rates.
        """
        from basis_rl.passrates import file

        return file.load(path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a Parquet file; a file of that name is replaced at once or not at all.

        Raises
        ------
        PassRatesError
            If it cannot be written.
        """
        from basis_rl.passrates import file

        file.save(self, path)

    @property
    def is_continuous(self) -> bool:
        """Whether the table holds rewards, not counts."""
        return self.successes is None

    @property
    def means(self) -> FloatArray:
        """Mean reward of each prompt (its raw pass rate); float64, shape (P,)."""
        if self.successes is not None:
            means: FloatArray = self.successes / self.n
            return means
        assert self.reward_values is not None
        assert self.reward_offsets is not None
        sums: FloatArray = np.add.reduceat(self.reward_values, self.reward_offsets[:-1])
        return sums / self.n

    def rows(self, keys: Keys) -> IntArray:
        """Row of each key, -1 where the table does not know it; int64, shape (B,)."""
        names = as_keys(keys, what="keys")
        return np.fromiter(
            map(self._row_of.get, names, repeat(-1)), dtype=np.int64, count=len(names)
        )

    def coverage(self, keys: Keys) -> float:
        """Share of the distinct keys that the table knows, 0 to 1; NaN without keys."""
        names = set(as_keys(keys, what="keys"))
        return len(names & self._row_of.keys()) / len(names) if names else float("nan")

    def with_counts(
        self,
        keys: Keys,
        successes: npt.ArrayLike,
        n: npt.ArrayLike,
        *,
        sources: Keys | None = None,
    ) -> PassRates:
        """Add 0/1 rollouts: known prompts' counts are summed, new ones appended; a new table.

        Raises
        ------
        PassRatesError
            As in `from_counts`; if this table holds rewards; if the sources are missing for new
            prompts of a table that has them, given for one that has none, or contradict it.
        """
        if self.successes is None:
            raise PassRatesError("this table holds rewards, not counts: add with with_rewards")
        more = PassRates.from_counts(keys, successes, n, sources=sources)
        assert more.successes is not None
        rows, names, all_sources = self._merge(more)
        total_n = np.zeros(len(names), dtype=np.int64)
        total_successes = np.zeros(len(names), dtype=np.int64)
        total_n[: len(self)], total_successes[: len(self)] = self.n, self.successes
        total_n[rows] += more.n
        total_successes[rows] += more.successes
        return PassRates.from_counts(
            names,
            total_successes,
            total_n,
            sources=all_sources,
            provenance=self.provenance.extended(),
        )

    def with_rewards(
        self,
        keys: Keys,
        rewards: Sequence[npt.ArrayLike],
        *,
        sources: Keys | None = None,
    ) -> PassRates:
        """Add rewards after those of known prompts, new prompts at the end; a new table.

        Raises
        ------
        PassRatesError
            As in `from_rewards`; if this table holds counts; sources as in `with_counts`.
        """
        if not self.is_continuous:
            raise PassRatesError("this table holds counts, not rewards: add with with_counts")
        more = PassRates.from_rewards(keys, rewards, sources=sources)
        rows, names, all_sources = self._merge(more)
        assert self.reward_values is not None
        assert more.reward_values is not None
        owner = np.concatenate([np.repeat(np.arange(len(self)), self.n), np.repeat(rows, more.n)])
        values = np.concatenate([self.reward_values, more.reward_values])
        return PassRates(
            names,
            np.bincount(owner, minlength=len(names)),
            reward_values=values[np.argsort(owner, kind="stable")],
            sources=all_sources,
            provenance=self.provenance.extended(),
        )

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        kind = "rewards" if self.is_continuous else "counts"
        return f"PassRates({len(self)} prompts, {int(self.n.sum())} rollouts, {kind})"

    def _merge(self, more: PassRates) -> tuple[IntArray, list[str], list[str] | None]:
        """Rows of ``more`` in the joint table, and the joint table's keys and sources."""
        rows = self.rows(more.keys)
        new = rows < 0
        if more.sources is not None and self.sources is None:
            raise PassRatesError("this table has no sources: add without sources=")
        if more.sources is None and self.sources is not None and new.any():
            key = more.keys[int(new.argmax())]
            raise PassRatesError(f"prompt {key!r} is new and this table has sources: pass sources=")
        if more.sources is not None and self.sources is not None:
            for key, row, source in zip(more.keys, rows.tolist(), more.sources, strict=True):
                if row >= 0 and self.sources[row] != source:
                    raise PassRatesError(
                        f"prompt {key!r} has source {self.sources[row]!r} here and {source!r} in "
                        "what is added: use one name, or other keys"
                    )
        rows[new] = len(self) + np.arange(int(new.sum()))
        fresh = np.flatnonzero(new).tolist()
        names = self.keys + [more.keys[i] for i in fresh]
        if self.sources is None:
            return rows, names, None
        return rows, names, self.sources + [(more.sources or [])[i] for i in fresh]
