"""What a build's completions and verdicts depend on, and what can be checked without a model."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis_rl.errors import BasisError, PassRatesError
from basis_rl.files import check_writable
from basis_rl.passrates.build.shards import Shard, check_shard
from basis_rl.passrates.build.targets import stored_targets
from basis_rl.passrates.keys import prompt_hash
from basis_rl.passrates.table import PassRates
from basis_rl.rollouts.engine import Engine
from basis_rl.rollouts.settings import SamplingSettings
from basis_rl.verifiers.base import NamedVerifier

if TYPE_CHECKING:
    from basis_rl.prompts import Prompt

HASH_DIGITS = 16
_VERIFIER = ("verifier", "verifier_version", "answer_column", "rows_sha256")
_TARGET = ("n", "adaptive", "shard", "prompts", "prompts_sha256")


@dataclass(frozen=True)
class Identity:
    """What a build is asked for.

    Attributes
    ----------
    samples : dict or None
        What completions depend on, number type aside; None where none will be sampled.
    dtype : str, optional
        None where it is not known yet: it is compared with nothing.
    verifier, target : dict
    rows : list of (key, hash of the text, hash of the row)
    """

    samples: dict[str, Any] | None
    dtype: str | None
    verifier: dict[str, Any]
    target: dict[str, Any]
    rows: list[list[str]]

    @property
    def rows_sha256(self) -> str:
        """Hash of all prompts' rows, in any order."""
        return _digest(f"{key} {row_hash}" for key, _, row_hash in self.rows)


def identity(
    prompts: Sequence[Prompt],
    engine: Engine | None,
    verifier: NamedVerifier,
    settings: SamplingSettings,
    *,
    n: int,
    seed: int,
    adaptive: bool,
    shard: Shard | None,
) -> Identity:
    """All that a build depends on."""
    rows = [[p.key, prompt_hash(p.prompt), _row_hash(p)] for p in prompts]
    samples = engine and {
        "model": engine.model,
        "revision": engine.revision,
        "engine": engine.name,
        "temperature": float(settings.temperature),
        "top_p": float(settings.top_p),
        "top_k": settings.top_k,
        "max_tokens": settings.max_tokens,
        "stop": list(settings.stop),
        "seed": seed,
    }
    judged_by = {
        "verifier": verifier.name,
        "verifier_version": verifier.version,
        "answer_column": verifier.answer_column,
    }
    target = {
        "n": n,
        "adaptive": adaptive,
        "shard": None if shard is None else f"{shard[0]}/{shard[1]}",
        "prompts": len(rows),
        "prompts_sha256": _digest(f"{key} {text_hash}" for key, text_hash, _ in rows),
    }
    return Identity(samples or None, engine.dtype if engine else None, judged_by, target, rows)


def journal_path(path: str | os.PathLike[str]) -> Path:
    """Journal of a build that writes ``path``; of a symbolic link's target."""
    target = os.path.realpath(path) if os.path.islink(path) else os.fspath(path)
    return Path(f"{target}.journal.jsonl.gz")


def check_build(
    prompts: Sequence[Prompt],
    verifier: NamedVerifier,
    path: str | os.PathLike[str],
    *,
    n: int,
    shard: Shard | None = None,
) -> None:
    """Refuse what cannot be built, model aside.

    Raises
    ------
    BasisError
        If the file cannot be written, n is not positive, there are no prompts or two with one
        key, or a row lacks what the verifier needs.
    """
    check_writable(Path(os.path.realpath(path)), shown=path)
    if shard is not None:
        check_shard(shard)
    if not prompts:
        where = "" if shard is None else f" in shard {shard[0]}/{shard[1]}"
        raise PassRatesError(f"there are no prompts{where} to build pass rates of: load some")
    if n < 1:
        raise PassRatesError(f"n is {n}: use a positive number")
    most_common, times = Counter(prompt.key for prompt in prompts).most_common(1)[0]
    if times > 1:
        raise PassRatesError(f"{times} prompts have the key {most_common!r}: give each its own")
    for prompt in prompts:
        try:
            verifier.check(prompt.columns)
        except BasisError as error:
            raise type(error)(f"prompt {prompt.prompt!r:.60}: {error}") from error


