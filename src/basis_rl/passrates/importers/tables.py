"""From what was collected to a table: keys, kind, provenance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from basis_rl.errors import PassRatesError
from basis_rl.passrates.importers.collect import Collector, Entry
from basis_rl.passrates.importers.match import Matcher
from basis_rl.passrates.importers.record import Notes
from basis_rl.passrates.keys import prompt_hash
from basis_rl.passrates.provenance import Provenance
from basis_rl.passrates.table import PassRates
from basis_rl.prompts import Prompt

_WIDTH = 40


def match_entries(
    entries: Sequence[Entry],
    prompts: Sequence[Prompt],
    notes: Notes,
    column: str | None = None,
) -> tuple[list[Entry], list[str]]:
    """Entries under the keys of a data set's prompts, and the prompts that it does not have.

    A column names what of the data set's rows is compared instead of its prompts. Entries that
    turn out to be one prompt are added up.

    Raises
    ------
    PassRatesError
        If a prompt fits several of the data set's, or none fits any.
    """
    matcher = Matcher(prompts, column)
    by_key = {prompt.key: prompt for prompt in prompts}
    template = matcher.learn(entry.prompt for entry in entries if entry.prompt is not None)
    if template is not None and template != ("", ""):
        before, after = template
        notes.remark(
            f"the template around the data set's prompts: {before[-_WIDTH:]!r} before and "
            f"{after[:_WIDTH]!r} after"
        )
    found: dict[str, Entry] = {}
    unmatched: list[str] = []
    for entry in entries:
        if entry.prompt is None:
            prompt = by_key.get(entry.key)
        else:
            prompt = matcher.find(entry.prompt, template, entry.place)
        if prompt is None:
            unmatched.append(_shown(entry))
            notes.dropped["of prompts that the data set does not have"] += len(
                entry.rewards
            ) or max(entry.n, 1)
        elif prompt.key in found:
            _merge(found[prompt.key], entry)
        else:
            entry.key, entry.prompt, entry.named = prompt.key, prompt.prompt, True
            entry.source = prompt.source if prompt.source is not None else entry.source
            found[prompt.key] = entry
    if not found:
        raise PassRatesError(
            f"none of the {len(entries)} prompts is in the data set (first: {unmatched[0]}): check "
            + (
                f"the column {column!r}"
                if column is not None
                else "its prompt column and template; where its prompts are the dump's in a "
                "template of your own, name the column with the bare text, --match-column"
            )
        )
    return list(found.values()), unmatched


def _shown(entry: Entry) -> str:
    prompt = entry.prompt
    return f"{entry.key if prompt is None else prompt if isinstance(prompt, str) else prompt[-1]}"


def _merge(entry: Entry, more: Entry) -> None:
    if entry.rate is not None or more.rate is not None:
        raise PassRatesError(
            f"{more.place} and {entry.place} are rates of one prompt of the data set: keep one"
        )
    entry.rewards.extend(more.rewards)
    entry.successes += more.successes
    entry.n += more.n
    entry.missing += more.missing


def make_table(
    collector: Collector,
    entries: Sequence[Entry],
    provenance: Provenance,
    *,
    as_is: bool = False,
) -> PassRates:
    """Table of the prompts that have a result.

    Rewards of 0 and 1 alone make a table of counts, others one of rewards, rates without n one of
    rates.

    Raises
    ------
    PassRatesError
        If no prompt has a result, or rewards are on another two-valued scale.
    """
    given = [entry for entry in entries if _has_result(entry)]
    if not given:
        raise PassRatesError(
            f"{len(entries)} prompts were read and none has a result ({collector.missing} are "
            "missing): name another column, or another file"
        )
    keys = [entry.key for entry in given]
    shared: dict[str, Any] = {"provenance": provenance}
    if any(entry.source is not None for entry in given):
        shared["sources"] = [entry.source or "" for entry in given]
    if any(entry.named for entry in given):
        shared["prompt_hashes"] = [_hash(entry) for entry in given]
    if collector.kind == "rates":
        return PassRates.from_rates(keys, [entry.rate or 0.0 for entry in given], **shared)
    if collector.kind == "counts":
        n = [entry.n for entry in given]
        return PassRates.from_counts(keys, [entry.successes for entry in given], n, **shared)
    lists = [[value for value in entry.rewards if value == value] for entry in given]
    values = {value for value, times in collector.values.items() if times}
    if not as_is:
        refuse_other_scale(values)
    if values <= {0.0, 1.0}:
        n = [len(rewards) for rewards in lists]
        return PassRates.from_counts(keys, [int(sum(some)) for some in lists], n, **shared)
    return PassRates.from_rewards(keys, lists, **shared)


def refuse_other_scale(values: set[float]) -> None:
    """Refuse rewards of -1 and 1: whether -1 is a failure, only the caller knows.

    Raises
    ------
    PassRatesError
    """
    if -1.0 in values and values <= {-1.0, 0.0, 1.0}:
        listed = ", ".join(f"{value:g}" for value in sorted(values))
        raise PassRatesError(
            f"the rewards are {listed}: say --map -1=0 if -1 is a failure, or --as-is if the "
            "trainer uses these rewards as they are"
        )


def _has_result(entry: Entry) -> bool:
    return bool(entry.n or entry.rate is not None or any(value == value for value in entry.rewards))


def _hash(entry: Entry) -> str:
    if not entry.named or entry.prompt is None:
        return ""
    make: Callable[[Any], str] = prompt_hash
    return make(entry.prompt)
