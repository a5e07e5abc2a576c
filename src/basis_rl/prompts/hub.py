"""Prompts of a hub data set: ``owner/name`` or ``owner/name:config``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from basis_rl.errors import PromptsError
from basis_rl.prompts.files import SUFFIXES, Row

_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?(:[\w.-]+)?")


def check(data: str) -> None:
    """Refuse what can be neither a file, a generator nor a hub id.

    Raises
    ------
    PromptsError
        Listing the forms that a data name may have.
    """
    if not _NAME.fullmatch(data):
        raise PromptsError(
            f"{data!r} names no prompts: use a file ({', '.join(SUFFIXES)}), "
            "reasoning-gym:<task>?size=…, or a hub id owner/name[:config]"
        )


def read_rows(data: str, split: str) -> Iterator[Row]:
    """Rows of one split, through ``datasets.load_dataset``.

    Raises
    ------
    PromptsError
        If the data set, its configuration or the split cannot be had.
    """
    check(data)
    try:
        import datasets
    except ModuleNotFoundError:
        raise PromptsError(f"{data!r} needs the package datasets: pip install datasets") from None
    name, _, config = data.partition(":")
    try:
        rows = datasets.load_dataset(name, config or None, split=split)
    # The hub's client raises a different type for each way to fail, offline included.
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise PromptsError(
            f"hub data set {data!r}, split {split!r}, cannot be loaded ({reason}): check the name "
            "and the connection, or name a file"
        ) from None
    for index, row in enumerate(rows):
        yield f"{data} [{split}], row {index}", dict(row)
