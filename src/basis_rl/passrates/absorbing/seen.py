"""The steps of a training run that are to be absorbed: its record, or another trainer's dump."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from basis_rl.errors import BasisError, PassRatesError
from basis_rl.passrates.inspect.compare import Reward
from basis_rl.passrates.provenance import Provenance
from basis_rl.passrates.table import PassRates
from basis_rl.passrates.training_record import NAME, RecordedBatch, read_record, read_run


@dataclass(frozen=True)
class Run:
    """A training run before its rewards are read.

    Attributes
    ----------
    path : Path
    id : str
        The same where the run goes on or is read again.
    provenance : Provenance
    rewards : list of Reward or None
        Reward functions; None where unknown.
    steps : (int, int)
        First and last step that there is.
    is_record : bool
        Whether it has the record of `BasisTrainer`.
    reward_column : str, optional
        Of a dump.
    """

    path: Path
    id: str
    provenance: Provenance
    rewards: list[Reward] | None
    steps: tuple[int, int]
    is_record: bool
    reward_column: str | None = None

    def seen(self, first: int, last: int) -> Seen:
        """Rewards of some steps, both ends included."""
        if self.is_record:
            return Seen.of(read_record(self.path, first=first, last=last))
        from basis_rl.passrates.importers import import_pass_rates

        imported = import_pass_rates(
            self.path, steps=(first, last), reward_column=self.reward_column
        )
        return Seen.of_table(imported.table, imported.report.missing, [first, last])


def open_run(path: str | os.PathLike[str], *, reward_column: str | None = None) -> Run:
    """Settings and range of steps of a run.

    Parameters
    ----------
    path : path
        Output folder of a run of `BasisTrainer`, its record, or a dump with steps that `basis-rl
        cache import` reads.
    reward_column : str, optional
        Of a dump that has several.

    Raises
    ------
    BasisError
        If there is none, it cannot be read, or does not say its steps.
    """
    place = Path(path)
    if not place.exists() or place.name == NAME or (place / NAME).is_file():
        run = read_run(place)
        rewards = [Reward(name, weight) for name, weight in run.rewards]
        known = Provenance.from_dict(run.provenance)
        return Run(place, run.id, known, rewards or None, run.steps, True)
    try:
        return _open_dump(place, reward_column)
    except BasisError as error:
        raise type(error)(
            f"{place} has no record of a run of BasisTrainer ({NAME}); read as a dump of another "
            f"trainer: {error}"
        ) from error


def _open_dump(path: Path, reward_column: str | None) -> Run:
    from basis_rl.passrates.importers import Notes, Options, read_records
    from basis_rl.passrates.importers.source import open_source, run_id

    notes = Notes()
    steps: set[int] = set()
    options = Options(reward_column=reward_column)
    opened = open_source(os.fspath(path), None, options, Notes(), any_step=True)
    for record in read_records(path, options=options, notes=notes):
        if record.step is None:
            raise PassRatesError(
                f"{record.place} does not say its training step: import it with `basis-rl cache "
                "import`, and add it with `basis-rl cache merge`"
            )
        steps |= {record.step, record.step if record.first_step is None else record.first_step}
    if not steps:
        raise PassRatesError(f"{path} has no rollouts: name another run")
    known = Provenance(**{name: value for name, value in notes.known.items() if value is not None})
    there = min(steps), max(steps)
    return Run(path, run_id(opened), known, None, there, False, reward_column)


def step_range(text: str | None, there: tuple[int, int]) -> tuple[int, int]:
    """First and last step there is of a text like ``0:99``; an end left out is the record's.

    Raises
    ------
    PassRatesError
        If it is no range, or holds none of the steps that there are.
    """
    has = f"the run has steps {there[0]} to {there[1]}"
    if text is None:
        raise PassRatesError(
            f"no steps are named, and the policy changes from step to step: {has}; name the first "
            f"and the last to absorb, --steps {there[0]}:{there[1]}"
        )
    found = re.fullmatch(r"(\d*):(\d*)", text.strip())
    if not found:
        raise PassRatesError(f"steps is {text!r}: write the first and the last, as 0:99; {has}")
    first, last = (int(n) if n else end for n, end in zip(found.groups(), there, strict=True))
    if first > last or first > there[1] or last < there[0]:
        raise PassRatesError(f"steps is {text!r}, which holds no step: {has}")
    # Steps that are not there yet are not absorbed: noted, they could not be absorbed later.
    return max(first, there[0]), min(last, there[1])


@dataclass
class Seen:
    """Rewards of each prompt, in the order of the run."""

    rewards: dict[str, list[float]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    rollouts: int = 0
    without_verdict: int = 0
    policy_steps: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, batches: Iterable[RecordedBatch]) -> Seen:
        """Rewards of recorded batches."""
        seen = cls()
        for batch in batches:
            policies = [*seen.policy_steps, batch.policy_step]
            seen.policy_steps = [min(policies), max(policies)]
            for row, (key, reward) in enumerate(
                zip(batch.keys, batch.rewards.tolist(), strict=True)
            ):
                if np.isnan(reward):
                    seen.without_verdict += 1
                    continue
                seen.rewards.setdefault(key, []).append(reward)
                seen.rollouts += 1
                if batch.sources is not None:
                    seen.sources.setdefault(key, batch.sources[row])
        return seen

    def note(self) -> dict[str, Any]:
        """What a provenance says of these rewards; JSON types."""
        return {
            "policy_steps": self.policy_steps,
            "rollouts": self.rollouts,
            "rollouts_without_verdict": self.without_verdict,
        }

    @property
    def is_zero_one(self) -> bool:
        """Whether there is no other reward."""
        return all(reward in (0.0, 1.0) for values in self.rewards.values() for reward in values)

    @classmethod
    def of_table(cls, table: PassRates, without_verdict: int, steps: list[int]) -> Seen:
        """Rewards of an imported dump.

        Raises
        ------
        PassRatesError
            If it has bare rates.
        """
        if table.kind == "rates":
            raise PassRatesError("the dump has rates without their rollouts: import it instead")
        if table.successes is not None:
            counts = zip(table.successes.tolist(), table.n.tolist(), strict=True)
            lists = [[1.0] * right + [0.0] * (n - right) for right, n in counts]
        else:
            assert table.reward_values is not None
            assert table.reward_offsets is not None
            parts = np.split(table.reward_values, table.reward_offsets[1:-1])
            lists = [part.tolist() for part in parts]
        rewards = dict(zip(table.keys, lists, strict=True))
        sources = dict(zip(table.keys, table.sources or (), strict=False))
        return cls(rewards, sources, int(table.n.sum()), without_verdict, steps)
