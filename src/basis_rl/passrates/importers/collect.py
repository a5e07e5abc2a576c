"""From records to one row a prompt."""

from __future__ import annotations

import hashlib
import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from basis_rl.errors import PassRatesError
from basis_rl.passrates.importers.record import Notes, Options, Prompt, Record
from basis_rl.passrates.importers.steps import no_such_steps, refuse_steps
from basis_rl.passrates.keys import prompt_key

REPEATS = ("error", "first", "sum")


@dataclass
class Entry:
    """What was found of one prompt."""

    key: str
    prompt: Prompt | None
    source: str | None
    place: str
    named: bool
    rewards: array[float] = field(default_factory=lambda: array("d"))
    successes: int = 0
    n: int = 0
    rate: float | None = None
    missing: int = 0
    lists: set[bytes] = field(default_factory=set)
    repeats_a_list: bool = False


@dataclass
class Collector:
    """Sums records by prompt.

    Parameters
    ----------
    options : Options
    notes : Notes
    mapping : mapping of float to float
        Rewards to replace.
    threshold : float, optional
        Rewards from here on are 1, others 0.
    repeats : str
        What to do with a prompt that several rows sum up, and not alike: one of `REPEATS`.
    limit : int, optional
        Prompts to take.
    progress : callable, optional
        Called now and then with the records read.
    """

    options: Options
    notes: Notes
    mapping: Mapping[float, float] = field(default_factory=dict)
    threshold: float | None = None
    repeats: str = "error"
    limit: int | None = None
    progress: Callable[[int], None] | None = None
    entries: dict[str, Entry] = field(default_factory=dict)
    values: Counter[float] = field(default_factory=Counter)
    missing: int = 0
    read: int = 0

    def __post_init__(self) -> None:
        self._steps: set[int] = set()
        self._seen_steps: list[int] = []
        self._taken: list[int] = []
        self._rollouts: dict[Any, tuple[str, int]] = {}
        self._kind: str | None = None
        self._key_of: tuple[Any, str] | None = None
        if self.repeats not in REPEATS:
            raise PassRatesError(f"--repeats is {self.repeats!r}: use {', '.join(REPEATS)}")
        if self.limit is not None and self.limit < 1:
            raise PassRatesError(f"--limit is {self.limit}: use a positive number of prompts")
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise PassRatesError(f"--threshold is {self.threshold}: use a finite reward")
        for old, new in self.mapping.items():
            if not (math.isfinite(old) and math.isfinite(new)):
                raise PassRatesError(f"--map has {old}={new}: both are finite rewards")

    def collect(self, records: Iterable[Record]) -> None:
        """Take all records.

        Raises
        ------
        PassRatesError
            If a record contradicts one before it, or the dump has other steps than wanted.
        """
        for record in records:
            self.read += 1
            if self.progress is not None and self.read % 1000 == 0:
                self.progress(self.read)
            if self._is_wanted(record):
                self._add(record)
                self._note_steps(record)
        refuse_steps(self._steps)
        if self.options.steps is not None and self.read and not self._seen_steps:
            raise PassRatesError("its rows have no training step: leave --steps out")
        if self.options.steps is not None and not self.entries and self._seen_steps:
            raise no_such_steps(self.options.steps, *self._seen_steps)

    def _note_steps(self, record: Record) -> None:
        if record.step is not None:
            first = record.step if record.first_step is None else record.first_step
            low, high = self._taken or (first, record.step)
            self._taken = [min(low, first), max(high, record.step)]

    def _is_wanted(self, record: Record) -> bool:
        step = record.step
        if step is None:
            if self.options.steps is not None:
                self.notes.dropped["without a training step"] += len(record.rewards or [1])
            return self.options.steps is None
        first = step if record.first_step is None else record.first_step
        if self.options.steps is None:
            self._steps |= {first, step}
            return len(self._steps) == 1  # with more, only the range is of interest
        low, high = self._seen_steps or (first, step)
        self._seen_steps = [min(low, first), max(high, step)]
        if self.options.steps[0] <= first and step <= self.options.steps[1]:
            return True
        self.notes.dropped["of other steps"] += len(record.rewards or [1])
        return False

    def _add(self, record: Record) -> None:
        entry = self._entry(record)
        if entry is None:
            self.notes.dropped["beyond the limit of prompts"] += 1
        elif record.rewards is not None:
            self._add_rewards(entry, record)
        else:
            self._add_summary(entry, record)

    def _entry(self, record: Record) -> Entry | None:
        key = self._key(record)
        entry = self.entries.get(key)
        if entry is None:
            if self.limit is not None and len(self.entries) >= self.limit:
                return None
            named = record.key is not None
            entry = Entry(key, record.prompt, record.source, record.place, named)
            self.entries[key] = entry
            return entry
        if record.source != entry.source:
            raise PassRatesError(
                f"{record.place}: prompt {key!r} has source {record.source!r}, and "
                f"{entry.source!r} at {entry.place}: name another source column, or import them "
                "apart"
            )
        if entry.named and record.prompt != entry.prompt:
            raise PassRatesError(
                f"{record.place}: key {key!r} is also that of another prompt, at {entry.place}: "
                "name a key column that is unique, or none"
            )
        return entry

    def _key(self, record: Record) -> str:
        if record.key is not None:
            return record.key
        if record.prompt is None:
            raise PassRatesError(f"{record.place} has neither a prompt nor a key")
        if isinstance(record.prompt, str) and not record.prompt.strip():
            raise PassRatesError(
                f"{record.place}: its prompt is empty: mend it, or name a key column"
            )
        # Rollouts of one prompt mostly follow each other.
        if self._key_of is None or self._key_of[0] != record.prompt:
            try:
                self._key_of = (record.prompt, prompt_key(record.prompt))
            except PassRatesError as error:
                raise PassRatesError(f"{record.place}: {error}") from None
        return self._key_of[1]

    def _add_rewards(self, entry: Entry, record: Record) -> None:
        assert record.rewards is not None
        self._check_kind("rewards", record)
        if len(record.rewards) > 1 and self._is_left_out(entry, record):
            return
        if record.rollout is not None and len(record.rewards) == 1:
            before = self._rollouts.get(record.rollout)
            if before is not None:
                self._forget(*before)
            self._rollouts[record.rollout] = (entry.key, len(entry.rewards))
        for reward in record.rewards:
            if reward is None:
                entry.missing += 1
                self.missing += 1
                # A place of its own, so that a later rollout of the same name can replace it.
                entry.rewards.append(float("nan"))
            else:
                value = self._mapped(reward)
                self.values[value] += 1
                entry.rewards.append(value)

    def _is_left_out(self, entry: Entry, record: Record) -> bool:
        """Whether a prompt's row with all its rewards was there before, or is not the first.

        Rows that are all alike are one row written twice; rows that all differ are rollouts to
        add up. A prompt with both is asked about: leaving out equal lists among independent ones
        would leave out the likely outcomes.
        """
        if self.repeats == "sum":
            return False
        text = repr(list(record.rewards or ()))  # not hash(): -1 and -2 have the same
        fingerprint = hashlib.blake2b(text.encode(), digest_size=16).digest()
        is_repeat = fingerprint in entry.lists
        is_first = not entry.lists
        entry.lists.add(fingerprint)
        entry.repeats_a_list |= is_repeat
        if self.repeats == "first" and not is_first and not is_repeat:
            self.notes.dropped["rows after a prompt's first"] += 1
            return True
        if self.repeats == "error" and entry.repeats_a_list and len(entry.lists) > 1:
            raise self._another_result(entry, record)
        if is_repeat:
            self.notes.dropped["rows that repeat a prompt and its result"] += 1
        return is_repeat

    def _another_result(self, entry: Entry, record: Record) -> PassRatesError:
        return PassRatesError(
            f"{record.place}: prompt {entry.key!r} has another result here than at "
            f"{entry.place}: say --repeats first, or --repeats sum if both are rollouts of one "
            "policy (not for rates without n)"
        )

    def _forget(self, key: str, position: int) -> None:
        """Take a rollout back that a later one replaces."""
        entry = self.entries[key]
        value = entry.rewards[position]
        self.notes.dropped["replaced by a later write of the same rollout"] += 1
        if value != value:
            entry.missing -= 1
            self.missing -= 1
        else:
            self.values[value] -= 1
        entry.rewards[position] = float("nan")

    def _mapped(self, reward: float) -> float:
        reward = self.mapping.get(reward, reward)
        if self.threshold is not None:
            return float(reward >= self.threshold)
        return reward

    def _add_summary(self, entry: Entry, record: Record) -> None:
        if record.successes is None and record.rate is None:
            entry.missing += 1
            self.missing += 1
            return
        self._check_kind("rates" if record.successes is None else "counts", record)
        if self.mapping or self.threshold is not None:
            raise PassRatesError(
                f"{record.place} sums up a prompt's rollouts: --map and --threshold are for the "
                "rewards of single rollouts; leave them out"
            )
        n = record.n or 0
        if entry.n or entry.rate is not None:
            same = (entry.successes, entry.n, entry.rate) == (record.successes or 0, n, record.rate)
            if same and self.repeats != "sum":
                self.notes.dropped["rows that repeat a prompt and its result"] += 1
                return
            if self.repeats == "first":
                self.notes.dropped["rows after a prompt's first"] += 1
                return
            if self.repeats == "error" or record.rate is not None:
                raise self._another_result(entry, record)
        entry.successes += record.successes or 0
        entry.n += n
        entry.rate = record.rate

    def _check_kind(self, kind: str, record: Record) -> None:
        self._kind = self._kind or kind
        if self._kind != kind:
            raise PassRatesError(
                f"{record.place} gives {kind}, rows before it {self._kind}: a table holds one "
                "kind (is n missing in some rows?)"
            )

    @property
    def steps(self) -> tuple[int, int] | None:
        """First and last training step that was taken; None if none is told."""
        return (self._taken[0], self._taken[1]) if self._taken else None

    @property
    def kind(self) -> str | None:
        """What the records were: rewards, counts or rates; None if all were missing."""
        return self._kind
