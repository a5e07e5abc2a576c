"""What the output can show."""

from __future__ import annotations

import os
import shutil
import sys


def has_blocks() -> bool:
    """Whether block characters can be written to the standard output."""
    if os.environ.get("TERM") == "dumb":
        return False
    try:
        "█▏…".encode(_encoding())
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    """Text in which what the output's encoding lacks is written as an escape."""
    return text.encode(_encoding(), "backslashreplace").decode(_encoding())


def columns() -> int:
    """Width of the terminal in characters; 80 where there is none."""
    return shutil.get_terminal_size().columns


def _encoding() -> str:
    return getattr(sys.stdout, "encoding", None) or "utf-8"
