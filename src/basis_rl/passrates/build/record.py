"""What is known of every rollout of a build, without the texts: some 25 bytes a rollout."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from basis_rl.batch import FloatArray, IntArray

MISSING, SAMPLED, JUDGED = 0, 1, 2
_FIELDS: dict[str, Any] = {
    "status": np.uint8,
    "rewards": np.float64,  # NaN where there is no verdict
    "failures": np.uint8,  # place in `causes`
    "tokens": np.int32,
    "cut": np.bool_,
    "digests": np.uint64,
}


class Record:
    """Rollouts by prompt (row) and number (column).

    Attributes
    ----------
    keys : list of str
        Of all prompts that were ever named, one a row.
    hashes, row_hashes : list of str
        Of each prompt's text, and of its row of the data set.
    status, rewards, failures, tokens, cut, digests : arrays, shape (rows, columns) or larger
    causes : list of str
        Why verifiers failed; the first is empty: no failure.
    completions, judged, without_verdict, failed : int
        Rollouts that were sampled, those that were looked at, and how many of these have no
        verdict or a failure.
    total : float
        Sum of the rewards.
    """

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.hashes: list[str] = []
        self.row_hashes: list[str] = []
        self.row_of: dict[str, int] = {}
        self.causes = [""]
        self.completions = self.sampled_tokens = 0
        for name, kind in _FIELDS.items():
            setattr(self, name, np.zeros((0, 0), kind))
        self.void_verdicts()

    status: np.ndarray[Any, Any]
    rewards: np.ndarray[Any, Any]
    failures: np.ndarray[Any, Any]
    tokens: np.ndarray[Any, Any]
    cut: np.ndarray[Any, Any]
    digests: np.ndarray[Any, Any]

    def name_prompts(self, rows: Sequence[Sequence[str]]) -> None:
        """Add prompts (key, hash, hash of the row), or replace the hashes of known ones."""
        for key, text_hash, row_hash in rows:
            row = self.row_of.setdefault(key, len(self.keys))
            if row == len(self.keys):
                self.keys.append(key)
                self.hashes.append(text_hash)
                self.row_hashes.append(row_hash)
            self.hashes[row], self.row_hashes[row] = text_hash, row_hash
        self._grow(len(self.keys), 0)

    def add_completions(
        self, key: str, first: int, texts: Sequence[str], tokens: Sequence[int], cut: Sequence[int]
    ) -> None:
        """Note completions; one that is there already may come again if it is the same.

        Parameters
        ----------
        cut : sequence of int
            Numbers of those that were cut at ``max_tokens``.

        Raises
        ------
        ValueError
            If a completion is there with another content.
        """
        row = self.row(key)
        self._grow(0, first + len(texts))
        cut_numbers = set(cut)
        for number, (text, length) in enumerate(zip(texts, tokens, strict=True), start=first):
            is_cut = number in cut_numbers
            digest = _digest(text, length, is_cut)
            if self.status[row, number] != MISSING:
                if self.digests[row, number] != digest:
                    raise ValueError(f"completion {number} of prompt {key!r} twice, and different")
                continue
            self.digests[row, number] = digest
            self.status[row, number] = SAMPLED
            self.tokens[row, number] = length
            self.cut[row, number] = is_cut
            self.completions += 1
            self.sampled_tokens += length

    def add_verdicts(
        self,
        key: str,
        first: int,
        rewards: Sequence[float | None],
        failures: Mapping[str, Sequence[int]],
    ) -> None:
        """Note the rewards of completions; a verdict that is there already stays.

        Raises
        ------
        ValueError
            If a completion is not there, or has a verdict that differs.
        """
        row = self.row(key)
        causes = {number: self._cause(c) for c, numbers in failures.items() for number in numbers}
        for number, given in enumerate(rewards, start=first):
            reward = math.nan if given is None else given
            known = number < self.status.shape[1] and self.status[row, number]
            if not known:
                raise ValueError(f"a verdict on completion {number} of {key!r}, which is not there")
            if known == JUDGED:
                before = self.rewards[row, number]
                if before != reward and not (math.isnan(before) and math.isnan(reward)):
                    raise ValueError(f"two verdicts on completion {number} of prompt {key!r}")
                continue
            self.status[row, number] = JUDGED
            self.rewards[row, number] = reward
            self.failures[row, number] = causes.get(number, 0)
            self.judged += 1
            self.without_verdict += given is None
            self.failed += number in causes
            self.total += given or 0.0

    def void_verdicts(self) -> None:
        """Forget all verdicts: another verifier is to judge."""
        self.status[self.status == JUDGED] = SAMPLED
        self.rewards[:], self.failures[:] = math.nan, 0
        self.judged = self.without_verdict = self.failed = 0
        self.total = 0.0

    def row(self, key: str) -> int:
        """Row of a prompt.

        Raises
        ------
        ValueError
            If it was never named.
        """
        if key not in self.row_of:
            raise ValueError(f"prompt {key!r}, which no line before it names")
        return self.row_of[key]

    def missing(self, row: int, target: int) -> list[tuple[int, int]]:
        """Runs (first, count) of completions below ``target`` that are not there."""
        there = np.zeros(target + 2, np.bool_)
        there[[0, -1]] = True
        known = self.status[row, :target]
        there[1 : len(known) + 1] = known != MISSING
        edges = np.flatnonzero(np.diff(there.astype(np.int8)))
        return [(int(a), int(b - a)) for a, b in zip(edges[::2], edges[1::2], strict=True)]

    def short(self, rows: IntArray, target: IntArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether completions below its target are missing, for each of these prompts."""
        early = np.arange(self.status.shape[1]) < target[:, None]
        there = (early & (self.status[rows] != MISSING)).sum(axis=1)
        short: np.ndarray[Any, np.dtype[np.bool_]] = there < target
        return short

    def sampled(self, rows: IntArray) -> IntArray:
        """Completions of each of these prompts; int64."""
        counts: IntArray = np.count_nonzero(self.status[rows], axis=1).astype(np.int64)
        return counts

    def moments(self, rows: IntArray, sampled: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
        """Sum and sum of squares of the rewards of each prompt's first completions, and how many.

        Parameters
        ----------
        rows, sampled : int64 arrays, shape (P,)
            Completions from number ``sampled`` on are left out.
        """
        early = np.arange(self.status.shape[1]) < sampled[:, None]
        rewards = self.rewards[rows]
        given = early & (self.status[rows] == JUDGED) & ~np.isnan(rewards)
        kept = np.where(given, rewards, 0.0)
        return kept.sum(axis=1), (kept * kept).sum(axis=1), given.sum(axis=1).astype(np.int64)

    def failure_counts(self, rows: IntArray) -> dict[str, int]:
        """Failures of the verifier by cause, sorted by name."""
        codes = np.bincount(self.failures[rows].ravel(), minlength=len(self.causes))
        found = Counter(dict(zip(self.causes, codes.tolist(), strict=True)))
        return {cause: found[cause] for cause in sorted(self.causes[1:]) if found[cause]}

    def _cause(self, name: str) -> int:
        if name not in self.causes:
            # The codes are bytes; the last one stands for all further causes.
            if len(self.causes) == 255:
                self.causes.append("other")
            if len(self.causes) > 255:
                return 255
            self.causes.append(name)
        return self.causes.index(name)

    def _grow(self, rows: int, columns: int) -> None:
        """Make room, at least doubling what is too small."""
        old = self.status.shape
        shape = tuple(
            size if size >= wanted else max(wanted, 2 * size if axis == 0 else 0)
            for axis, (size, wanted) in enumerate(zip(old, (rows, columns), strict=True))
        )
        if shape == old:
            return
        for name, kind in _FIELDS.items():
            grown = np.full(shape, math.nan) if name == "rewards" else np.zeros(shape, kind)
            grown[: old[0], : old[1]] = getattr(self, name)
            setattr(self, name, grown)


def _digest(text: str, tokens: int, is_cut: bool) -> int:
    data = f"{tokens} {is_cut} {text}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")
