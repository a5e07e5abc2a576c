"""Building a table of pass rates: sample, verify, keep a journal, write one file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from basis_rl.errors import PassRatesError
from basis_rl.passrates.build.identity import (
    Identity,
    check_build,
    finished_table,
    identity,
    journal_path,
    refuse_differences,
    refuse_other_prompts,
    remove_leftovers,
)
from basis_rl.passrates.build.journal import Journal
from basis_rl.passrates.build.lines import Line
from basis_rl.passrates.build.output import built_table, start_time
from basis_rl.passrates.build.progress import Progress
from basis_rl.passrates.build.session import Session
from basis_rl.passrates.build.shards import Shard, of_shard
from basis_rl.passrates.provenance import Provenance
from basis_rl.passrates.table import PassRates
from basis_rl.rollouts.engine import Engine
from basis_rl.rollouts.settings import SamplingSettings
from basis_rl.verifiers.base import NamedVerifier

if TYPE_CHECKING:
    from basis_rl.prompts import Prompt


def build_cache(
    prompts: Sequence[Prompt],
    engine: Engine | None,
    verifier: NamedVerifier,
    path: str | os.PathLike[str],
    *,
    n: int = 8,
    settings: SamplingSettings | None = None,
    seed: int = 0,
    adaptive: bool = False,
    shard: Shard | None = None,
    progress: Progress | None = None,
    extra: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    reverify: bool = False,
    extend: bool = False,
) -> PassRates:
    """Sample n rollouts of each prompt, verify them, and write the table.

    Stopped at any moment, the same call goes on where it stopped and gives the same table.
    Completions and verdicts are kept in the journal ``<path>.journal.jsonl.gz``, which stays there
    for `reverify` and `extend`. A call that finds the finished table reads it, also if that was
    extended since.

    Parameters
    ----------
    prompts : sequence of Prompt
    engine : Engine or None
        What samples the reference policy; None is enough to reverify. Not closed here.
    verifier : NamedVerifier
        Rewards other than 0 and 1 make a table of rewards. Not closed here.
    path : path
        Parquet file to write.
    n : int
        Rollouts of each prompt; those without a verdict are left out of the table.
    settings : SamplingSettings, optional
    seed : int
    adaptive : bool
        Stop before n where a prompt's pass rate is known well enough.
    shard : (int, int), optional
        ``(3, 16)`` keeps the third of sixteen parts of the prompts, by their keys' hashes.
    progress : callable, optional
        Called with a `BuildProgress` up to ten times a second.
    extra : mapping, optional
        Further entries for the provenance; JSON types.
    options : mapping, optional
        What a command needs to repeat the build (data set, engine options); JSON types.
    reverify : bool
        Judge all stored completions again with the verifier; nothing is sampled.
    extend : bool
        Allow more rollouts or prompts than the output was built with.

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
    prompts = of_shard(prompts, shard)
    check_build(prompts, verifier, path, n=n, shard=shard)
    extra = {**(extra or {})}
    Provenance(extra=extra)  # refuses bad entries before the work
    if engine is None and not reverify:
        raise PassRatesError("there is no engine: pass one, or reverify=True to sample nothing")
    wanted = identity(
        prompts, engine, verifier, settings, n=n, seed=seed, adaptive=adaptive, shard=shard
    )
    if not reverify:
        finished = finished_table(path, wanted, extend=extend)
        if finished is not None:
            return finished
    with _journal(path, wanted, must_exist=reverify or extend) as journal:
        remove_leftovers(path)
        _agree(journal, wanted, reverify=reverify, extend=extend)
        session = Session(journal, prompts, engine, verifier, settings, wanted, progress, seed=seed)
        session.reverify() if reverify else session.run()
        table = built_table(journal, prompts, wanted, options=options or {}, extra=extra)
        _write(table, path, journal)
    return table


def _journal(path: str | os.PathLike[str], wanted: Identity, *, must_exist: bool) -> Journal:
    def check_samples(before: dict[str, Any]) -> None:
        refuse_differences(before, wanted.samples or {}, journal_path(path))

    return Journal(
        journal_path(path),
        wanted.samples or {},
        created=start_time(),
        check_samples=check_samples,
        must_exist=must_exist,
    )


def _write(table: PassRates, path: str | os.PathLike[str], journal: Journal) -> None:
    try:
        table.save(path)
    except PassRatesError as error:
        raise PassRatesError(
            f"{error}; nothing has to be sampled again: all of it is in {journal.path}"
        ) from error
    journal.append([{"kind": "complete"}])


def _agree(journal: Journal, wanted: Identity, *, reverify: bool, extend: bool) -> None:
    """Compare a journal with what is wanted, and note what is new."""
    record = journal.record
    lines: list[Line] = []
    known = {
        key: (record.hashes[row], record.row_hashes[row]) for key, row in record.row_of.items()
    }
    refuse_other_prompts(known, wanted.rows, journal.path, any_row=reverify)
    dtype = journal.engine.get("dtype")
    if wanted.dtype and dtype:
        refuse_differences({"dtype": dtype}, {"dtype": wanted.dtype}, journal.path)
    if journal.target != wanted.target:
        before = journal.target
        if extend and before and wanted.target["n"] < before["n"]:
            raise PassRatesError(
                f"n is {wanted.target['n']}, and {journal.path} has {before['n']} already: use at "
                "least as many"
            )
        if reverify and wanted.target in journal.earlier_targets:
            out = os.fspath(journal.path).removesuffix(".journal.jsonl.gz")
            raise PassRatesError(
                f"{out} has been extended since, to {before['prompts']} prompts with n "
                f"{before['n']}: judge all of it again with `basis-rl cache extend {out} "
                "--reverify`"
            )
        if before and not extend:
            refuse_differences(before, wanted.target, journal.path)
        lost = known.keys() - {key for key, *_ in wanted.rows}
        if lost:
            raise PassRatesError(
                f"{len(lost)} prompts of {journal.path} are not asked for any more (first: "
                f"{min(lost)!r}): pass them too, or choose another output"
            )
        lines.append({"kind": "target", "settings": wanted.target})
    new = [row for row in wanted.rows if known.get(row[0]) != (row[1], row[2])]
    if new:
        lines.append({"kind": "prompts", "rows": new})
    before = {name: value for name, value in journal.verifier.items() if name != "reverify"}
    goes_on = before == wanted.verifier and not new and _is_reverifying(journal)
    if not journal.verifier or (reverify and not goes_on):
        settings = {**wanted.verifier, "reverify": reverify}
        lines.append({"kind": "verifier", "settings": settings})
    elif not reverify:
        refuse_differences(before, wanted.verifier, journal.path)
    journal.append(lines)


def _is_reverifying(journal: Journal) -> bool:
    """Whether a reverification was stopped before its table was written."""
    left = journal.record.judged < journal.record.completions
    started = bool(journal.verifier.get("reverify"))
    return started and not journal.is_complete and (left or journal.is_sampled)
