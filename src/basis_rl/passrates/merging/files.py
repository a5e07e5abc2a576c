"""Several files of pass rates in one: shards of a build, or tables of the same settings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from basis_rl.batch import IntArray
from basis_rl.errors import BasisError, PassRatesError
from basis_rl.files import check_writable
from basis_rl.passrates.build.identity import journal_path
from basis_rl.passrates.merging.journals import (
    Part,
    fits,
    joint_rows,
    merge_journals,
    read_part,
)
from basis_rl.passrates.merging.same_rollouts import same_rollouts
from basis_rl.passrates.merging.settings import (
    check_settings,
    check_shards,
    is_one_build,
    merged_provenance,
)
from basis_rl.passrates.table import PassRates

ON_CONFLICT = ("sum", "first")
_SHOWN = 3


@dataclass(frozen=True)
class Merged:
    """What a merge made.

    Attributes
    ----------
    table : PassRates
    conflicts : int
        Prompts that were in more than one input.
    no_journal : str or None
        Why the result has no journal, and so cannot be extended or judged again; None if it has.
    """

    table: PassRates
    conflicts: int
    no_journal: str | None


def merge_files(
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    on_conflict: str | None = None,
    partial: bool = False,
    allow_mismatch: Sequence[str] = (),
) -> Merged:
    """Write one table of several, with the journals of a build's shards.

    Prompts stand in the order of the inputs; shards in the order of their numbers.

    Parameters
    ----------
    paths : sequence of path
        Two or more files that `PassRates.save` wrote.
    out : path
        A file that is not there yet.
    on_conflict : {"sum", "first"}, optional
        A prompt in several inputs: their rollouts together, or those of the first input that has
        it. By default an error.
    partial : bool
        Accept missing shards.
    allow_mismatch : sequence of str
        Settings in which the inputs may differ; unknown in the result.

    Raises
    ------
    PassRatesError
        If settings or kinds differ, shards are missing, prompts conflict, the rollouts to sum are
        the same ones, or ``out`` is there or cannot be written.
    """
    names = [os.fspath(path) for path in paths]
    _check_output(names, out)
    tables = [PassRates.load(name) for name in names]
    check_settings(tables, names, allow_mismatch)
    order = check_shards(tables, names, partial=partial)
    tables, names = [tables[i] for i in order], [names[i] for i in order]
    joint = _Joint(_alike(tables, names))
    _check_conflicts(joint, tables, names, on_conflict)
    parts, why = _journals(tables, names, joint.conflicts)
    provenance = merged_provenance(tables, names, allow_mismatch, on_conflict=on_conflict)
    if why is not None:
        table = joint.table(provenance.extended(), first_only=on_conflict == "first")
        table.save(out)
        return Merged(table, joint.conflicts, why)
    build = {**provenance.extra["build"], **joint_rows(parts)}
    table = joint.table(provenance.replace(extra={**provenance.extra, "build": build}))
    with merge_journals(parts, journal_path(out), build):
        table.save(out)
    return Merged(table, joint.conflicts, None)


class _Joint:
    """Prompts of all tables, each in the place of its first appearance."""

    def __init__(self, tables: Sequence[PassRates]) -> None:
        self.tables = tables
        row_of: dict[str, int] = {}
        self.rows: IntArray = np.fromiter(
            (row_of.setdefault(key, len(row_of)) for table in tables for key in table.keys),
            dtype=np.int64,
            count=sum(map(len, tables)),
        )
        self.keys = list(row_of)
        self.appearances: IntArray = np.bincount(self.rows, minlength=len(self.keys))
        self.conflicts = int((self.appearances > 1).sum())
        # Of equal values np.unique gives the first place.
        self.first: IntArray = np.unique(self.rows, return_index=True)[1]

    def table(self, provenance: Any, *, first_only: bool = False) -> PassRates:
        """All rollouts of a prompt together, or those of its first table."""
        texts = {
            name: self._texts(name)
            for name in ("sources", "prompt_hashes")
            if any(getattr(table, name) is not None for table in self.tables)
        }
        common: dict[str, Any] = {"provenance": provenance, **texts}
        kind = self.tables[0].kind
        if kind == "rates":
            rates = np.concatenate(
                [table.rates for table in self.tables if table.rates is not None]
            )
            return PassRates.from_rates(self.keys, rates[self.first], **common)
        each_n = np.concatenate([table.n for table in self.tables])
        kept = np.ones(len(self.rows), dtype=np.bool_)
        if first_only:
            kept[:] = False
            kept[self.first] = True
        n = np.zeros(len(self.keys), dtype=np.int64)
        np.add.at(n, self.rows[kept], each_n[kept])
        if kind == "counts":
            found = np.concatenate(
                [table.successes for table in self.tables if table.successes is not None]
            )
            successes = np.zeros(len(self.keys), dtype=np.int64)
            np.add.at(successes, self.rows[kept], found[kept])
            return PassRates.from_counts(self.keys, successes, n, **common)
        values = np.concatenate(
            [table.reward_values for table in self.tables if table.reward_values is not None]
        )
        values, owner = values[np.repeat(kept, each_n)], np.repeat(self.rows[kept], each_n[kept])
        in_order = values[np.argsort(owner, kind="stable")]
        return PassRates(self.keys, n, reward_values=in_order, **common)

    def _texts(self, name: str) -> list[str]:
        """Sources or hashes of the joint table; one that a single table knows is kept."""
        each = [text for table in self.tables for text in getattr(table, name) or [""] * len(table)]
        texts = [each[place] for place in self.first.tolist()]
        for place in np.flatnonzero(self.appearances[self.rows] > 1).tolist():
            row, text = int(self.rows[place]), each[place]
            if texts[row] and text and texts[row] != text:
                what = "source" if name == "sources" else "hash of its text"
                raise PassRatesError(
                    f"prompt {self.keys[row]!r} has the {what} {texts[row]!r} in one input and "
                    f"{text!r} in another: they are different prompts, give them keys of their own"
                )
            texts[row] = texts[row] or text
        return texts


def _check_output(names: Sequence[str], out: str | os.PathLike[str]) -> None:
    if len(names) < 2:
        raise PassRatesError(f"{len(names)} file to merge: name two or more")
    resolved = [os.path.realpath(name) for name in names]
    for name, path in zip(names, resolved, strict=True):
        if resolved.count(path) > 1:
            raise PassRatesError(f"{name} is named twice: its rollouts count once, name it once")
    for file in (Path(out), journal_path(out)):
        if file.exists():
            raise PassRatesError(f"{file} is there already: choose another output or delete it")
    try:
        check_writable(Path(os.path.realpath(out)), shown=out)
    except BasisError as error:
        raise PassRatesError(str(error)) from error


def _alike(tables: Sequence[PassRates], names: Sequence[str]) -> list[PassRates]:
    """Tables of one kind; counts of a build that has other rewards too become rewards."""
    kinds = [table.kind for table in tables]
    if len(set(kinds)) == 1:
        return list(tables)
    if set(kinds) == {"counts", "rewards"} and is_one_build(tables):
        # A shard whose rewards all happen to be 0 and 1.
        return [_as_rewards(table) if table.kind == "counts" else table for table in tables]
    other = next(i for i, kind in enumerate(kinds) if kind != kinds[0])
    raise PassRatesError(
        f"{names[0]} holds {kinds[0]} and {names[other]} {kinds[other]}: merge files of one kind"
    )


def _as_rewards(table: PassRates) -> PassRates:
    assert table.successes is not None
    pairs = np.stack([table.successes, table.n - table.successes], axis=1).ravel()
    values = np.repeat(np.tile([1.0, 0.0], len(table)), pairs)
    return PassRates(
        table.keys,
        table.n,
        reward_values=values,
        sources=table.sources,
        prompt_hashes=table.prompt_hashes,
        provenance=table.provenance,
    )


def _check_conflicts(
    joint: _Joint, tables: Sequence[PassRates], names: Sequence[str], on_conflict: str | None
) -> None:
    if on_conflict is not None and on_conflict not in ON_CONFLICT:
        raise PassRatesError(f"on_conflict is {on_conflict!r}: use {' or '.join(ON_CONFLICT)}")
    if not joint.conflicts or on_conflict == "first":
        return
    shared = np.flatnonzero(joint.appearances > 1)[:_SHOWN]
    shown = "; ".join(_shown(joint.keys[row], tables, names) for row in shared.tolist())
    what = f"{joint.conflicts} prompts are in more than one file ({shown})"
    if on_conflict is None:
        raise PassRatesError(
            f"{what}: say what to do, --on-conflict sum (other rollouts of the same policy) or "
            "first (keep those of the file named first)"
        )
    if tables[0].kind == "rates":
        raise PassRatesError(
            f"{what}: rates whose number of rollouts is unknown cannot be summed; use "
            "--on-conflict first"
        )
    edges = np.cumsum([0, *map(len, tables)])
    parts = [joint.rows[a:b] for a, b in pairwise(edges)]
    for i, j in combinations(range(len(tables)), 2):
        reason = same_rollouts(tables[i].provenance, tables[j].provenance)
        if reason and np.intersect1d(parts[i], parts[j], assume_unique=True).size:
            raise PassRatesError(
                f"{what}, and {names[i]} and {names[j]} {reason}, so these are the same rollouts "
                "and would count twice: use --on-conflict first"
            )


def _shown(key: str, tables: Sequence[PassRates], names: Sequence[str]) -> str:
    found = []
    for table, name in zip(tables, names, strict=True):
        row = int(table.rows([key])[0])
        if row < 0:
            continue
        if table.successes is not None:
            found.append(f"{table.successes[row]}/{table.n[row]} in {name}")
        else:
            of = "" if table.kind == "rates" else f" of {table.n[row]}"
            found.append(f"mean {table.means[row]:.4g}{of} in {name}")
    return f"{key!r}: {', '.join(found)}"


def _journals(
    tables: Sequence[PassRates], names: Sequence[str], conflicts: int
) -> tuple[list[Part], str | None]:
    """The inputs' journals, or why they cannot be merged."""
    if not is_one_build(tables):
        return [], "the inputs are not parts of one build"
    if conflicts:
        return [], "prompts are in more than one input"
    parts = []
    for table, name in zip(tables, names, strict=True):
        journal = journal_path(name)
        if not journal.is_file():
            return [], f"{name} has no journal beside it"
        parts.append(read_part(journal))
        if not fits(parts[-1], table.provenance.extra["build"]):
            return [], f"{journal} is not the journal of {name}, or the build goes on"
    return parts, None
