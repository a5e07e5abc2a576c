"""Smaller caches made of a larger one, and a cache made of a record's first rollouts."""

from __future__ import annotations

import dataclasses

import numpy as np

from basis_rl.batch import IntArray
from basis_rl.lab.record import RewardRecord
from basis_rl.passrates.table import PassRates

# Of a prompt's visits, or where it has few, of the first one's rollouts, no more are given up.
MOST_VISITS = 0.25
MOST_ROLLOUTS = 0.5


def thinned(table: PassRates, rollouts: int, *, seed: int = 0) -> PassRates | None:
    """The table had each prompt only ``rollouts`` reference rollouts; None for 0.

    Prompts with fewer keep theirs. Which rollouts are kept is random.
    """
    if rollouts == 0:
        return None
    rng = np.random.default_rng(seed)
    sources = None if table.sources is None else list(table.sources)
    keys = list(table.keys)
    if table.successes is not None:
        n = np.minimum(table.n, rollouts)
        kept = rng.hypergeometric(table.successes, table.n - table.successes, n)
        return PassRates.from_counts(keys, kept, n, sources=sources)
    if table.reward_values is None or table.reward_offsets is None:
        return table  # bare rates: nobody knows of how many rollouts
    lists = np.split(table.reward_values, table.reward_offsets[1:-1])
    rewards = [rng.permutation(part)[:rollouts] for part in lists]
    return PassRates.from_rewards(keys, rewards, sources=sources)


def with_cache_of_first_rollouts(record: RewardRecord, rollouts: int) -> RewardRecord:
    """The record with its prompts' first rollouts taken out and made the table of pass rates.

    Whole visits are taken until there are ``rollouts``, at most a quarter of a prompt's; of a
    prompt with fewer than four visits as many rollouts of its first one, at most half. Where
    nothing can be taken, the record stays as it is.
    """
    taken = _taken(record, rollouts)
    of_cache = np.arange(len(record.rewards)) < np.repeat(record.starts[:-1] + taken, record.counts)
    if not of_cache.any():
        return record
    owner = np.repeat(record.prompt, record.counts)
    table = _table(record, owner[of_cache], of_cache)
    left = record.counts - taken
    kept = left > 0
    return dataclasses.replace(
        record,
        prompt=record.prompt[kept],
        step=record.step[kept],
        starts=np.concatenate([[0], np.cumsum(left[kept])]),
        rewards=record.rewards[~of_cache],
        lengths=None if record.lengths is None else record.lengths[~of_cache],
        pass_rates=table,
    )


def _taken(record: RewardRecord, rollouts: int) -> IntArray:
    """Rollouts of each visit that the cache takes, its first ones."""
    order = np.argsort(record.prompt, kind="stable")
    prompt, counts = record.prompt[order], record.counts[order]
    starts = np.flatnonzero(np.r_[True, prompt[1:] != prompt[:-1]])
    visits = np.diff(np.append(starts, len(prompt)))
    number = np.arange(len(prompt)) - np.repeat(starts, visits)
    before = np.cumsum(counts) - counts
    before = before - np.repeat(before[starts], visits)
    allowed = np.repeat((MOST_VISITS * visits).astype(np.int64), visits)
    whole = np.where((number < allowed) & (before < rollouts), counts, 0)
    part = np.where(number == 0, (MOST_ROLLOUTS * counts).astype(np.int64), 0)
    taken = np.empty(len(prompt), dtype=np.int64)
    taken[order] = np.where(allowed == 0, np.minimum(part, rollouts), whole)
    return taken


def _table(record: RewardRecord, owner: IntArray, rows: np.ndarray) -> PassRates:
    order = np.argsort(owner, kind="stable")
    rewards = record.rewards[rows][order]
    prompts, first, n = np.unique(owner[order], return_index=True, return_counts=True)
    keys = [record.keys[i] for i in prompts]
    sources = None if record.sources is None else [record.sources[i] for i in prompts]
    if record.is_binary:
        successes = np.add.reduceat(rewards, first).astype(np.int64)
        return PassRates.from_counts(keys, successes, n, sources=sources)
    return PassRates.from_rewards(keys, np.split(rewards, first[1:]), sources=sources)
