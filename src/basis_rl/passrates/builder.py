"""Building a table of pass rates: sample, verify, keep a journal, write one file."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis_rl.errors import PassRatesError
from basis_rl.files import check_writable
from basis_rl.passrates.file import now
from basis_rl.passrates.journal import Batch, Journal, refuse_other_settings
from basis_rl.passrates.provenance import Provenance
from basis_rl.passrates.table import PassRates
from basis_rl.rollouts.settings import Sampler, SamplingSettings
from basis_rl.verifiers.base import NamedVerifier

if TYPE_CHECKING:
    from basis_rl.prompts import Prompt

# prompts done, prompts in all, mean reward so far
Progress = Callable[[int, int, float], None]
MAX_UNVERIFIED = 0.1
_ENOUGH_ROLLOUTS = 64  # before the share without a verdict means anything


@dataclass(frozen=True)
class _Tally:
    """Rollouts so far, those without a verdict, and the sum of the others' rewards."""

    rollouts: int = 0
    missing: int = 0
    total: float = 0.0

    def with_batch(self, batch: Batch) -> _Tally:
        given = [reward for row in batch.rewards for reward in row if reward is not None]
        count = sum(map(len, batch.rewards))
        return _Tally(
            self.rollouts + count, self.missing + count - len(given), self.total + sum(given)
        )

    @property
    def mean(self) -> float:
        given = self.rollouts - self.missing
        return self.total / given if given else math.nan


def build_cache(
    prompts: Sequence[Prompt],
    sampler: Sampler,
    verifier: NamedVerifier,
    path: str | os.PathLike[str],
    *,
    n: int = 8,
    settings: SamplingSettings | None = None,
    seed: int = 0,
    batch_size: int = 16,
    progress: Progress | None = None,
    extra: Mapping[str, Any] | None = None,
) -> PassRates:
    """Sample n rollouts of each prompt, verify them, and write the table.

    Stopped at any moment, the same call goes on where it stopped and gives the same table. The
    journal ``<path>.journal.jsonl`` is deleted once the table is in place; a call that finds the
    finished table reads it.

    Parameters
    ----------
    prompts : sequence of Prompt
    sampler : Sampler
        For example a `TransformersSampler` of the reference policy.
    verifier : NamedVerifier
        Rewards other than 0 and 1 make a table of rewards.
    path : path
        Parquet file to write.
    n : int
        Rollouts of each prompt; those without a verdict are left out of the table.
    settings : SamplingSettings, optional
    seed : int
    batch_size : int
        Prompts that are sampled at a time.
    progress : callable, optional
        Called after every batch with prompts done, prompts in all, and the mean reward so far.
    extra : mapping, optional
        Further entries for the provenance; JSON types.

    Raises
    ------
    PassRatesError
        If the file or its journal has other settings, two prompts have one key, more than a
        tenth of the rollouts have no verdict, or the file cannot be written.
    """
    settings = settings or SamplingSettings()
    check_writable(Path(os.path.realpath(path)), shown=path)
    _check(prompts, n, batch_size)
    Provenance(extra=dict(extra or {}))  # refuses bad entries before the work
    fingerprint = _fingerprint(prompts, sampler, verifier, settings, n, seed, batch_size)
    journal_path = Path(f"{os.fspath(path)}.journal.jsonl")
    if os.path.exists(path):
        table = _finished(path, fingerprint)
        journal_path.unlink(missing_ok=True)
        return table
    with Journal(journal_path, fingerprint, created=now()) as journal:
        rewards: list[list[float | None]] = []
        failures: Counter[str] = Counter()
        tally = _Tally()
        for number, start in enumerate(range(0, len(prompts), batch_size)):
            if number not in journal.batches:
                some = prompts[start : start + batch_size]
                batch = _sample(some, sampler, verifier, settings, n, seed)
                _check_verdicts(tally.with_batch(batch), verifier, journal_path)
                journal.append(number, batch)
            batch = journal.batches[number]
            tally = tally.with_batch(batch)
            rewards += batch.rewards
            failures.update(batch.failures)
            if progress is not None:
                progress(len(rewards), len(prompts), tally.mean)
        _check_verdicts(tally, verifier, journal_path, at_end=True)
        provenance = Provenance(
            model=sampler.model,
            revision=sampler.revision,
            temperature=float(settings.temperature),
            top_p=float(settings.top_p),
            top_k=settings.top_k,
            max_tokens=settings.max_tokens,
            verifier=verifier.name,
            verifier_version=verifier.version,
            created=journal.created,
            package_version=version("basis-rl"),
            extra={
                **(extra or {}),
                "build": fingerprint,
                "verifier_failures": dict(failures),
                "unverified_rollouts": tally.missing,
            },
        )
        table = _table(prompts, rewards, provenance)
        table.save(path)
        journal.remove()
    return table


