"""The table that a build's journal amounts to."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from basis_rl.batch import IntArray
from basis_rl.errors import ConfigError
from basis_rl.passrates.build.identity import Identity
from basis_rl.passrates.build.journal import Journal
from basis_rl.passrates.build.record import JUDGED, Record
from basis_rl.passrates.keys import DIGITS
from basis_rl.passrates.provenance import Provenance
from basis_rl.passrates.table import PassRates

if TYPE_CHECKING:
    from basis_rl.prompts import Prompt


def built_table(
    journal: Journal,
    prompts: Sequence[Prompt],
    wanted: Identity,
    *,
    options: Mapping[str, Any],
    extra: Mapping[str, Any],
) -> PassRates:
    """Table of all verdicts in a journal; the same whatever interrupted the build.

    Parameters
    ----------
    journal : Journal
    prompts : sequence of Prompt
        Rows of the table, in order; those without a verdict are left out.
    wanted : Identity
    options, extra : mapping
        Further entries for the provenance.
    """
    record = journal.record
    rows = np.array([record.row(prompt.key) for prompt in prompts], dtype=np.int64)
    given = (record.status[rows] == JUDGED) & ~np.isnan(record.rewards[rows])
    n = given.sum(axis=1)
    known = np.flatnonzero(n)
    kept = [prompts[i] for i in known.tolist()]
    rewards = record.rewards[rows][given]
    sources = None
    if any(prompt.source is not None for prompt in prompts):
        sources = [prompt.source or "" for prompt in kept]
    keys = [prompt.key for prompt in kept]
    hashes = [wanted.rows[i][1] for i in known.tolist()]
    names: dict[str, Any] = {
        "sources": sources,
        "prompt_hashes": None if _are_content_hashes(keys, hashes) else hashes,
        "provenance": _provenance(journal, rows, wanted, options, extra),
    }
    if np.isin(rewards, (0.0, 1.0)).all():
        successes = (given & (record.rewards[rows] == 1.0)).sum(axis=1)
        return PassRates.from_counts(keys, successes[known], n[known], **names)
    ends = np.cumsum(n[known])[:-1]
    return PassRates.from_rewards(keys, np.split(rewards, ends), **names)


def _are_content_hashes(keys: list[str], hashes: list[str]) -> bool:
    return all(
        len(key) == DIGITS and key.startswith(text) for key, text in zip(keys, hashes, strict=True)
    )


def _provenance(
    journal: Journal,
    rows: IntArray,
    wanted: Identity,
    options: Mapping[str, Any],
    extra: Mapping[str, Any],
) -> Provenance:
    record, samples = journal.record, journal.samples
    judged = record.status[rows] == JUDGED
    without = int((judged & np.isnan(record.rewards[rows])).sum())
    fields = ("model", "revision", "temperature", "top_p", "top_k", "max_tokens", "stop")
    return Provenance(
        **{name: samples[name] for name in fields},
        verifier=wanted.verifier["verifier"],
        verifier_version=wanted.verifier["verifier_version"],
        created=journal.created,
        package_version=version("basis-rl"),
        extra={
            **extra,
            "build": {
                **samples,
                "dtype": journal.engine.get("dtype"),
                "engine_version": journal.engine.get("version"),
                **wanted.verifier,
                **wanted.target,
                "rows_sha256": wanted.rows_sha256,
                "options": dict(options),
            },
            **_saved(record, rows, wanted),
            "completions": int(record.sampled(rows).sum()),
            "tokens": int(record.tokens[rows].sum(dtype=np.int64)),
            "cut_completions": int(record.cut[rows].sum()),
            "verifier_failures": record.failure_counts(rows),
            "unverified_rollouts": without,
        },
    )


def _saved(record: Record, rows: IntArray, wanted: Identity) -> dict[str, Any]:
    """What adaptive sampling saved; JSON types."""
    if not wanted.target["adaptive"]:
        return {}
    from basis_rl.passrates.adaptive import savings

    sampled = record.sampled(rows)
    saved = savings(*record.moments(rows, sampled), sampled, limit=wanted.target["n"])
    entries = dataclasses.asdict(saved).items()
    return {"adaptive": {name: value if math.isfinite(value) else None for name, value in entries}}


def start_time() -> str:
    """Now, or ``SOURCE_DATE_EPOCH`` where it is set, in ISO 8601, UTC, whole seconds.

    Raises
    ------
    ConfigError
        If the variable is no number of seconds.
    """
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    if fixed is None:
        moment = datetime.now(timezone.utc)
    else:
        try:
            moment = datetime.fromtimestamp(int(fixed), timezone.utc)
        except (ValueError, OverflowError, OSError):
            raise ConfigError(
                f"SOURCE_DATE_EPOCH is {fixed!r}: set it to whole seconds since 1970, or unset it"
            ) from None
    return moment.isoformat(timespec="seconds")
