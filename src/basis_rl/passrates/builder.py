"""Building a table of pass rates: sample, verify, keep a journal, write one file."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis_rl.errors import PassRatesError
from basis_rl.passrates.build_settings import (
    build_settings,
    check_build,
    finished_table,
    journal_path,
)
from basis_rl.passrates.file import now
from basis_rl.passrates.journal import Batch, Journal
from basis_rl.passrates.provenance import Provenance
from basis_rl.passrates.table import PassRates
from basis_rl.rollouts.settings import Sampler, SamplingSettings
from basis_rl.verifiers.base import MAX_FAILURES, NamedVerifier, too_many_failures

if TYPE_CHECKING:
    from basis_rl.prompts import Prompt

# prompts done, prompts in all, mean reward so far
Progress = Callable[[int, int, float], None]
MAX_UNVERIFIED = 0.1
_ENOUGH_ROLLOUTS = 64  # before the shares of failures and of missing verdicts mean anything


@dataclass(frozen=True)
class _Tally:
    """Rollouts so far, without a verdict, failed, and the sum of the rewards."""

    rollouts: int = 0
    missing: int = 0
    failed: int = 0
    total: float = 0.0

    def with_batch(self, batch: Batch) -> _Tally:
        given = [reward for row in batch.rewards for reward in row if reward is not None]
        count = sum(map(len, batch.rewards))
        return _Tally(
            self.rollouts + count,
            self.missing + count - len(given),
            self.failed + sum(batch.failures.values()),
            self.total + sum(given),
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
        tenth of the rollouts have no verdict or the verifier failed on more than half of them, or
        the file cannot be written.
    ConfigError
        If a prompt lacks a column that the verifier needs, or is too long for the model.
    """
    settings = settings or SamplingSettings()
    check_build(prompts, verifier, path, n=n, batch_size=batch_size)
    Provenance(extra=dict(extra or {}))  # refuses bad entries before the work
    fingerprint = build_settings(
        prompts, sampler, verifier, settings, n=n, seed=seed, batch_size=batch_size
    )
    finished = finished_table(path, fingerprint)
    if finished is not None:
        return finished
    check_prompts = getattr(sampler, "check", None)
    if check_prompts is not None:
        check_prompts([prompt.prompt for prompt in prompts], settings)
    starts = range(0, len(prompts), batch_size)
    sizes = [min(batch_size, len(prompts) - start) for start in starts]
    with Journal(journal_path(path), fingerprint, created=now(), batch_sizes=sizes, n=n) as journal:
        rewards: list[list[float | None]] = []
        failures: Counter[str] = Counter()
        tally = _Tally()
        for number, start in enumerate(starts):
            if number not in journal.batches:
                some = prompts[start : start + batch_size]
                batch = _sample(some, sampler, verifier, settings, n, seed)
                _check_verdicts(tally.with_batch(batch), verifier, journal.path)
                journal.append(number, batch)
            batch = journal.batches[number]
            tally = tally.with_batch(batch)
            rewards += batch.rewards
            failures.update(batch.failures)
            if progress is not None:
                progress(len(rewards), len(prompts), tally.mean)
        _check_verdicts(tally, verifier, journal.path, at_end=True)
        provenance = Provenance(
            model=sampler.model,
            revision=sampler.revision,
            temperature=float(settings.temperature),
            top_p=float(settings.top_p),
            top_k=settings.top_k,
            max_tokens=settings.max_tokens,
            stop=list(settings.stop),
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
    tally: _Tally, verifier: NamedVerifier, journal: Path, *, at_end: bool = False
) -> None:
    enough = at_end or tally.rollouts >= _ENOUGH_ROLLOUTS
    if enough and tally.failed > MAX_FAILURES * tally.rollouts:
        reason = too_many_failures(verifier, tally.failed, tally.rollouts)
        raise PassRatesError(f"{reason}; delete {journal} if it is there, and run it again")
    if enough and tally.missing > MAX_UNVERIFIED * tally.rollouts:
        raise PassRatesError(
            f"verifier {verifier.name!r} gave no verdict on {tally.missing} of {tally.rollouts} "
            f"rollouts: mend it or the answer column, delete {journal} and run it again"
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