def _check(prompts: Sequence[Prompt], n: int, batch_size: int) -> None:
    if not prompts:
        raise PassRatesError("there are no prompts to build pass rates of: load at least one")
    if n < 1 or batch_size < 1:
        raise PassRatesError(f"n is {n} and batch_size {batch_size}: use positive numbers")
    most_common, times = Counter(prompt.key for prompt in prompts).most_common(1)[0]
    if times > 1:
        raise PassRatesError(f"{times} prompts have the key {most_common!r}: give each its own")


def _fingerprint(
    prompts: Sequence[Prompt],
    sampler: Sampler,
    verifier: NamedVerifier,
    settings: SamplingSettings,
    n: int,
    seed: int,
    batch_size: int,
) -> dict[str, Any]:
    """All that the rewards depend on."""
    content = hashlib.sha256()
    for prompt in prompts:
        row = [prompt.key, prompt.prompt, prompt.source, prompt.columns]
        content.update(json.dumps(row, sort_keys=True, default=str).encode() + b"\n")
    return {
        "model": sampler.model,
        "revision": sampler.revision,
        "dtype": getattr(sampler, "dtype", None),
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
        "prompts": len(prompts),
        "prompts_sha256": content.hexdigest(),
    }


def _finished(path: str | os.PathLike[str], fingerprint: dict[str, Any]) -> PassRates:
    table = PassRates.load(path)
    before = table.provenance.extra.get("build")
    if not isinstance(before, dict):
        raise PassRatesError(
            f"{os.fspath(path)} exists and was not built here: choose another output or delete it"
        )
    refuse_other_settings(before, fingerprint, path)
    return table


def _sample(
    prompts: Sequence[Prompt],
    sampler: Sampler,
    verifier: NamedVerifier,
    settings: SamplingSettings,
    n: int,
    seed: int,
) -> Batch:
    completions = sampler.sample(
        [prompt.prompt for prompt in prompts],
        n,
        settings,
        seed=seed,
        keys=[prompt.key for prompt in prompts],
    )
    if [len(texts) for texts in completions] != [n] * len(prompts):
        raise PassRatesError(
            f"the sampler gave {[len(texts) for texts in completions]} completions for "
            f"{len(prompts)} prompts: it must give {n} for each"
        )
    failed_before = Counter(verifier.failures)
    rewards = [
        [_verdict(verifier(text, prompt.columns)) for text in texts]
        for prompt, texts in zip(prompts, completions, strict=True)
    ]
    return Batch(rewards, dict(verifier.failures - failed_before))


def _verdict(reward: float) -> float | None:
    return None if math.isnan(reward) else reward


def _check_verdicts(
    tally: _Tally, verifier: NamedVerifier, journal_path: Path, *, at_end: bool = False
) -> None:
    enough = at_end or tally.rollouts >= _ENOUGH_ROLLOUTS
    if enough and tally.missing > MAX_UNVERIFIED * tally.rollouts:
        raise PassRatesError(
            f"verifier {verifier.name!r} gave no verdict on {tally.missing} of {tally.rollouts} "
            f"rollouts: mend it or the answer column, delete {journal_path} and run it again"
        )


def _table(
    prompts: Sequence[Prompt], rewards: list[list[float | None]], provenance: Provenance
) -> PassRates:
    given = [[reward for reward in row if reward is not None] for row in rewards]
    known = [i for i, row in enumerate(given) if row]
    keys = [prompts[i].key for i in known]
    sources = None
    if any(prompt.source is not None for prompt in prompts):
        sources = [prompts[i].source or "" for i in known]
    lists = [given[i] for i in known]
    if all(reward in (0.0, 1.0) for row in lists for reward in row):
        successes = [int(sum(row)) for row in lists]
        n = [len(row) for row in lists]
        return PassRates.from_counts(keys, successes, n, sources=sources, provenance=provenance)
    return PassRates.from_rewards(keys, lists, sources=sources, provenance=provenance)
