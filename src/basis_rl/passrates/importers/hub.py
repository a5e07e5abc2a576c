"""Rows of a hub data set, which can be read more than once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from basis_rl.errors import PassRatesError
from basis_rl.passrates.importers.record import Row

_REVISION = re.compile(r"@([0-9a-f]{40})/")


class HubRows:
    """A split of a hub data set.

    Parameters
    ----------
    data : str
        ``owner/name`` or ``owner/name:config``.
    split : str
    revision : str, optional
        Branch, tag or commit of the data set.

    Attributes
    ----------
    revision : str or None
        Commit that was loaded, where it can be told.

    Raises
    ------
    PassRatesError
        If it cannot be loaded.
    """

    def __init__(self, data: str, split: str, revision: str | None = None) -> None:
        try:
            import datasets
        except ModuleNotFoundError:
            raise PassRatesError(
                f"{data!r} needs the package datasets: pip install datasets"
            ) from None
        name, _, config = data.partition(":")
        try:
            self.rows: Any = datasets.load_dataset(
                name, config or None, split=split, revision=revision
            )
        # The hub's client raises a different type for each way to fail, offline included.
        except Exception as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise PassRatesError(
                f"hub data set {data!r}, split {split!r}, cannot be loaded ({reason}): check the "
                "name and the connection (some are gated: log in and accept the terms), or name a "
                "file of it with --format"
            ) from None
        self.data, self.split = data, split
        checksums = getattr(getattr(self.rows, "info", None), "download_checksums", None) or {}
        commits = {match.group(1) for url in checksums if (match := _REVISION.search(url))}
        self.revision = commits.pop() if len(commits) == 1 else revision

    def __iter__(self) -> Iterator[Row]:
        for index, columns in enumerate(self.rows):
            yield Row(f"{self.data} [{self.split}], row {index}", dict(columns))
