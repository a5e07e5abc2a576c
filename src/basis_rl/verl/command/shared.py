"""Settings that the runs of a model, and those of all models, have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from basis_rl.verl.command.settings import Choice, common_groups, training_groups
from basis_rl.verl.command.stages import rollout_settings
from basis_rl.verl.paper.setting import Group, Setting

_COUNTS = (
    "actor_rollout_ref.rollout.n",
    "data.train_batch_size",
    "actor_rollout_ref.actor.ppo_mini_batch_size",
)


@dataclass(frozen=True)
class Settings:
    """Settings by what takes them.

    Attributes
    ----------
    common : sequence of Group
        Of training and evaluation.
    training : sequence of Group
        Of training alone, but for baseline, objective and number of rollouts.
    rollouts : sequence of Group
        Of the pass rates' rollouts.
    """

    common: Sequence[Group]
    training: Sequence[Group]
    rollouts: Sequence[Group]

    def shared_with(self, others: Iterable[Settings]) -> Settings:
        """Those that all the others have too, with the same source."""
        each = [self, *others]
        return Settings(
            _in_all([settings.common for settings in each]),
            _in_all([settings.training for settings in each]),
            _in_all([settings.rollouts for settings in each]),
        )

    def without(self, other: Settings) -> Settings:
        """Those that the other lacks."""
        return Settings(
            without(self.common, other.common),
            without(self.training, other.training),
            without(self.rollouts, other.rollouts),
        )


def settings_of(choice: Choice) -> Settings:
    """All settings of a run; its name is a variable."""
    _, _, *others = training_groups(choice)
    return Settings(
        _kept(_named(common_groups(choice)), _counts_no_rollouts),
        _kept(others, _counts_no_rollouts),
        [Group("", rollout_settings(choice))],
    )


def baseline_of(choice: Choice) -> Group:
    """Settings of a run's baseline, but for the number of rollouts."""
    baseline, *_ = _kept(training_groups(choice), _counts_no_rollouts)
    return baseline


def rollouts_of(choice: Choice) -> tuple[Setting, ...]:
    """Rollouts of a prompt, and what follows from them."""
    groups = [*common_groups(choice), *training_groups(choice)]
    return tuple(each for each in _flat(groups) if not _counts_no_rollouts(each))


def without(groups: Sequence[Group], others: Sequence[Group]) -> list[Group]:
    """Groups without the words of others."""
    gone = {each.word() for each in _flat(others)}
    return _kept(groups, lambda each: each.word() not in gone)


def _counts_no_rollouts(setting: Setting) -> bool:
    return setting.key not in _COUNTS


def _named(groups: Sequence[Group]) -> list[Group]:
    return [
        Group(group.title, tuple(_with_name(each) for each in group.settings)) for group in groups
    ]


def _with_name(setting: Setting) -> Setting:
    if setting.key == "trainer.experiment_name":
        return replace(setting, value="$run_name", expands=True)
    return setting


def _in_all(runs: Sequence[Sequence[Group]]) -> list[Group]:
    others = [set(_flat(groups)) for groups in runs[1:]]
    return _kept(runs[0], lambda each: all(each in other for other in others))


def _kept(groups: Sequence[Group], keep: Callable[[Setting], bool]) -> list[Group]:
    kept = [Group(group.title, tuple(filter(keep, group.settings))) for group in groups]
    return [group for group in kept if group.settings]


def _flat(groups: Sequence[Group]) -> list[Setting]:
    return [each for group in groups for each in group.settings]
