"""What a build's rewards depend on, and what can be checked before a model is loaded."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis_rl.errors import BasisError, PassRatesError
from basis_rl.files import check_writable
from basis_rl.passrates.journal import refuse_other_settings, started_settings
from basis_rl.passrates.table import PassRates
from basis_rl.rollouts.settings import SamplingSettings
from basis_rl.verifiers.base import NamedVerifier

if TYPE_CHECKING:
    from basis_rl.prompts import Prompt


@dataclass(frozen=True)
class Policy:
    """A reference policy by name, before it is loaded.

    Attributes
    ----------
    model : str
    revision : str, optional
    dtype : str, optional
        None where the checkpoint decides: it is compared with nothing.
    """

    model: str
    revision: str | None = None
    dtype: str | None = None


def journal_path(path: str | os.PathLike[str]) -> Path:
    """Journal of a build that writes ``path``."""
    return Path(f"{os.fspath(path)}.journal.jsonl")


def check_build(
    prompts: Sequence[Prompt],
    verifier: NamedVerifier,
    path: str | os.PathLike[str],
    *,
    n: int,
    batch_size: int,
) -> None:
    """Refuse what cannot be built, model aside.

    Raises
    ------
    BasisError
        If the file cannot be written, a number is not positive, there are no prompts or two with
        one key, or a row lacks what the verifier needs.
    """
    check_writable(Path(os.path.realpath(path)), shown=path)
    if not prompts:
        raise PassRatesError("there are no prompts to build pass rates of: load at least one")
    if n < 1 or batch_size < 1:
        raise PassRatesError(f"n is {n} and batch_size {batch_size}: use positive numbers")
    most_common, times = Counter(prompt.key for prompt in prompts).most_common(1)[0]
    if times > 1:
        raise PassRatesError(f"{times} prompts have the key {most_common!r}: give each its own")
    for prompt in prompts:
        try:
            verifier.check(prompt.columns)
        except BasisError as error:
            raise type(error)(f"prompt {prompt.prompt!r:.60}: {error}") from error


def build_settings(
    prompts: Sequence[Prompt],
    policy: Any,
    verifier: NamedVerifier,
    settings: SamplingSettings,
    *,
    n: int,
    seed: int,
    batch_size: int,
) -> dict[str, Any]:
    """All that the rewards depend on; ``policy`` is a sampler or a `Policy`."""
    content = hashlib.sha256()
    for prompt in prompts:
        row = [prompt.key, prompt.prompt, prompt.source, prompt.columns]
        content.update(json.dumps(row, sort_keys=True, default=str).encode() + b"\n")
    return {
        "model": policy.model,
        "revision": policy.revision,
        "dtype": getattr(policy, "dtype", None),
        "n": n,
        "temperature": float(settings.temperature),
        "top_p": float(settings.top_p),
        "top_k": settings.top_k,
        "max_tokens": settings.max_tokens,
        "stop": list(settings.stop),
        "seed": seed,
        "batch_size": batch_size,
        "verifier": verifier.name,
        "verifier_version": verifier.version,
        "answer_column": verifier.answer_column,
        "prompts": len(prompts),
        "prompts_sha256": content.hexdigest(),
    }


def finished_table(
    path: str | os.PathLike[str], settings: dict[str, Any], *, any_dtype: bool = False
) -> PassRates | None:
    """Table of the same build, if it is there; None if there is something left to sample.

    A journal beside the table, of a build stopped in its last moment, is deleted.

    Parameters
    ----------
    path : path
    settings : dict
        Of `build_settings`.
    any_dtype : bool
        Leave the number type out of the comparison: it is known once the model is loaded.

    Raises
    ------
    PassRatesError
        If the file or the journal beside it has other settings, or the file is something else.
    """
    if not os.path.exists(path):
        started, place = started_settings(journal_path(path)), journal_path(path)
        table = None
    else:
        table, place = PassRates.load(path), Path(path)
        started = table.provenance.extra.get("build")
        if not isinstance(started, dict):
            raise PassRatesError(
                f"{os.fspath(path)} exists and was not built here, or was extended since: choose "
                "another output or delete it"
            )
    if started is not None:
        now = {**settings, "dtype": started.get("dtype")} if any_dtype else settings
        refuse_other_settings(started, now, place)
    if table is not None:
        journal_path(path).unlink(missing_ok=True)
    return table