def finished_table(
    path: str | os.PathLike[str], wanted: Identity, *, extend: bool = False
) -> PassRates | None:
    """Table of the same build, if it is there; None if there is something left to do.

    Parameters
    ----------
    path : path
    wanted : Identity
    extend : bool
        Whether another number of rollouts or other prompts mean work, not a mistake.

    Returns
    -------
    PassRates or None
        A table that was extended since counts too, and then has more than was asked for.

    Raises
    ------
    PassRatesError
        If the file was made with other settings, or is something else.
    """
    if not os.path.exists(path):
        return None
    table = PassRates.load(path)
    before = table.provenance.extra.get("build")
    if not isinstance(before, dict) or "prompts_sha256" not in before:
        raise PassRatesError(
            f"{os.fspath(path)} exists and was not built here, or was extended since: choose "
            "another output or delete it"
        )
    now = {
        **(wanted.samples or {}),
        "dtype": wanted.dtype or before.get("dtype"),
        **wanted.verifier,
        **wanted.target,
        "rows_sha256": wanted.rows_sha256,
    }
    changes_target = any(before.get(name) != now[name] for name in _TARGET)
    if changes_target:  # then the rows are others too
        before = {**before, "rows_sha256": now["rows_sha256"]}
    was_extended = changes_target and not extend and _was_extended(path, wanted)
    if was_extended or (extend and changes_target):
        now = {name: value for name, value in now.items() if name not in _TARGET}
    refuse_differences(before, now, path)
    return None if extend and changes_target else table


def _was_extended(path: str | os.PathLike[str], wanted: Identity) -> bool:
    """Whether a build's journal once had this target, and has the same rows of its prompts."""
    rows, targets = stored_targets(journal_path(path))
    return wanted.target in targets and all(rows.get(row[0]) == row for row in wanted.rows)


def refuse_differences(
    before: Mapping[str, Any], now: Mapping[str, Any], path: str | os.PathLike[str]
) -> None:
    """Refuse to go on with other settings than a build was started with.

    Raises
    ------
    PassRatesError
        Naming each setting of ``now`` that differs, with both values, and the remedy.
    """
    names = [name for name in now if before.get(name) != now[name]]
    if not names:
        return
    told = "; ".join(f"{name} was {before.get(name)!r} and is now {now[name]!r}" for name in names)
    if all(name in _TARGET for name in names):
        out = os.fspath(path).removesuffix(".journal.jsonl.gz")
        grows = all(now.get(name, 0) >= (before.get(name) or 0) for name in ("n", "prompts"))
        can_extend = grows and not {"adaptive", "shard"} & set(names)
        extend = f"for more rollouts or prompts use `basis-rl cache extend {out}`; else "
        remedy = extend if can_extend else ""
    elif all(name in _VERIFIER for name in names):
        remedy = "judge the stored completions again with --reverify, or "
    else:
        remedy = ""
    raise PassRatesError(
        f"{os.fspath(path)} was made with other settings ({told}): {remedy}use the same ones, "
        "choose another output, or delete it"
    )


def refuse_other_prompts(
    known: Mapping[str, tuple[str, str]],
    rows: Sequence[Sequence[str]],
    journal: Path,
    *,
    any_row: bool,
) -> None:
    """Refuse a prompt whose text, or whose row, changed under the same key.

    Parameters
    ----------
    known : mapping of key to (hash of the text, hash of the row)
    rows : sequence of (key, hash, hash)
    journal : path
    any_row : bool
        Whether rows may differ: everything is judged again.

    Raises
    ------
    PassRatesError
    """
    for key, text_hash, row_hash in rows:
        if key not in known:
            continue
        if known[key][0] != text_hash:
            raise PassRatesError(
                f"prompt {key!r} has another text than when {journal} was started: give it another "
                "key, or choose another output"
            )
        if known[key][1] != row_hash and not any_row:
            raise PassRatesError(
                f"the row of prompt {key!r} (its answer, say) is another than in {journal}: judge "
                "the stored completions again with --reverify, or choose another output"
            )


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Delete temporary files of tables whose writing was killed."""
    target = Path(os.path.realpath(path))
    pattern = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{12}}\.tmp")
    with suppress(OSError):
        for file in target.parent.iterdir():
            if pattern.fullmatch(file.name):
                file.unlink(missing_ok=True)


def _row_hash(prompt: Prompt) -> str:
    row = [prompt.source, prompt.columns]
    text = json.dumps(row, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]


def _digest(lines: Any) -> str:
    content = "\n".join(sorted(lines))
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
