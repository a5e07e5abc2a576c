"""One run at a time in an output folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from basis_rl.errors import BasisError, ConfigError
from basis_rl.files import cannot_write

FILE = ".lock"


@contextlib.contextmanager
def hold(output_dir: str | Path) -> Iterator[None]:
    """Keep other runs out of an output folder, which is made; the system frees it after a kill.

    Raises
    ------
    ConfigError
        If another run is in it.
    BasisError
        If nothing can be written there.
    """
    folder = Path(output_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = (folder / FILE).open("ab")
    except OSError as error:
        raise BasisError(cannot_write(folder / FILE, error)) from error
    with stream:
        try:
            import fcntl
        except ModuleNotFoundError:  # Windows
            yield
            return
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"output_dir {folder} is in use by another run: wait for it, or use another "
                "output_dir"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield
