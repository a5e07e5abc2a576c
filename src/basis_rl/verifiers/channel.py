"""Messages over a socket: a length, then that many bytes."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

_LENGTH = struct.Struct("!Q")


def numbered(number: int, content: bytes) -> bytes:
    """A message that starts with a number."""
    return _LENGTH.pack(number) + content


def parts_of(message: bytes) -> tuple[int, bytes]:
    """Number and content of a message of `numbered`."""
    (number,) = _LENGTH.unpack_from(message)
    return int(number), message[_LENGTH.size :]


class Channel:
    """One end of a pair of sockets; both ends send and receive whole messages.

    Parameters
    ----------
    end : socket.socket
    """

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    def send(self, message: bytes) -> None:
        """Send one message."""
        self.end.sendall(_LENGTH.pack(len(message)) + message)

    def receive_length(self) -> int:
        """Wait for a message; its length must be given to `receive`."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        return int(length)

    def receive(self, length: int | None = None, *, limit: int | None = None) -> bytes:
        """Take one message.

        Raises
        ------
        EOFError
            If the other end is closed.
        OSError
            If the message is longer than the limit, or the socket's time is over.
        """
        length = self.receive_length() if length is None else length
        if limit is not None and length > limit:
            raise OSError(f"a message of {length} bytes, over the limit of {limit}")
        return self._exactly(length)

    def close(self) -> None:
        """End the connection, also for copies of this end that a fork has made."""
        with suppress(OSError):  # the other end is gone already
            self.end.shutdown(socket.SHUT_RDWR)
        self.end.close()

    def _exactly(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            piece = self.end.recv(min(length - len(data), 1 << 20))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)
