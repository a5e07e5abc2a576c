"""The folder that a command writes its files to."""

from __future__ import annotations

from pathlib import Path


def output_folder(name: str, *files: str) -> Path:
    """Make the folder and refuse one that cannot be written to, before any long work.

    Parameters
    ----------
    name : str
    files : str
        What will be written there.

    Raises
    ------
    BasisError
        If the folder cannot be made, or a file in it cannot be written.
    """
    from basis_rl.errors import BasisError
    from basis_rl.files import check_writable

    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BasisError(
            f"cannot make the folder {name} ({error.strerror}): name another one with --out"
        ) from None
    for file in files:
        check_writable(folder / file, shown=folder / file)
    return folder
