"""What a training run saw, added to a table of pass rates."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from basis_rl.errors import BasisError, PassRatesError
from basis_rl.files import check_writable
from basis_rl.passrates.absorbing.seen import Run, Seen, open_run, step_range
from basis_rl.passrates.inspect.compare import differences
from basis_rl.passrates.provenance import Difference, Provenance
from basis_rl.passrates.table import PassRates

WARNING = (
    "mixes policies: rollouts of a training run were absorbed, so these are not the reference "
    "policy's pass rates alone"
)


@dataclass(frozen=True)
class Absorbed:
    """What was absorbed.

    Attributes
    ----------
    table : PassRates
    rollouts, without_verdict : int
        Rollouts with a verdict, which are in the table, and those left out.
    prompts, new_prompts : int
        Prompts that the run saw, and those of them that the cache did not know.
    warnings : list of str
        Sampling settings that differ, and what is unusual about the run's prompts.
    steps : str
        Which steps were absorbed, of which, in words.
    """

    table: PassRates
    rollouts: int
    without_verdict: int
    prompts: int
    new_prompts: int
    warnings: list[str]
    steps: str


def absorb(
    run: str | os.PathLike[str],
    cache: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    steps: str | None,
    replace: bool = False,
    allow_mismatch: Sequence[str] = (),
    reward_column: str | None = None,
) -> Absorbed:
    """Write a table of a cache's rollouts and those of some steps of a training run.

    The result mixes policies, and its provenance says so: the model stays the reference policy's,
    ``absorbed`` names the run, its steps and the number of rollouts, ``warning`` what it means.

    Parameters
    ----------
    run : path
        Output folder of a run of `BasisTrainer`, its record, or a dump with steps that `basis-rl
        cache import` reads.
    cache : path
    out : path
        A file that is not there yet.
    steps : str
        First and last step, ``"0:99"``; both are taken.
    replace : bool
        Leave the cache's rollouts out: the absorbed steps alone, under the cache's settings.
    allow_mismatch : sequence of str
        Of "model", "revision" and "verifier": differences that are accepted.
    reward_column : str, optional
        Of a dump that has several.

    Raises
    ------
    PassRatesError
        If there is no range of steps or nothing in it, the run and the cache differ in model or
        verifier, steps were absorbed before, or the rewards do not fit the cache.
    """
    _check_output(out)
    recorded = open_run(run, reward_column=reward_column)
    first, last = step_range(steps, recorded.steps)
    table = PassRates.load(cache)
    warnings = _check_run(table.provenance, recorded, allow_mismatch)
    absorbed = [] if replace else table.provenance.extra.get("absorbed") or []
    _refuse_repeated(absorbed, recorded, first, last)
    seen = recorded.seen(first, last)
    if not seen.rewards:
        raise PassRatesError(
            f"steps {first} to {last} of {os.fspath(run)} have no rollout with a verdict: "
            f"there are steps {recorded.steps[0]} to {recorded.steps[1]}"
        )
    note = {"run": os.fspath(run), "run_id": recorded.id, "steps": [first, last]}
    note |= seen.note() | {"replaces_cache": replace}
    new = int((table.rows(list(seen.rewards)) < 0).sum())
    warnings += _check_prompts(new, len(seen.rewards), recorded, cache)
    joint = _replaced(table, seen) if replace else _added(table, seen)
    result = _with_notes(joint, table.provenance, [*absorbed, note])
    result.save(out)
    told = _told_steps(steps or "", first, last, recorded)
    return Absorbed(
        result, seen.rollouts, seen.without_verdict, len(seen.rewards), new, warnings, told
    )


def _check_output(out: str | os.PathLike[str]) -> None:
    if Path(out).exists():
        raise PassRatesError(f"{os.fspath(out)} is there already: choose another output")
    try:
        check_writable(Path(os.path.realpath(out)), shown=out)
    except BasisError as error:
        raise PassRatesError(str(error)) from error


def _check_run(cached: Provenance, recorded: Run, allow_mismatch: Sequence[str]) -> list[str]:
    """Refuse a run of another model or verifier; texts of the other differences."""
    found = differences(cached, recorded.provenance, recorded.rewards)
    for difference in found:
        if difference.is_error and difference.name not in allow_mismatch:
            raise PassRatesError(
                f"{difference}: absorb into a cache of the same {difference.name}, or accept the "
                f"difference with --allow-mismatch {difference.name}"
            )
    return [_told(difference) for difference in found]


def _check_prompts(
    new: int, prompts: int, recorded: Run, cache: str | os.PathLike[str]
) -> list[str]:
    """Refuse a run of which the cache knows no prompt; a warning where it knows fewer than half."""
    if new == prompts:
        remedy = (
            "absorb into the cache that the run trained with, with the same prompts and key column"
            if recorded.is_record
            else "a dump may hold prompts as the chat template writes them; import it with "
            "`basis-rl cache import --match DATA`, and add it with `basis-rl cache merge`"
        )
        raise PassRatesError(
            f"none of the {new} prompts of {recorded.path} is in {os.fspath(cache)}: {remedy}"
        )
    if 2 * new <= prompts:
        return []
    return [f"{new} of the run's {prompts} prompts are new to the cache: is it that run's cache?"]


def _told_steps(asked: str, first: int, last: int, recorded: Run) -> str:
    """``steps 1 to 9 of 0 to 9; step 0 left out``, and how the trainer's steps are counted."""
    start, end = recorded.steps
    text = f"steps {first} to {last} of {start} to {end}"
    left = [_span(*span) for span in ((start, first - 1), (last + 1, end)) if span[0] <= span[1]]
    text += f"; {' and '.join(left)} left out" if left else ""
    if any(not start <= int(number) <= end for number in re.findall(r"\d+", asked)):
        text += "; there are no others"
    if recorded.is_record:
        text += " (counted from 0: step s is sampled by the policy after s optimizer steps)"
    return text


