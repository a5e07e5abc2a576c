"""Estimators by name; other packages add theirs with `register`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from basis_rl.errors import ConfigError, nearest
from basis_rl.estimators.base import Estimator

if TYPE_CHECKING:
    from basis_rl.passrates import PassRates

# An installed package names here the module whose import calls `register`.
ENTRY_POINTS = "basis_rl.estimators"

# What papers and trainers call a method, by the estimators that it may mean here.
METHODS: dict[str, tuple[str, ...]] = {
    "a*-po": ("a-star-po",),
    "a*po": ("a-star-po",),
    "dr-grpo": ("group-mean",),
    "drgrpo": ("group-mean",),
    "gae": ("critic",),
    "grpo": ("group-mean",),
    "ppo": ("critic",),
    "reinforce": ("zero", "batch-mean"),
    "reinforce++": ("batch-mean", "reinforce-plus-plus"),
    "reinforce++-baseline": ("reinforce-plus-plus",),
    "rloo": ("leave-one-out",),
    "sao": ("critic",),
    "spo++": ("spo-plus-plus",),
}
_MEANING = {
    "batch-mean": "the mean of the batch",
    "reinforce-plus-plus": "by tokens and whitened, as it is trained",
    "zero": "no baseline",
}

PassRatesUse = Literal["none", "optional", "needed"]
Factory = Callable[..., Estimator]
_FACTORIES: dict[str, tuple[Factory, PassRatesUse]] = {}


def register(
    name: str, factory: Factory, *, pass_rates: PassRatesUse = "none", replace: bool = False
) -> None:
    """Make an estimator available to `create` under a name.

    Parameters
    ----------
    name : str
        Lower case, words joined by hyphens.
    factory : callable
        Called with the options as keywords; with the table of pass rates first unless
        ``pass_rates`` is "none".
    pass_rates : {"none", "optional", "needed"}
        Whether the estimator takes a table, and whether it can do without (it is then given None).
    replace : bool
        Allow a name that is taken.

    Raises
    ------
    ConfigError
        If the name is taken and ``replace`` is false.
    """
    if name in _FACTORIES and not replace:
        raise ConfigError(f"an estimator named {name!r} is registered already: pass replace=True")
    _FACTORIES[name] = (factory, pass_rates)


def pass_rates_use(name: str) -> PassRatesUse:
    """Whether a registered estimator takes a table of pass rates, and whether it must have it."""
    return _find(name)[1]


def min_rollouts(name: str) -> int:
    """Rollouts per prompt without which a registered estimator is no use."""
    return int(getattr(_find(name)[0], "min_rollouts", 1))


def needed_columns(name: str) -> tuple[str, ...]:
    """Optional columns of `RewardBatch` that a registered estimator cannot do without."""
    return tuple(getattr(_find(name)[0], "needed_columns", ()))


def keywords(name: str) -> list[str] | None:
    """Options of a registered estimator; None if it takes any."""
    parameters = inspect.signature(_find(name)[0]).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return None
    return [option for option in parameters if option not in ("self", "pass_rates")]


def names() -> list[str]:
    """Registered names, sorted."""
    return sorted(_FACTORIES)


def nearest_name(name: str, known: list[str] | None = None) -> str:
    """End of an error message: what an unknown estimator's name may mean, or all that are known.

    Parameters
    ----------
    name : str
        A method of a paper too: "grpo", "RLOO".
    known : list of str, optional
        By default `names()`.
    """
    meant = METHODS.get(name.lower().translate(str.maketrans("_. ", "---")), ())
    if not meant:
        return nearest(name, names() if known is None else known)
    if len(meant) == 1:
        return f": did you mean {meant[0]!r}?"
    return f": did you mean {' or '.join(f'{each!r} ({_MEANING[each]})' for each in meant)}?"


def create(name: str, pass_rates: PassRates | None = None, **options: Any) -> Estimator:
    """Make an estimator by its registered name.

    Parameters
    ----------
    name : str
        One of `names()`: "basis", "basis-online", "zero", "batch-mean", "group-mean", ….
    pass_rates : PassRates, optional
        Needed by "basis" and others; estimators that use none ignore it.
    **options
        Keywords of the estimator.

    Raises
    ------
    ConfigError
        If the name or an option is unknown, or the table is missing.
    """
    factory, use = _find(name)
    allowed = keywords(name)
    for option in options:
        if allowed is not None and option not in allowed:
            raise ConfigError(
                f"estimator {name!r} has no option {option!r}{nearest(option, allowed)}"
            )
    if use == "none":
        return factory(**options)
    if use == "needed" and pass_rates is None:
        raise ConfigError(
            f"estimator {name!r} needs pass rates: pass pass_rates=, or use 'basis-online', which "
            "can start without"
        )
    return factory(pass_rates, **options)


def _find(name: str) -> tuple[Factory, PassRatesUse]:
    if name not in _FACTORIES:
        _load_entry_point(name)
    if name not in _FACTORIES:
        raise ConfigError(f"no estimator is named {name!r}{nearest_name(name)}")
    return _FACTORIES[name]


def _load_entry_point(name: str) -> None:
    """Import the installed package that offers an estimator of this name and registers it."""
    import importlib.metadata  # slow to import, and seldom needed

    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS, name=name):
        entry.load()
