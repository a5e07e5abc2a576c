"""A file of gzip members that is only appended to, and survives being cut anywhere.

Each append is one whole member, so any gzip tool reads the file. What a crash cut short at the end
is found when the file is opened, and truncated away.
"""

from __future__ import annotations

import contextlib
import os
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from basis_rl.errors import PassRatesError
from basis_rl.files import cannot_write

# Level 4 makes text a fifth smaller than 1 and takes 1.4 times as long; 6 gains 3 % at twice that.
LEVEL = 4
SECONDS_BETWEEN_SYNCS = 1.0
_GZIP = 31  # zlib's window bits for gzip headers
_CHUNK = 1 << 20
_LOCK_S = 2.0  # a process that was killed while it started another holds its lock a little longer
_MOST_LOST = 64 << 20  # bytes of a damaged end that are looked at


@dataclass(frozen=True)
class Member:
    """Bytes ``start`` to ``end`` of the file, which hold ``content``."""

    start: int
    end: int
    content: bytes


class DamagedMemberError(Exception):
    """Bytes that no crash of a writer leaves; its argument is where the member starts."""


class MemberFile:
    """An open and locked file; appends are in the system's hands when they return.

    A killed process loses nothing. They are forced onto the disk once a second, so that a power
    cut loses what was appended in its last second.

    Parameters
    ----------
    path : path
        Made if it is not there.

    Raises
    ------
    PassRatesError
        If it cannot be written or another process has it open.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._synced = time.monotonic()
        self._descriptor = self._open()
        self.end = os.fstat(self._descriptor).st_size
        self._writing = 0  # size of a member that may not be there whole

    def append(self, content: bytes) -> None:
        """Add a member; one that cannot be written whole is taken back.

        Raises
        ------
        PassRatesError
            If it cannot be written.
        """
        compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, _GZIP)
        rest = memoryview(compressor.compress(content) + compressor.flush())
        try:
            self._settle()
            self._writing = len(rest)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            self._settle()
            if self.sync_is_due:
                self.sync()
        except OSError as error:
            self._writing = 0
            with contextlib.suppress(OSError):  # else the next start finds it
                os.ftruncate(self._descriptor, self.end)
            raise PassRatesError(
                f"{cannot_write(self.path, error)} (what is in the journal is intact)"
            ) from error

    def _settle(self) -> None:
        """Count the last member if it was written whole, else take it back.

        Ctrl-C can have ended an append at any point.
        """
        written = os.fstat(self._descriptor).st_size - self.end if self._writing else 0
        if written and written == self._writing:
            self.end += written
        elif written:
            os.ftruncate(self._descriptor, self.end)
        self._writing = 0

    @property
    def sync_is_due(self) -> bool:
        """Whether a second has passed since the file was last forced onto the disk."""
        return time.monotonic() - self._synced >= SECONDS_BETWEEN_SYNCS

    def sync(self) -> None:
        """Force it onto the disk."""
        os.fsync(self._descriptor)
        self._synced = time.monotonic()

    def truncate(self, end: int) -> None:
        """Drop what comes after byte ``end``.

        Raises
        ------
        PassRatesError
            If it cannot be written.
        """
        try:
            os.ftruncate(self._descriptor, end)
        except OSError as error:
            raise PassRatesError(cannot_write(self.path, error)) from error
        self.end = end

    def remove(self) -> None:
        """Delete the file; it stays locked until it is closed."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Force it onto the disk and let go of it."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            with contextlib.suppress(OSError):
                os.fsync(descriptor)
            os.close(descriptor)

    def _open(self) -> int:
        while True:
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
                descriptor = os.open(self.path, flags, 0o666)
            except OSError as error:
                raise PassRatesError(cannot_write(self.path, error)) from error
            try:
                _lock(descriptor, self.path)
                # Another process may have deleted it between the two calls.
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(descriptor), self.path.stat()):
                        return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)


def read_members(path: str | os.PathLike[str], end: int | None = None) -> Iterator[Member]:
    """Whole members of a file, in order, up to one that was cut short.

    Parameters
    ----------
    path : path
    end : int, optional
        Stop before this byte, which must start a member.

    Raises
    ------
    DamagedMemberError
        If there is something else than a member, or one whose checksum is wrong.
    """
    with Path(path).open("rb") as stream:
        start, pending = 0, b""
        while end is None or start < end:
            decompressor = zlib.decompressobj(_GZIP)
            parts: list[bytes] = []
            used = 0
            while not decompressor.eof:
                chunk, pending = pending or stream.read(_CHUNK), b""
                if not chunk:
                    return
                try:
                    parts.append(decompressor.decompress(chunk))
                except zlib.error as error:
                    if _is_cut(path, start):
                        return
                    raise DamagedMemberError(start) from error
                used += len(chunk)
            pending = decompressor.unused_data
            member = Member(start, start + used - len(pending), b"".join(parts))
            yield member
            start = member.end


def _is_cut(path: str | os.PathLike[str], start: int) -> bool:
    """Whether the rest is the beginning of a member, or nothing, and then zeros.

    A power cut leaves these where the file's length was written and its last blocks were not.
    """
    if os.path.getsize(path) - start > _MOST_LOST:
        return False
    with Path(path).open("rb") as stream:
        stream.seek(start)
        rest = stream.read()
    begun = rest.rstrip(b"\0")
    try:
        zlib.decompressobj(_GZIP).decompress(begun)
    except zlib.error:
        return False
    return begun != rest


def _lock(descriptor: int, path: Path) -> None:
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows
        return
    deadline = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise PassRatesError(
                    f"{path} is in use by another process: wait for it, or choose another output"
                ) from None
            time.sleep(0.02)
        except OSError:  # a file system without locks
            return