def _span(first: int, last: int) -> str:
    return f"step {first}" if first == last else f"steps {first} to {last}"


def _told(difference: Difference) -> str:
    return (
        f"{difference.name} is {difference.cached!r} in the cache and {difference.run!r} in the run"
    )


def _refuse_repeated(
    absorbed: Sequence[dict[str, Any]], recorded: Run, first: int, last: int
) -> None:
    for note in absorbed:
        low, high = note["steps"]
        if note.get("run_id") == recorded.id and first <= high and low <= last:
            raise PassRatesError(
                f"the cache has steps {low} to {high} of this run already, which would count "
                "twice: name other steps, or absorb into the cache that it was made from"
            )


def _added(table: PassRates, seen: Seen) -> PassRates:
    keys = list(seen.rewards)
    sources = None
    if table.sources is not None:
        rows = table.rows(keys).tolist()
        sources = [
            table.sources[row] if row >= 0 else seen.sources.get(key, "")
            for key, row in zip(keys, rows, strict=True)
        ]
    if table.kind == "rewards":
        return table.with_rewards(keys, list(seen.rewards.values()), sources=sources)
    if table.kind == "counts" and not seen.is_zero_one:
        raise PassRatesError(
            "the run has rewards other than 0 and 1, and the cache holds counts: keep the run's "
            "alone with --replace, or use a cache of rewards"
        )
    successes = [int(sum(values)) for values in seen.rewards.values()]
    n = [len(values) for values in seen.rewards.values()]
    return table.with_counts(keys, successes, n, sources=sources)


def _replaced(table: PassRates, seen: Seen) -> PassRates:
    keys = list(seen.rewards)
    rows = table.rows(keys).tolist()
    names: dict[str, Any] = {}
    if table.sources is not None or seen.sources:
        known = table.sources or [""] * len(table)
        names["sources"] = [
            (known[row] if row >= 0 else "") or seen.sources.get(key, "")
            for key, row in zip(keys, rows, strict=True)
        ]
    if table.prompt_hashes is not None:
        names["prompt_hashes"] = [table.prompt_hashes[row] if row >= 0 else "" for row in rows]
    if table.kind == "rewards" or not seen.is_zero_one:
        return PassRates.from_rewards(keys, list(seen.rewards.values()), **names)
    successes = [int(sum(values)) for values in seen.rewards.values()]
    return PassRates.from_counts(keys, successes, [len(v) for v in seen.rewards.values()], **names)


def _with_notes(joint: PassRates, before: Provenance, notes: list[dict[str, Any]]) -> PassRates:
    """The joint table under the cache's provenance, with what was absorbed."""
    extra = {**before.extended().extra, "warning": WARNING, "absorbed": notes}
    provenance = before.replace(
        created=None, package_version=None, schema_version=None, extra=extra
    )
    return PassRates(
        joint.keys,
        joint.n,
        successes=joint.successes,
        reward_values=joint.reward_values,
        sources=joint.sources,
        prompt_hashes=joint.prompt_hashes,
        provenance=provenance,
    )
