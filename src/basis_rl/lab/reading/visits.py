"""Rewards as they are read, put together by prompt and policy into a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, isnan

import numpy as np

from basis_rl.batch import LARGEST_REWARD
from basis_rl.lab.record import RecordError, RewardRecord
from basis_rl.passrates.importers.record import Notes
from basis_rl.passrates.table import PassRates

UNVERIFIED = "without a verdict"


@dataclass
class Visit:
    """Rewards of one prompt under one policy; rollouts without a verdict are not among them."""

    key: str
    step: int
    rewards: list[float] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)


@dataclass
class Visits:
    """Collects rewards in the order in which they are read.

    Parameters
    ----------
    name : str
        How errors call the source.
    notes : Notes
        Rollouts without a verdict are counted in ``notes.dropped``.
    mapping : mapping of float to float
        Rewards to replace.
    """

    name: str
    notes: Notes
    mapping: Mapping[float, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._visits: dict[tuple[str, int, int], Visit] = {}
        self._sources: dict[str, str] = {}
        self._named: dict[object, tuple[Visit, int]] = {}
        self._has_gaps = False

    def add(
        self,
        place: str,
        key: str,
        rewards: Iterable[float | None],
        *,
        step: int = 0,
        policy: int | None = None,
        lengths: Sequence[float] | None = None,
        source: str | None = None,
        rollout: object = None,
    ) -> None:
        """Add rollouts of a prompt.

        Parameters
        ----------
        place : str
            How an error names them.
        key : str
        rewards : iterable of float or None
            None and NaN are rollouts without a verdict.
        step, policy : int
            Training step, and the policy where it is another than the step's.
        lengths : sequence of float, optional
        source : str, optional
        rollout : object, optional
            Name of the one rollout; of two of a name the later holds.

        Raises
        ------
        RecordError
            If a reward is not finite, or the prompt has had another source.
        """
        if source is not None and self._sources.setdefault(key, source) != source:
            raise RecordError(
                f"{place}: prompt {key!r} has source {source!r}, and {self._sources[key]!r} "
                "before: give every prompt one source"
            )
        at = (key, step, step if policy is None else policy)
        visit = self._visits.get(at)
        if visit is None:
            visit = self._visits[at] = Visit(key, step)
        if rollout is not None:
            self._replace(rollout, visit)
        for position, reward in enumerate(rewards):
            if reward is None or isnan(reward):
                self.notes.dropped[UNVERIFIED] += 1
                continue
            reward = self.mapping.get(reward, reward)
            if not isfinite(reward) or abs(reward) > LARGEST_REWARD:
                raise RecordError(
                    f"{place}: the reward {reward} of prompt {key!r} is not finite: mend it, or "
                    "write null where there was no verdict"
                )
            if rollout is not None:
                self._named[rollout] = (visit, len(visit.rewards))
            visit.rewards.append(float(reward))
            if lengths is not None:
                visit.lengths.append(float(lengths[position]))

    def _replace(self, rollout: object, visit: Visit) -> None:
        """Take a rollout back that a later one of its name replaces."""
        before = self._named.pop(rollout, None)
        if before is not None:
            # NaN holds its place, so that the others' positions stay.
            before[0].rewards[before[1]] = float("nan")
            self._has_gaps = True
            self.notes.dropped["replaced by a later write of the same rollout"] += 1

    def record(self, *, pass_rates: PassRates | None = None) -> RewardRecord:
        """Record of all visits with a verdict, ordered by step.

        Raises
        ------
        RecordError
            If there is none.
        """
        found = sorted(self._visits.values(), key=lambda visit: visit.step)
        kept = []
        for visit in found:
            if self._has_gaps:
                visit.rewards = [reward for reward in visit.rewards if not isnan(reward)]
            if visit.rewards:
                kept.append(visit)
        if not kept:
            missing = self.notes.dropped[UNVERIFIED]
            raise RecordError(
                f"{self.name} holds no rewards ({missing} rollouts without a verdict): name "
                "another file, or the column that holds the rewards"
            )
        number: dict[str, int] = {}
        prompt = [number.setdefault(visit.key, len(number)) for visit in kept]
        sizes = [len(visit.rewards) for visit in kept]
        lengths = [length for visit in kept for length in visit.lengths]
        record = RewardRecord(
            list(number),
            np.array(prompt, dtype=np.int64),
            np.array([visit.step for visit in kept], dtype=np.int64),
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.array([reward for visit in kept for reward in visit.rewards]),
            lengths=np.array(lengths) if len(lengths) == sum(sizes) else None,
            sources=[self._sources.get(key, "") for key in number] if self._sources else None,
            pass_rates=pass_rates,
            name=self.name,
        )
        self._remark(record)
        return record

    def _remark(self, record: RewardRecord) -> None:
        values = set(np.unique(record.rewards).tolist())
        if -1.0 in values and values <= {-1.0, 0.0, 1.0}:
            self.notes.remark(
                "the rewards are -1 and 1 and taken as they are, as real rewards: map -1 to 0 if "
                "-1 is a failure"
            )


def joined(records: Sequence[RewardRecord], *, name: str, stepless: bool) -> RewardRecord:
    """One record of several parts of one run.

    Parameters
    ----------
    records : sequence of RewardRecord
    name : str
    stepless : bool
        No part tells a step: the first is step 0, the second step 1, and so on.

    Raises
    ------
    RecordError
        If a prompt has two sources.
    """
    visits = Visits(name, Notes(dropped=Counter()))
    for number, record in enumerate(records):
        for visit in range(len(record)):
            prompt = int(record.prompt[visit])
            low, high = record.starts[visit], record.starts[visit + 1]
            visits.add(
                record.name,
                record.keys[prompt],
                record.rewards[low:high].tolist(),
                step=number if stepless else int(record.step[visit]),
                lengths=None if record.lengths is None else record.lengths[low:high].tolist(),
                source=None if record.sources is None else record.sources[prompt],
            )
    tables = (record.pass_rates for record in records if record.pass_rates is not None)
    return visits.record(pass_rates=next(tables, None))
