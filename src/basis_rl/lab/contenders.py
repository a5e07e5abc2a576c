"""Every registered estimator with its best published settings, for a replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from basis_rl.errors import ConfigError
from basis_rl.estimators import registry
from basis_rl.estimators.base import Estimator
from basis_rl.passrates.table import PassRates

Make = Callable[[PassRates | None], Estimator]


@dataclass(frozen=True)
class Contender:
    """An estimator that takes part in a comparison.

    Attributes
    ----------
    name : str
        As ``--estimators`` takes it.
    label : str
        As tables and figures show it, with the rollouts of a prompt where it needs several.
    make : callable
        A new estimator, given the pass rates or None.
    rollouts : int
        Rollouts of a prompt that it is given; 1 means as many as the replay shows.
    estimator : str
        Name in the registry.
    options : mapping
        Keywords that `make` passes.
    needs : frozenset of str
        Columns of a batch that it cannot do without: lengths, greedy_rewards, values.
    variance : callable, optional
        Of a mean of G rewards in units of one reward's, where the squared error is that variance
        and nothing else: it can then be told for more rollouts than a record holds.
    tuned : bool
        Whether these are settings to choose from on the record at hand, none published.
    """

    name: str
    label: str
    make: Make
    rollouts: int = 1
    estimator: str = field(default="", kw_only=True)
    options: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    needs: frozenset[str] = field(default=frozenset(), kw_only=True)
    variance: Callable[[int], float] | None = field(default=None, kw_only=True)
    tuned: bool = field(default=False, kw_only=True)

    @property
    def needs_pass_rates(self) -> bool:
        """Whether it cannot do without a table of pass rates."""
        return bool(self.estimator) and registry.pass_rates_use(self.estimator) == "needed"


@dataclass(frozen=True)
class _Entry:
    """One line of the list below."""

    name: str
    estimator: str
    label: str
    options: dict[str, Any] = field(default_factory=dict)
    rollouts: int = 1
    variance: Callable[[int], float] | None = None


def _mean_of(rollouts: int) -> float:
    return 1.0 / rollouts


def _mean_of_others(rollouts: int) -> float:
    return 1.0 / (rollouts - 1)


GROUP = 4  # rollouts for estimators of groups whose error does not scale with the group
# A table that does not know every prompt must not end the comparison.
_PRIOR = {"missing": "prior"}

# In the order in which tables show them. What is registered and not here comes last, with its
# defaults. Group sizes of 8 are GRPO's usual ones; 16 and 24 are what one rollout competes with.
_KNOWN: tuple[_Entry, ...] = (
    _Entry("zero", "zero", "REINFORCE, zero"),
    _Entry("batch-mean", "batch-mean", "REINFORCE++, batch mean"),
    _Entry("reinforce-plus-plus", "reinforce-plus-plus", "REINFORCE++, by tokens"),
    *(
        _Entry(
            f"group-mean-{size}",
            "group-mean",
            f"GRPO, group mean ({size})",
            {},
            size,
            _mean_of,
        )
        for size in (4, 8, 16, 24)
    ),
    _Entry(
        "leave-one-out-8",
        "leave-one-out",
        "RLOO, leave-one-out (8)",
        {},
        8,
        _mean_of_others,
    ),
    _Entry("james-stein", "james-stein", f"James-Stein ({GROUP})", {}, GROUP),
    _Entry("ebpo", "ebpo", f"EBPO ({GROUP})", {}, GROUP),
    _Entry("krpo", "krpo", f"KRPO ({GROUP})", {}, GROUP),
    _Entry("opo", "opo", f"OPO ({GROUP})", {}, GROUP),
    _Entry("remax", "remax", "ReMax"),
    _Entry("critic", "critic", "critic, GAE"),
    _Entry("pvpo", "pvpo", "PVPO, reference mean", _PRIOR),
    _Entry("a-star-po", "a-star-po", "A*-PO", _PRIOR),
    _Entry("krpo-tracking", "krpo-tracking", "KRPO over steps"),
    _Entry("kae", "kae", "KAE"),
    _Entry("spo", "spo", "SPO"),
    _Entry("spo-plus-plus", "spo-plus-plus", "SPO++"),
    # As published where a batch holds every prompt; by versions it forgets between two epochs.
    _Entry("spo-plus-plus-visits", "spo-plus-plus", "SPO++ by visits", {"clock": "visits"}),
    _Entry(
        "basis-paper-literal",
        "basis",
        "BASIS, paper-literal",
        {"preset": "paper-literal"} | _PRIOR,
    ),
    _Entry("basis-paper", "basis", "BASIS, paper", {"preset": "paper"} | _PRIOR),
    _Entry(
        "basis-paper-smoothed",
        "basis",
        "BASIS, paper, smoothed",
        {"preset": "paper", "smoothing": "jeffreys"} | _PRIOR,
    ),
    _Entry(
        "basis-initial",
        "basis",
        "BASIS, initial, smoothed",
        {"preset": "paper", "variant": "initial", "smoothing": "jeffreys"} | _PRIOR,
    ),
    _Entry("basis-robust", "basis", "BASIS, robust", {"preset": "robust"} | _PRIOR),
    _Entry("basis-online", "basis-online", "BASIS, online"),
)


# With real rewards there is no active set, so that it is "basis-paper".
_FOR_ZERO_ONE = ("basis-paper-literal",)


def contenders(
    names: Sequence[str] | None = None, *, tuned: bool = False, continuous: bool = False
) -> list[Contender]:
    """Estimators of the registry with their best published settings.

    Parameters
    ----------
    names : sequence of str, optional
        Of contenders ("basis-robust") or estimators ("basis": all of its contenders); all by
        default.
    tuned : bool
        Add further settings of each estimator, from which a replay picks the best on its record.
    continuous : bool
        For rewards other than 0 and 1: leaves out settings that differ for 0 and 1 alone.

    Returns
    -------
    list of Contender

    Raises
    ------
    ConfigError
        If a name is unknown.
    """
    found = [_with(entry, dict(entry.options)) for entry in _entries()]
    if continuous and names is None:
        found = [each for each in found if each.name not in _FOR_ZERO_ONE]
    if names is not None:
        found = _named(found, names)
    if tuned:
        found += [more for base in _one_each(found) for more in _settings(base)]
    return found


def _entries() -> list[_Entry]:
    registered = registry.names()
    known = [entry for entry in _KNOWN if entry.estimator in registered]
    covered = {entry.estimator for entry in known}
    return known + [_unlisted(name) for name in registered if name not in covered]


def _unlisted(name: str) -> _Entry:
    """Entry of an estimator that another package registered."""
    if registry.min_rollouts(name) > 1:
        return _Entry(name, name, f"{name} ({GROUP})", rollouts=GROUP)
    return _Entry(name, name, name)


def _with(entry: _Entry | Contender, options: dict[str, Any], **changes: Any) -> Contender:
    def make(table: PassRates | None) -> Estimator:
        return registry.create(entry.estimator, table, **options)

    told: dict[str, Any] = {
        "name": entry.name,
        "label": entry.label,
        "rollouts": entry.rollouts,
        "estimator": entry.estimator,
        "options": options,
        "needs": frozenset(registry.needed_columns(entry.estimator)),
        "variance": entry.variance,
    }
    return Contender(make=make, **(told | changes))


def _named(found: list[Contender], names: Sequence[str]) -> list[Contender]:
    chosen: list[Contender] = []
    for name in names:
        some = [each for each in found if name in (each.name, each.estimator)]
        if not some:
            known = [each.name for each in found]
            raise ConfigError(f"no contender is named {name!r}{registry.nearest_name(name, known)}")
        exact = [each for each in some if each.name == name]
        chosen += [each for each in exact or some if each not in chosen]
    return chosen


def _one_each(found: list[Contender]) -> list[Contender]:
    """One contender of each estimator, whose settings are varied: its namesake, or the last."""
    namesakes = {each.estimator: each for each in found if each.name == each.estimator}
    return list(({each.estimator: each for each in found} | namesakes).values())


def _settings(base: Contender) -> list[Contender]:
    """Further settings of an estimator, to be chosen from on a record."""
    try:
        from basis_rl.lab.tuning import settings_to_try
    except ImportError:
        return []
    found = []
    for options in settings_to_try(base.estimator):
        text = ", ".join(f"{name}={_shown(value)}" for name, value in options.items())
        found.append(
            _with(
                base,
                {**base.options, **options},
                name=f"{base.name}:{text.replace(' ', '')}",
                label=f"{base.label}, {text}",
                tuned=True,
            )
        )
    return found


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
