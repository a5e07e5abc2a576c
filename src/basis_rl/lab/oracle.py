"""A record of one policy: many rollouts of each prompt, sampled as a cache is."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from basis_rl.errors import ConfigError
from basis_rl.files import check_writable
from basis_rl.lab.reading.file import write_record
from basis_rl.lab.record import RecordError, RewardRecord
from basis_rl.passrates import PassRates
from basis_rl.passrates.build import build_cache, journal_path
from basis_rl.passrates.build.journal import Journal
from basis_rl.passrates.build.progress import Progress
from basis_rl.passrates.build.record import JUDGED
from basis_rl.passrates.inspect.compare import Reward, is_verifier
from basis_rl.rollouts.engine import Engine
from basis_rl.rollouts.settings import SamplingSettings
from basis_rl.verifiers.base import NamedVerifier

if TYPE_CHECKING:
    from basis_rl.prompts import Prompt

ORACLE, ROLLOUTS = 256, 8
# Another one than a cache's 0: a checkpoint that has moved little would else give the cache's own
# completions again, and the oracle would share their luck.
SEED = 1


def sample_record(
    prompts: Sequence[Prompt],
    engine: Engine,
    verifier: NamedVerifier,
    path: str | os.PathLike[str],
    *,
    oracle: int = ORACLE,
    rollouts: int = ROLLOUTS,
    settings: SamplingSettings | None = None,
    seed: int = SEED,
    step: int = 0,
    pass_rates: PassRates | None = None,
    progress: Progress | None = None,
) -> RewardRecord:
    """Sample ``oracle + rollouts`` rewards of each prompt under one policy, and write the record.

    The completions go through `build_cache`: stopped at any moment, the same call goes on where it
    stopped. Its table and journal stay beside the record, see `rollouts_path`; with a larger
    ``oracle`` only what is missing is sampled.

    Parameters
    ----------
    prompts : sequence of Prompt
    engine : Engine
        Not closed here.
    verifier : NamedVerifier
        Not closed here.
    path : path
        Parquet file of the record.
    oracle, rollouts : int
        Rollouts for the oracle's mean, and rollouts to show to estimators.
    settings : SamplingSettings, optional
    seed : int
    step : int
        Training step of the policy; orders the records of several checkpoints.
    pass_rates : PassRates, optional
        Rollouts under the reference policy, to go with the record.
    progress : callable, optional
        Called with a `BuildProgress`.

    Returns
    -------
    RewardRecord
        One visit a prompt, its rewards in the order of the completions' numbers.

    Raises
    ------
    ConfigError
        If a number is out of range, or the pass rates do not fit; see `check_table`.
    PassRatesError
        As `build_cache`.
    RecordError
        If no prompt has a verdict.
    """
    check_record(path, oracle=oracle, rollouts=rollouts, seed=seed, step=step)
    if pass_rates is not None:
        check_table(pass_rates, prompts, verifier.name, seed=seed)
    cache = rollouts_path(path)
    build_cache(
        prompts,
        engine,
        verifier,
        cache,
        n=oracle + rollouts,
        settings=settings,
        seed=seed,
        progress=progress,
        extend=cache.exists(),
    )
    return write_rollouts(prompts, path, step=step, pass_rates=pass_rates)


def check_record(
    path: str | os.PathLike[str], *, oracle: int, rollouts: int, seed: int, step: int
) -> None:
    """Refuse what makes no record, before anything is sampled.

    Raises
    ------
    ConfigError
        If a number is out of range.
    BasisError
        If the record cannot be written.
    """
    for name, value, least in (
        ("oracle", oracle, 2), ("rollouts", rollouts, 1), ("seed", seed, 0), ("step", step, 0)
    ):  # fmt: skip
        if value < least:
            raise ConfigError(f"{name} is {value}: use at least {least}")
    check_writable(path, shown=path)


def check_table(table: PassRates, prompts: Sequence[Prompt], verifier: str, *, seed: int) -> None:
    """Refuse pass rates that cannot go with a record.

    Raises
    ------
    ConfigError
        If they were sampled with the record's random numbers, or judged by another verifier.
    RecordError
        If they know none of the prompts, or do not tell their number of rollouts.

    Warns
    -----
    UserWarning
        If they do not know all prompts.
    """
    build = table.provenance.extra.get("build")
    if isinstance(build, dict) and build.get("seed") == seed:
        raise ConfigError(
            f"seed is {seed}, and the pass rates were sampled with the same: their completions "
            "would be the oracle's where the policy has not moved; use another seed"
        )
    judged = table.provenance.verifier
    if judged is not None and not is_verifier(judged, [Reward(verifier)]):
        raise ConfigError(
            f"the verifier is {verifier!r}, and that of the pass rates {judged!r}: use the same"
        )
    if table.kind == "rates":
        raise RecordError(
            "the pass rates are rates of an unknown number of rollouts, which a record does not "
            "hold: leave them out, and name both files where the record is read"
        )
    share = table.coverage([prompt.key for prompt in prompts])
    if share == 0:
        raise RecordError(
            f"the pass rates know none of the {len(prompts)} prompts: name those of the same data"
        )
    if share < 1:
        warnings.warn(
            f"the pass rates know {share:.1%} of the prompts, and figures need all of them: extend "
            "them with `basis-rl cache extend`",
            UserWarning,
            stacklevel=3,
        )


def write_rollouts(
    prompts: Sequence[Prompt],
    path: str | os.PathLike[str],
    *,
    step: int = 0,
    pass_rates: PassRates | None = None,
) -> RewardRecord:
    """Write the record of what was sampled beside it, see `rollouts_path`.

    Raises
    ------
    PassRatesError, RecordError
        As `read_rollouts`, or if the file cannot be written.
    """
    cache = rollouts_path(path)
    record = read_rollouts(prompts, cache, step=step, pass_rates=pass_rates, name=Path(path).stem)
    write_record(record, path, provenance=PassRates.load(cache).provenance)
    return record


def rollouts_path(path: str | os.PathLike[str]) -> Path:
    """Table of a record's rollouts, ``record.rollouts.parquet``; its journal stands beside it."""
    path = Path(path)
    return path.with_name(f"{path.stem}.rollouts.parquet")


