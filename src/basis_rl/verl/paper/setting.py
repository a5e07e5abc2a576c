"""A setting and the place that it comes from."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

ASSUMED = "assumed"
Value = str | int | float | bool

# What a value needs no quotes for, in bash and in verl's configuration language.
_PLAIN = re.compile(r"[A-Za-z0-9_./:+-]*")


@dataclass(frozen=True)
class Setting:
    """One setting of a command, with its source.

    Attributes
    ----------
    key : str
        Of verl's configuration (with ``+`` before one that it lacks), or an option of a command of
        this package (``--n``); empty for an argument.
    value : str, int, float or bool
        As verl's configuration, or the command, takes it.
    source : str
        Place of the paper ("Appendix D"), or "assumed: …" with the reason.
    expands : bool
        Whether the value holds variables of the script: ``$folder/train.parquet``.
    """

    key: str
    value: Value
    source: str
    expands: bool = False

    @property
    def is_assumed(self) -> bool:
        """Whether the paper does not say it."""
        return self.source.startswith(ASSUMED)

    def text(self) -> str:
        """Value as verl's configuration writes it."""
        text = str(self.value)
        return text.replace("e-0", "e-") if isinstance(self.value, float) else text

    def word(self) -> str:
        """Word of a shell script: ``key=value``, or option and value."""
        if not self.key:
            return shlex.quote(self.text())
        between = " " if self.key.startswith("--") else "="
        if self.expands:
            return self._with_variables(between)
        return f"{self.key}{between}{shlex.quote(self.text())}"

    def _with_variables(self, between: str) -> str:
        if between == " ":
            return f'{self.key} "{self.text()}"'
        # A list quotes its own entries.
        inner = self.text() if self.text().startswith("[") else f"'{self.text()}'"
        return f'"{self.key}={inner}"'

    def override(self, variables: Mapping[str, str]) -> str:
        """Override of verl with the script's variables filled in."""
        text = self.text()
        if self.expands:
            text = re.sub(r"\$(\w+)", lambda match: variables[match[1]], text)
            if not text.startswith("[") and not _PLAIN.fullmatch(text):
                text = f"'{text}'"
        return f"{self.key}={text}"


@dataclass(frozen=True)
class Group:
    """Settings that stand under one heading."""

    title: str
    settings: tuple[Setting, ...]
