"""Showing a record to contenders, and what each of them would ask of a training run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from basis_rl.batch import RewardBatch
from basis_rl.errors import BatchError, ConfigError, PassRatesError
from basis_rl.estimators import registry
from basis_rl.lab.contenders import Contender
from basis_rl.lab.contenders import contenders as all_contenders
from basis_rl.lab.recommend.as_logged import replay_as_logged, visit_numbers
from basis_rl.lab.recommend.choice import Option
from basis_rl.lab.recommend.facts import visit_variances
from basis_rl.lab.recommend.noise import Shown
from basis_rl.lab.record import RecordError, RewardRecord
from basis_rl.lab.replay import replay

Progress = Callable[[int, int], None]
# Their baselines leave the own rollout out, so that groups of them compare with the others.
_GROUPS = ("leave-one-out", "james-stein")
WITHOUT = " without pass rates"


@dataclasses.dataclass(frozen=True)
class Judge:
    """How baselines are judged on a record.

    Attributes
    ----------
    batch_size : int
        Prompts in a batch.
    rollouts : int
        Rollouts of a prompt that an estimator sees.
    seeds : int
        Repetitions of a replay.
    as_logged : bool
        Whether each reward is judged by itself, for want of others; see `replay_as_logged`.
    """

    batch_size: int
    rollouts: int
    seeds: int
    as_logged: bool

    def shown(
        self,
        record: RewardRecord,
        contenders: Sequence[Contender],
        progress: Progress | None = None,
    ) -> tuple[Shown, dict[str, str]]:
        """Noise of each contender, and who is left out and why.

        Raises
        ------
        RecordError
            If nobody is left.
        """
        if self.as_logged:
            able, left_out = able_ones(record, contenders)
            if not able:
                raise RecordError(f"{record.name}: no estimator can be judged ({left_out})")
            steps = np.bincount(np.unique(record.step, return_inverse=True)[1])
            own = self.batch_size == int(np.median(steps))
            size = None if own else self.batch_size
            return replay_as_logged(record, able, batch_size=size, progress=progress), left_out
        found = replay(
            with_steps_of(record, self.batch_size),
            contenders,
            batch_size=self.batch_size,
            rollouts=self.rollouts,
            cache_rollouts=0,
            seeds=self.seeds,
            progress=progress,
        )
        within = float(visit_variances(record)[found.visit].mean())
        number = visit_numbers(record.prompt)[found.visit]
        shown = Shown(found.names, found.errors + within, found.prompt, found.step, number, within)
        return shown, found.left_out


def usable(
    rollouts: int, *, continuous: bool, names: Sequence[str] | None = None
) -> list[Contender]:
    """Contenders whose baselines can be compared at a number of rollouts of each prompt.

    Raises
    ------
    ConfigError
        If a name is unknown, or none is left.
    """
    found = all_contenders(names, continuous=continuous)
    chosen = [each for each in found if each.rollouts == 1]
    if rollouts > 1:
        groups = {each.estimator: each for each in found if each.estimator in _GROUPS}
        chosen += [
            dataclasses.replace(each, name=name, label=name, rollouts=1)
            for name, each in groups.items()
        ]
    if not chosen:
        raise ConfigError(
            f"{', '.join(names or [])}: such baselines cannot be compared at {rollouts} "
            f"rollout{'' if rollouts == 1 else 's'} of a prompt: name one that needs no group, "
            "such as 'basis-robust'"
        )
    return chosen


def without_pass_rates(contenders: Sequence[Contender]) -> list[Contender]:
    """Those that may take pass rates and can do without, renamed."""
    return [
        dataclasses.replace(each, name=each.name + WITHOUT, label=each.label + WITHOUT)
        for each in contenders
        if registry.pass_rates_use(each.estimator) == "optional"
    ]


def able_ones(
    record: RewardRecord, contenders: Sequence[Contender]
) -> tuple[list[Contender], dict[str, str]]:
    """Contenders that take a batch of the record, and why the others do not."""
    able: list[Contender] = []
    left_out: dict[str, str] = {}
    for contender in contenders:
        try:
            contender.make(record.pass_rates).estimate(_first_batch(record))
        except (BatchError, ConfigError, PassRatesError) as error:
            left_out[contender.name] = str(error)
        else:
            able.append(contender)
    return able, left_out


def option_of(contender: Contender, record: RewardRecord) -> Option:
    """What a contender asks of a training run on the record's prompts."""
    has_table = record.pass_rates is not None and not contender.name.endswith(WITHOUT)
    takes = registry.pass_rates_use(contender.estimator) != "none"
    estimator = contender.make(record.pass_rates if has_table else None)
    return Option(
        contender.name,
        contender.label,
        uses_cache=has_table and takes,
        remembers=estimator.remembers,
        follows=estimator.follows,
    )


def with_steps_of(record: RewardRecord, visits: int) -> RewardRecord:
    """The record with neighbouring steps taken together until most hold so many visits."""
    steps, number = np.unique(record.step, return_inverse=True)
    each = float(np.median(np.bincount(number)))
    together = max(round(visits / each), 1)
    if together == 1:
        return record
    return dataclasses.replace(record, step=steps[number // together * together])


def _first_batch(record: RewardRecord, size: int = 64) -> RewardBatch:
    """One reward of each of the first different prompts, two of each where visits have more."""
    _, first = np.unique(record.prompt, return_index=True)
    visits = np.sort(first)[:size]
    each = 2 if (record.counts[visits] > 1).all() else 1
    places = (record.starts[visits][:, None] + np.arange(each)).ravel()
    prompts = np.repeat(record.prompt[visits], each).tolist()
    return RewardBatch(
        [record.keys[i] for i in prompts],
        record.rewards[places],
        sources=None if record.sources is None else [record.sources[i] for i in prompts],
        lengths=None if record.lengths is None else record.lengths[places],
        step=0,
        policy_version=0,
    )
