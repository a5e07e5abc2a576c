"""Many short texts in two arrays: a tenth of what Python strings in a list take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from basis_rl.batch import IntArray

ByteArray = npt.NDArray[np.uint8]
# Up to this many a list is faster to look into, and its memory does not matter.
MOST_IN_LIST = 2**18
CHUNK = 2**16


class PackedTexts(Sequence[str]):
    """Immutable sequence of texts, as UTF-8 in one array.

    Equal to any sequence with the same texts. An entry is made anew each time it is asked for.

    Parameters
    ----------
    data : uint8 array
        All texts in a row.
    offsets : int64 array, shape (P + 1,)
        Text i is ``data[offsets[i]:offsets[i + 1]]``.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, data: ByteArray, offsets: IntArray) -> None:
        self.data = data
        self.offsets = offsets

    @classmethod
    def of(cls, texts: Sequence[str]) -> PackedTexts:
        """Pack texts; a lone surrogate is kept."""
        parts: list[bytes] = []
        lengths = np.empty(len(texts), dtype=np.int64)
        for start in range(0, len(texts), CHUNK):
            chunk = texts[start : start + CHUNK]
            joined = "".join(chunk)
            if joined.isascii():
                parts.append(joined.encode())
                sizes: Iterable[int] = map(len, chunk)
            else:
                encoded = [text.encode("utf-8", "surrogatepass") for text in chunk]
                parts.append(b"".join(encoded))
                sizes = map(len, encoded)
            lengths[start : start + len(chunk)] = np.fromiter(sizes, np.int64, len(chunk))
        return cls.of_bytes([np.frombuffer(b"".join(parts), dtype=np.uint8)], [lengths])

    @classmethod
    def of_bytes(cls, data: Sequence[ByteArray], lengths: Sequence[IntArray]) -> PackedTexts:
        """Join arrays of UTF-8 and the lengths in bytes of the texts in them."""
        offsets = np.zeros(sum(map(len, lengths)) + 1, dtype=np.int64)
        np.concatenate([*lengths, np.empty(0, np.int64)], out=offsets[1:])
        np.cumsum(offsets[1:], out=offsets[1:])
        return cls(data[0] if len(data) == 1 else np.concatenate(data), offsets)

    def chunks(self, size: int = CHUNK) -> Iterator[list[str]]:
        """All texts in lists of up to ``size``."""
        for start in range(0, len(self), size):
            yield self._slice(start, min(start + size, len(self)))

    def at(self, rows: IntArray) -> list[str]:
        """Texts of some rows, each from 0 to P - 1."""
        data, starts, ends = self.data, self.offsets[rows].tolist(), self.offsets[rows + 1].tolist()
        return [_decoded(data[a:b].tobytes()) for a, b in zip(starts, ends, strict=True)]

    def _slice(self, start: int, stop: int) -> list[str]:
        ends = (self.offsets[start : stop + 1] - self.offsets[start]).tolist()
        raw = self.data[self.offsets[start] : self.offsets[stop]].tobytes()
        pairs = pairwise(ends)
        if raw.isascii():
            text = raw.decode("ascii")
            return [text[a:b] for a, b in pairs]
        return [_decoded(raw[a:b]) for a, b in pairs]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        rows = range(len(self))[index]
        if isinstance(rows, int):
            return _decoded(self.data[self.offsets[rows] : self.offsets[rows + 1]].tobytes())
        if rows.step == 1:
            return self._slice(rows.start, max(rows.stop, rows.start))
        return self.at(np.arange(rows.start, rows.stop, rows.step))

    def __iter__(self) -> Iterator[str]:
        for chunk in self.chunks():
            yield from chunk

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, PackedTexts):
            return np.array_equal(self.offsets, other.offsets) and np.array_equal(
                self.data, other.data
            )
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(map(str.__eq__, self, other))

    def __repr__(self) -> str:
        first = ", ".join(map(repr, self[:2]))
        return f"PackedTexts([{first}, …], {len(self)} texts)"


def is_many(number: int) -> bool:
    """Whether so many texts are better packed than in a list."""
    return number > MOST_IN_LIST


def compact(texts: list[str]) -> Sequence[str]:
    """The texts themselves if they are few, else packed."""
    return PackedTexts.of(texts) if is_many(len(texts)) else texts


def chunks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Texts in lists of bounded length."""
    if isinstance(texts, PackedTexts):
        yield from texts.chunks()
        return
    for start in range(0, len(texts), CHUNK):
        yield texts[start : start + CHUNK]


def joined(texts: Sequence[str], separator: str) -> Iterator[str]:
    """``separator.join(texts)`` in pieces; joined they are the same text."""
    first = True
    for chunk in chunks(texts):
        yield ("" if first else separator) + separator.join(chunk)
        first = False


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
