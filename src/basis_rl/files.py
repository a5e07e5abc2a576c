"""Writing a file at once or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path

from basis_rl.errors import BasisError


def write_atomically(path: str | os.PathLike[str], data: bytes | memoryview) -> None:
    """Replace a file's content; whatever happens, the file holds the old bytes or the new.

    Parameters
    ----------
    path : path
        Its folder must exist; a symbolic link's target is replaced.
    data : bytes or memoryview

    Raises
    ------
    BasisError
        If it cannot be written (no such folder, no permission, disk full); the temporary file,
        in the same folder, is removed.
    """
    target = Path(os.path.realpath(path))
    check_writable(target, shown=path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
    except OSError as error:
        raise BasisError(cannot_write(path, error)) from error
    finally:
        # Already gone if the replacement went well.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # some file systems cannot sync a folder
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def check_writable(path: str | os.PathLike[str], *, shown: str | os.PathLike[str]) -> None:
    """Refuse a path whose folder is missing or read-only, before any long work.

    Raises
    ------
    BasisError
        If a file of that name cannot be made.
    """
    target = Path(path)
    folder = target.parent
    if not folder.is_dir():
        raise BasisError(f"cannot write {os.fspath(shown)}: no folder {folder}; create it first")
    if target.is_dir():
        raise BasisError(f"cannot write {os.fspath(shown)}: it is a folder; name a file in it")
    refuse_device(target, shown=shown)
    if not os.access(folder, os.W_OK):
        raise BasisError(
            f"cannot write {os.fspath(shown)}: folder {folder} is read-only; choose another folder"
        )


def refuse_device(path: Path, *, shown: str | os.PathLike[str]) -> None:
    """Refuse a device or a pipe: reading it may never end, writing destroys it.

    Raises
    ------
    BasisError
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise BasisError(f"{os.fspath(shown)} is a device or a pipe, not a file: name a file")


_SPACE = "free some space or choose another folder, then run it again"
_PERMISSION = "change the permissions or choose another folder"
_REMEDIES = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.EFBIG: "raise the limit on file sizes (ulimit -f), then run it again",
}


def cannot_write(path: str | os.PathLike[str], error: OSError) -> str:
    """One line for a failed write, with the remedy for its cause."""
    reason = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno or 0, "choose another folder")
    return f"cannot write {os.fspath(path)}: {reason}; {remedy}"