def read_rollouts(
    prompts: Sequence[Prompt],
    cache: str | os.PathLike[str],
    *,
    step: int = 0,
    pass_rates: PassRates | None = None,
    name: str = "record",
) -> RewardRecord:
    """Rewards of each rollout of a cache, from its journal.

    Parameters
    ----------
    prompts : sequence of Prompt
        Those without a verdict are left out.
    cache : path
        What `build_cache` wrote; its journal must be there.
    step : int
    pass_rates : PassRates, optional
    name : str

    Raises
    ------
    PassRatesError
        If the journal is missing or damaged.
    RecordError
        If no prompt has a verdict.
    """
    with Journal(journal_path(cache), {}, created="", must_exist=True) as journal:
        record = journal.record
        rows = np.array([record.row(prompt.key) for prompt in prompts], dtype=np.int64)
        given = (record.status[rows] == JUDGED) & ~np.isnan(record.rewards[rows])
        counts = given.sum(axis=1).astype(np.int64)
        rewards = record.rewards[rows][given]
        lengths = record.tokens[rows][given].astype(np.float64).clip(1)
    known = np.flatnonzero(counts)
    if not len(known):
        raise RecordError(f"{cache} has no verdict: mend the verifier, then use --reverify")
    kept = [prompts[i] for i in known.tolist()]
    sources = None
    if any(prompt.source is not None for prompt in kept):
        sources = [prompt.source or "" for prompt in kept]
    return RewardRecord(
        [prompt.key for prompt in kept],
        np.arange(len(kept)),
        np.full(len(kept), step, dtype=np.int64),
        np.concatenate([[0], np.cumsum(counts[known])]),
        rewards,
        lengths=lengths,
        sources=sources,
        pass_rates=pass_rates,
        name=name,
    )
