"""Whether tables may become one, and the provenance of the table that they become."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from basis_rl.errors import PassRatesError, nearest
from basis_rl.passrates.provenance import IDENTITY, SETTINGS, Provenance
from basis_rl.passrates.table import PassRates

NAMES = (*IDENTITY, *SETTINGS)
# What differs between the parts of one build.
_OF_PART = ("shard", "prompts", "prompts_sha256", "rows_sha256", "engine_version", "options")
# Entries of a build's provenance that add up.
_SUMS = ("completions", "tokens", "cut_completions", "unverified_rollouts")


def check_settings(
    tables: Sequence[PassRates], names: Sequence[str], allow_mismatch: Sequence[str]
) -> None:
    """Refuse tables of different settings, naming each that differs with its values.

    Raises
    ------
    PassRatesError
    """
    for name in allow_mismatch:
        if name not in NAMES:
            raise PassRatesError(f"allow_mismatch names {name!r}{nearest(name, list(NAMES))}")
    told = []
    for setting in NAMES:
        values = [getattr(table.provenance, setting) for table in tables]
        other = next((i for i, value in enumerate(values) if value != values[0]), None)
        if other is not None and setting not in allow_mismatch:
            told.append(
                f"{setting} is {_known(values[0])} in {names[0]} and {_known(values[other])} in "
                f"{names[other]}"
            )
    if told:
        raise PassRatesError(
            f"the files were made with different settings: {'; '.join(told)}; merge files of the "
            "same settings, or accept a difference by name with --allow-mismatch"
        )


def is_one_build(tables: Sequence[PassRates]) -> bool:
    """Whether all tables are parts of one build: the same settings of sampling and verifying."""
    builds = [_build(table) for table in tables]
    if not all(builds):
        return False
    whole = [{k: v for k, v in build.items() if k not in _OF_PART} for build in builds]
    return all(build == whole[0] for build in whole)


def check_shards(tables: Sequence[PassRates], names: Sequence[str], *, partial: bool) -> list[int]:
    """Order of the tables: by shard where all are shards of one build, else as they are.

    Raises
    ------
    PassRatesError
        If shards are missing (unless ``partial``), or are of different builds or numbers of
        shards.
    """
    shards = [shard_of(table) for table in tables]
    if not any(shards):
        return list(range(len(tables)))
    lone = [name for name, shard in zip(names, shards, strict=True) if shard is None]
    if lone:
        if partial:
            return list(range(len(tables)))
        other = names[next(i for i, shard in enumerate(shards) if shard)]
        raise PassRatesError(
            f"{other} is a shard and {lone[0]} is none: merge the shards of the build first, or "
            "pass --partial to take the shard as it is"
        )
    known = [shard for shard in shards if shard is not None]
    if not is_one_build(tables) or len({count for _, count in known}) > 1:
        raise PassRatesError(
            f"the files are shards of different builds: {_differences(tables, names, known)}; "
            "merge the shards of one build"
        )
    there = Counter(number for numbers, _ in known for number in numbers)
    count = known[0][1]
    missing = [number for number in range(1, count + 1) if number not in there]
    if missing and not partial:
        raise PassRatesError(
            f"shards {_listed(missing)} of {count} are missing: build them, or pass --partial to "
            "merge those that are there"
        )
    return sorted(range(len(tables)), key=lambda i: known[i][0])


def shard_of(table: PassRates) -> tuple[list[int], int] | None:
    """Numbers of the shards that a table has, and of how many; None if it is no shard."""
    shard = _build(table).get("shard")
    if isinstance(shard, list | tuple) and len(shard) == 2:
        shard = f"{shard[0]}/{shard[1]}"
    found = re.fullmatch(r"(\d+(?:,\d+)*)/(\d+)", shard) if isinstance(shard, str) else None
    if not found:
        return None
    return sorted(int(number) for number in found[1].split(",")), int(found[2])


def merged_provenance(
    tables: Sequence[PassRates],
    names: Sequence[str],
    allow_mismatch: Sequence[str],
    *,
    on_conflict: str | None,
) -> Provenance:
    """What is the same everywhere, sums of what adds up, and what was merged.

    The entry "build" is there if all are parts of one build; its hashes are those of the first.
    """
    first = tables[0].provenance
    unknown = {
        name: None
        for name in allow_mismatch
        if any(getattr(t.provenance, name) != getattr(first, name) for t in tables)
    }
    extras = [table.provenance.extra for table in tables]
    extra = {
        name: value
        for name, value in extras[0].items()
        if all(name in other and other[name] == value for other in extras)
    }
    extra.pop("build", None)
    extra |= _sums(extras) | _notes(extras)
    extra["merged"] = [
        {
            "file": name,
            "prompts": len(table),
            "rollouts": int(table.n.sum()),
            "created": table.provenance.created,
        }
        for name, table in zip(names, tables, strict=True)
    ]
    for name in unknown:
        extra[f"{name}_of_merged"] = [getattr(t.provenance, name) for t in tables]
    if on_conflict is not None:
        extra["on_conflict"] = on_conflict
    if is_one_build(tables):
        extra["build"] = _joint_build(tables)
    created = min((t.provenance.created for t in tables if t.provenance.created), default=None)
    return first.replace(
        **unknown, created=created, package_version=None, schema_version=None, extra=extra
    )


def _joint_build(tables: Sequence[PassRates]) -> dict[str, Any]:
    builds = [_build(table) for table in tables]
    shards = [shard_of(table) for table in tables]
    shard = None
    if all(shards):
        numbers = sorted(number for found in shards if found for number in found[0])
        count = shards[0][1] if shards[0] else 0
        if len(set(numbers)) < count:
            shard = f"{','.join(map(str, numbers))}/{count}"
    options = builds[0].get("options") or {}
    same = {
        name: value
        for name, value in options.items()
        if all((build.get("options") or {}).get(name) == value for build in builds)
    }
    data = [(build.get("options") or {}).get("data") for build in builds]
    if all(data):  # of builds of different data sets: all of them
        same["data"] = _distinct(entry for entries in data for entry in entries or [])
    return {**builds[0], "shard": shard, "options": same}


def _distinct(entries: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for entry in entries:
        if entry not in found:
            found.append(entry)
    return found


def _sums(extras: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _SUMS:
        values = [extra.get(name) for extra in extras]
        if all(isinstance(value, int) for value in values):
            found[name] = sum(value for value in values if value is not None)
    failures = [extra.get("verifier_failures") for extra in extras]
    if all(isinstance(value, dict) for value in failures):
        total: Counter[str] = sum((Counter(value) for value in failures), Counter())
        found["verifier_failures"] = {cause: total[cause] for cause in sorted(total)}
    saved = [extra.get("adaptive") for extra in extras]
    if all(isinstance(value, dict) for value in saved):
        rollouts, fixed = (
            sum(s[name] for s in saved if s) for name in ("rollouts", "fixed_rollouts")
        )
        found["adaptive"] = {
            "rollouts": rollouts,
            "fixed_rollouts": fixed,
            "share_saved": 1.0 - rollouts / fixed,
        }
    return found


def _notes(extras: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What must not get lost, although not every input has it."""
    found: dict[str, Any] = {}
    warnings = dict.fromkeys(extra["warning"] for extra in extras if "warning" in extra)
    if warnings:
        found["warning"] = "; ".join(map(str, warnings))
    absorbed = [note for extra in extras for note in extra.get("absorbed") or []]
    if absorbed:
        found["absorbed"] = absorbed
    return found


def _differences(
    tables: Sequence[PassRates], names: Sequence[str], shards: Sequence[tuple[list[int], int]]
) -> str:
    told = []
    builds = [_build(table) for table in tables]
    for setting in [name for name in builds[0] if name not in _OF_PART]:
        for name, build in zip(names[1:], builds[1:], strict=True):
            if build.get(setting) != builds[0][setting]:
                told.append(
                    f"{setting} is {builds[0][setting]!r} in {names[0]} and "
                    f"{build.get(setting)!r} in {name}"
                )
                break
    for name, (_, count) in zip(names, shards, strict=True):
        if count != shards[0][1]:
            told.append(f"{names[0]} is one of {shards[0][1]} shards and {name} of {count}")
            break
    return "; ".join(told)


def _build(table: PassRates) -> Mapping[str, Any]:
    build = table.provenance.extra.get("build")
    return build if isinstance(build, dict) else {}


def _known(value: Any) -> str:
    return "unknown" if value is None else repr(value)


def _listed(numbers: Sequence[int], *, most: int = 20) -> str:
    shown = ", ".join(map(str, numbers[:most]))
    return f"{shown} and {len(numbers) - most} more" if len(numbers) > most else shown
