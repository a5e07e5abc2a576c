"""One journal of the journals of a build's shards, without reading what the completions say."""

from __future__ import annotations

import gzip
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from basis_rl.errors import PassRatesError
from basis_rl.files import cannot_write
from basis_rl.passrates.build.identity import Identity
from basis_rl.passrates.build.lines import Line, check_line, encoded
from basis_rl.passrates.build.members import LEVEL, DamagedMemberError, read_members

# How these lines begin, so that only the few others are parsed.
_COMPLETIONS, _VERDICTS = b'{"kind":"completions",', b'{"kind":"verdicts",'
_TARGET = ("n", "adaptive", "shard", "prompts", "prompts_sha256")
_VERIFIER = ("verifier", "verifier_version", "answer_column")


@dataclass
class Part:
    """What a shard's journal says, completions and verdicts aside.

    Attributes
    ----------
    path : Path
    header, engine, target, verifier : dict
        Settings in force.
    rows : dict of key to (hash of the text, hash of the row)
    lines_until_verifier : int
        Verdicts in these lines are void.
    seconds : float
        Time spent on it.
    is_sampled : bool
    """

    path: Path
    header: Line = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)
    target: dict[str, Any] = field(default_factory=dict)
    verifier: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, tuple[str, str]] = field(default_factory=dict)
    lines_until_verifier: int = 0
    sessions: dict[int, float] = field(default_factory=dict)
    is_sampled: bool = False


def read_part(path: Path) -> Part:
    """Settings and prompts of a journal.

    Raises
    ------
    PassRatesError
        If it cannot be read, or is damaged.
    """
    part = Part(path)
    for number, line in enumerate(_lines(path), start=1):
        if line.startswith((_COMPLETIONS, _VERDICTS)):
            continue
        try:
            entry = json.loads(line)
            check_line(entry)
            _note(part, entry, number)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PassRatesError(f"{path}, line {number}, has {error}: restore it") from None
    if not part.header:
        raise PassRatesError(f"{path} is not a journal of this version: move it away or restore it")
    return part


def joint_rows(parts: Sequence[Part]) -> dict[str, Any]:
    """Entries of a build's provenance that say which prompts it has."""
    texts = [[key, "", text] for part in parts for key, (text, _) in part.rows.items()]
    rows = [[key, "", row] for part in parts for key, (_, row) in part.rows.items()]
    return {
        "prompts": len(rows),
        "prompts_sha256": Identity(None, None, {}, {}, texts).rows_sha256,
        "rows_sha256": Identity(None, None, {}, {}, rows).rows_sha256,
    }


def fits(part: Part, build: Mapping[str, Any]) -> bool:
    """Whether a journal is that of the table whose provenance has this build."""
    return part.is_sampled and all(
        build.get(name) == value for name, value in joint_rows([part]).items()
    )


@contextmanager
def merge_journals(parts: Sequence[Part], out: Path, build: Mapping[str, Any]) -> Iterator[None]:
    """Write a journal; it is put in place when the block ends without an error.

    Raises
    ------
    PassRatesError
        If it cannot be written.
    """
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(6)}.tmp")
    try:
        try:
            with temporary.open("xb") as stream:
                stream.write(_member(_first_lines(parts, build)))
                for part in parts:
                    _copy(part, stream)
                stream.write(_member(_last_lines(parts)))
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise PassRatesError(cannot_write(out, error)) from error
        yield
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)


def _first_lines(parts: Sequence[Part], build: Mapping[str, Any]) -> list[Line]:
    header = {**parts[0].header, "created": min(part.header["created"] for part in parts)}
    rows = [[key, *hashes] for part in parts for key, hashes in part.rows.items()]
    target = {name: build[name] for name in _TARGET}
    verifier = {**{name: build[name] for name in _VERIFIER}, "reverify": False}
    return [
        header,
        {"kind": "engine", "settings": parts[0].engine},
        {"kind": "target", "settings": target},
        {"kind": "prompts", "rows": rows},
        {"kind": "verifier", "settings": verifier},
    ]


def _last_lines(parts: Sequence[Part]) -> list[Line]:
    sessions = [
        {"kind": "session", "number": number, "seconds": round(sum(part.sessions.values()), 3)}
        for number, part in enumerate(parts, start=1)
    ]
    return [*sessions, {"kind": "sampled"}, {"kind": "complete"}]


def _copy(part: Part, stream: IO[bytes]) -> None:
    """Completions, and verdicts in force; a member of these alone is copied as it is."""
    number = 0
    with part.path.open("rb") as source:
        for member in _members(part.path):
            lines = member.content.splitlines()
            kept = []
            for line in lines:
                number += 1
                is_void = number <= part.lines_until_verifier
                if line.startswith(_COMPLETIONS) or (line.startswith(_VERDICTS) and not is_void):
                    kept.append(line)
            if len(kept) == len(lines):
                source.seek(member.start)
                stream.write(source.read(member.end - member.start))
            elif kept:
                stream.write(gzip.compress(b"\n".join(kept) + b"\n", LEVEL, mtime=0))


def _note(part: Part, entry: Line, number: int) -> None:
    kind = entry["kind"]
    if kind == "header":
        part.header = entry
    elif kind == "prompts":
        part.rows |= {key: (text, row) for key, text, row in entry["rows"]}
    elif kind == "engine":
        part.engine = entry["settings"]
    elif kind == "target":
        part.target, part.is_sampled = entry["settings"], False
    elif kind == "verifier":
        part.verifier, part.lines_until_verifier = entry["settings"], number
    elif kind == "session":
        part.sessions[entry["number"]] = entry["seconds"]
    elif kind == "sampled":
        part.is_sampled = True


def _lines(path: Path) -> Iterator[bytes]:
    for member in _members(path):
        yield from member.content.splitlines()


def _members(path: Path) -> Iterator[Any]:
    try:
        yield from read_members(path)
    except DamagedMemberError as error:
        raise PassRatesError(f"{path} is damaged at byte {error}: restore it from a copy") from None
    except OSError as error:
        raise PassRatesError(f"cannot read {path}: {error.strerror or error}") from error


def _member(lines: Sequence[Line]) -> bytes:
    return gzip.compress(encoded(lines), LEVEL, mtime=0)
