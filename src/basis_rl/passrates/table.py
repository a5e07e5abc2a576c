"""Pass rates of prompts under a reference policy: counts, the rewards themselves, or bare rates."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from basis_rl.batch import IntArray
from basis_rl.passrates.checks import (
    Keys,
    as_keys,
    as_texts,
    check_length,
    hashes,
    reward_list,
)
from basis_rl.passrates.contents import Contents
from basis_rl.passrates.merging import joins as merge
from basis_rl.passrates.provenance import Provenance
from basis_rl.passrates.storage.key_index import index_of

if TYPE_CHECKING:
    import os


class PassRates(Contents):
    """Reference rollouts of P prompts, one row a prompt; immutable.

    Make one with `from_counts` (rewards 0 and 1), `from_rewards` (any rewards), `from_rates` (rates
    of an unknown number of rollouts) or `load`.

    Attributes
    ----------
    keys : sequence of str, length P
        All different. A list; in a large table another sequence, equal to the list.
    sources : list of str, length P, or None
        Data set or task of each prompt.
    n : int64 array, shape (P,)
        Reference rollouts of each prompt, at least 1; all 0 in a table of rates.
    successes : int64 array, shape (P,), or None
        Rewards of 1 among them, in a table of counts.
    reward_values : float64 array, shape (sum of n,), or None
        Rewards of all prompts in a row, in a table of rewards.
    reward_offsets : int64 array, shape (P + 1,), or None
        Prompt i has ``reward_values[reward_offsets[i]:reward_offsets[i + 1]]``.
    rates : float64 array, shape (P,), or None
        Pass rates from 0 to 1, in a table of rates.
    prompt_hashes : sequence of str, length P, or None
        `prompt_hash` of each prompt where the key does not depend on its text; "" if unknown.
    provenance : Provenance
        What made the table.
    """

    def __init__(
        self,
        keys: Keys,
        n: npt.ArrayLike = 0,
        *,
        successes: npt.ArrayLike | None = None,
        reward_values: npt.ArrayLike | None = None,
        rates: npt.ArrayLike | None = None,
        sources: Keys | None = None,
        prompt_hashes: Keys | None = None,
        provenance: Provenance | None = None,
    ) -> None:
        self.keys = as_texts(keys, what="keys")
        self._index = index_of(self.keys)
        super().__init__(self.keys, n, successes, reward_values, rates)
        self.sources = None if sources is None else as_keys(sources, what="sources")
        if self.sources is not None:
            check_length(len(self.sources), len(self.keys), what="sources")
        self.prompt_hashes = None if prompt_hashes is None else hashes(prompt_hashes, self.keys)
        self.provenance = provenance or Provenance()

    @classmethod
    def from_counts(
        cls,
        keys: Keys,
        successes: npt.ArrayLike,
        n: npt.ArrayLike,
        *,
        sources: Keys | None = None,
        prompt_hashes: Keys | None = None,
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
        prompt_hashes : sequence of str, shape (P,), optional
        provenance : Provenance, optional

        Raises
        ------
        PassRatesError
            If a key appears twice, a count is out of range or not whole, lengths differ, or
            there are no prompts.
        """
        return cls(
            keys,
            n,
            successes=successes,
            sources=sources,
            prompt_hashes=prompt_hashes,
            provenance=provenance,
        )

    @classmethod
    def from_rewards(
        cls,
        keys: Keys,
        rewards: Sequence[npt.ArrayLike],
        *,
        sources: Keys | None = None,
        prompt_hashes: Keys | None = None,
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
        prompt_hashes : sequence of str, shape (P,), optional
        provenance : Provenance, optional

        Raises
        ------
        PassRatesError
            As in `from_counts`; if a list is empty or a reward is not finite.
        """
        names = as_keys(keys, what="keys")
        lists = [reward_list(values, row, names) for row, values in enumerate(rewards)]
        check_length(len(lists), len(names), what="rewards")
        values = np.array(list(chain.from_iterable(lists)), dtype=np.float64)
        n = [len(values) for values in lists]
        return cls(
            names,
            n,
            reward_values=values,
            sources=sources,
            prompt_hashes=prompt_hashes,
            provenance=provenance,
        )

    @classmethod
    def from_rates(
        cls,
        keys: Keys,
        rates: npt.ArrayLike,
        *,
        sources: Keys | None = None,
        prompt_hashes: Keys | None = None,
        provenance: Provenance | None = None,
    ) -> PassRates:
        """Table of bare pass rates, measured on a number of rollouts that nobody knows.

        How far such a rate can be trusted is unknown too: it cannot be smoothed, and no rollouts
        can be added to it.

        Parameters
        ----------
        keys : sequence of str or int, shape (P,)
            All different; integers are taken as their decimal strings.
        rates : array of float, shape (P,)
            0 to 1.
        sources : sequence of str, shape (P,), optional
        prompt_hashes : sequence of str, shape (P,), optional
        provenance : Provenance, optional

        Raises
        ------
        PassRatesError
            As in `from_counts`.
        """
        return cls(
            keys, rates=rates, sources=sources, prompt_hashes=prompt_hashes, provenance=provenance
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PassRates:
        """Read a Parquet file that `save` wrote.

        Raises
        ------
        PassRatesError
            If the file is missing, damaged, of a newer version or not a table of pass rates.
        """
        from basis_rl.passrates.storage import file

        return file.load(path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a Parquet file; a file of that name is replaced at once or not at all.

        Raises
        ------
        PassRatesError
            If it cannot be written.
        """
        from basis_rl.passrates.storage import file

        file.save(self, path)

    @property
    def is_adaptive(self) -> bool:
        """Whether each prompt was sampled until its pass rate was known well enough."""
        return "adaptive" in self.provenance.extra

    def rows(self, keys: Keys) -> IntArray:
        """Row of each key, -1 where the table does not know it; int64, shape (B,)."""
        return self._index.rows(as_keys(keys, what="keys"))

    def coverage(self, keys: Keys) -> float:
        """Share of the distinct keys that the table knows, 0 to 1; NaN without keys."""
        names = list(set(as_keys(keys, what="keys")))
        return float((self._index.rows(names) >= 0).mean()) if names else float("nan")

    def with_counts(
        self,
        keys: Keys,
        successes: npt.ArrayLike,
        n: npt.ArrayLike,
        *,
        sources: Keys | None = None,
        prompt_hashes: Keys | None = None,
    ) -> PassRates:
        """Add 0/1 rollouts: known prompts' counts are summed, new ones appended; a new table.

        Raises
        ------
        PassRatesError
            As in `from_counts`; if this table holds rewards or rates; if the sources are missing
            for new prompts of a table that has them, given for one that has none, or contradict
            it; if a prompt's hash is another one here.
        """
        merge.check_kind(self, "counts")
        more = PassRates.from_counts(
            keys, successes, n, sources=sources, prompt_hashes=prompt_hashes
        )
        return merge.counts(self, more)

    def with_rewards(
        self,
        keys: Keys,
        rewards: Sequence[npt.ArrayLike],
        *,
        sources: Keys | None = None,
        prompt_hashes: Keys | None = None,
    ) -> PassRates:
        """Add rewards after those of known prompts, new prompts at the end; a new table.

        Raises
        ------
        PassRatesError
            As in `from_rewards`; if this table holds counts or rates; sources and hashes as in
            `with_counts`.
        """
        merge.check_kind(self, "rewards")
        more = PassRates.from_rewards(keys, rewards, sources=sources, prompt_hashes=prompt_hashes)
        return merge.rewards(self, more)

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        rollouts = "n unknown" if self.kind == "rates" else f"{int(self.n.sum())} rollouts"
        return f"PassRates({len(self)} prompts, {rollouts}, {self.kind})"
