"""What made a table of pass rates, and whether that fits a training run."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from basis_rl.errors import PassRatesError

# A difference in one of these makes the pass rates those of something else.
IDENTITY = ("model", "revision", "verifier")
# A difference in one of these makes the pass rates inexact.
SETTINGS = ("verifier_version", "temperature", "top_p", "top_k", "max_tokens", "stop")
# What a build's completions are made of: two builds that agree in these hold the same ones.
SAMPLED_WITH = (
    "model",
    "revision",
    "engine",
    "temperature",
    "top_p",
    "top_k",
    "max_tokens",
    "stop",
    "seed",
)
_TYPES: dict[str, tuple[type, ...]] = {
    "model": (str,),
    "revision": (str,),
    "temperature": (int, float),
    "top_p": (int, float),
    "top_k": (int,),
    "max_tokens": (int,),
    "stop": (list,),
    "verifier": (str,),
    "verifier_version": (str,),
    "created": (str,),
    "package_version": (str,),
    "schema_version": (int,),
}


@dataclass(frozen=True)
class Difference:
    """One setting that the pass rates and a run do not share.

    Attributes
    ----------
    name : str
        Field of `Provenance`.
    cached, run : object
        Value of the table and of the run.
    is_error : bool
        True for another model, revision or verifier; false for sampling settings and versions.
    """

    name: str
    cached: Any
    run: Any
    is_error: bool

    def __str__(self) -> str:
        return f"{self.name} is {self.cached!r} in the pass rates and {self.run!r} in this run"


@dataclass(frozen=True)
class Provenance:
    """What made a table of pass rates; None where unknown.

    Attributes
    ----------
    model, revision : str, optional
        Reference policy: name or folder, and its revision.
    temperature, top_p : float, optional
    top_k : int, optional
        0 where all tokens were kept.
    max_tokens : int, optional
        Longest completion in tokens.
    stop : list of str, optional
        Texts that end a completion.
    verifier, verifier_version : str, optional
    created : str, optional
        ISO 8601, UTC.
    package_version : str, optional
        Of basis-rl.
    schema_version : int, optional
        Of the Parquet file; set when it is written.
    extra : dict
        Further entries, kept as they are; JSON types.

    Raises
    ------
    PassRatesError
        If a value has the wrong type.
    """

    model: str | None = None
    revision: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    stop: list[str] | None = None
    verifier: str | None = None
    verifier_version: str | None = None
    created: str | None = None
    package_version: str | None = None
    schema_version: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, types in _TYPES.items():
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, types)):
                raise PassRatesError(
                    f"provenance {name} is {value!r} ({type(value).__name__}): "
                    f"give {' or '.join(t.__name__ for t in types)}, or None if unknown"
                )
        if not isinstance(self.extra, Mapping):
            raise PassRatesError(f"provenance extra is {self.extra!r}: give a dict")
        clash = sorted(set(self.extra) & set(_TYPES))
        if clash:
            raise PassRatesError(f"provenance extra has {clash[0]!r}: pass {clash[0]}= itself")

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> Provenance:
        """Read what `to_dict` gave; entries that this version does not know go to ``extra``."""
        known = {name: entries[name] for name in _TYPES if name in entries}
        extra = {name: value for name, value in entries.items() if name not in _TYPES}
        return cls(**known, extra=extra)

    def to_dict(self) -> dict[str, Any]:
        """Known entries that are not None, then ``extra``; one flat dict of JSON types."""
        known = {name: getattr(self, name) for name in _TYPES}
        return {name: value for name, value in known.items() if value is not None} | self.extra

    def replace(self, **changes: Any) -> Provenance:
        """Copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def extended(self) -> Provenance:
        """Copy for a table with more rollouts, which is no longer the one that a build wrote."""
        extra = {k: v for k, v in self.extra.items() if k != "build"}
        build = self.extra.get("build")
        if isinstance(build, Mapping) and "seed" in build:
            extra["built_from"] = {name: build.get(name) for name in SAMPLED_WITH}
        return self.replace(extra=extra)

    def differences(self, run: Provenance) -> list[Difference]:
        """List the settings known to both sides in which a run differs, errors first.

        Parameters
        ----------
        run : Provenance
            Model, verifier and sampling settings of the run that wants the pass rates.
        """
        found = []
        for name in (*IDENTITY, *SETTINGS):
            cached, other = getattr(self, name), getattr(run, name)
            if cached is None or other is None or _same(cached, other):
                continue
            if not (name == "model" and _same_folder(cached, other)):
                found.append(Difference(name, cached, other, name in IDENTITY))
        return found


def _same_folder(one: str, other: str) -> bool:
    """Whether two names of models are one folder."""
    return os.path.isdir(one) and os.path.isdir(other) and os.path.samefile(one, other)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)
