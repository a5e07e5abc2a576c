"""What a verl run asks of its estimator: `algorithm.adv_estimator` and `algorithm.basis`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import basis_rl.estimators  # noqa: F401  (registers the estimators)
from basis_rl.errors import ConfigError, nearest
from basis_rl.estimators import registry

Config = Mapping[str, Any]

# The estimators of verl 0.9 (`AdvantageEstimator` of its core_algos).
STOCK = (
    "gae",
    "gdpo",
    "gpg",
    "grpo",
    "grpo_passk",
    "grpo_vectorized",
    "opo",
    "optimal_token_baseline",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "remax",
    "rloo",
    "rloo_vectorized",
    "tir_optimal_token_baseline",
)
# Names of verl's that estimators of basis-rl have too, if verl gives them all that they need.
_SHARED = ("opo",)
MISMATCHES = ("model", "revision", "verifier", "temperature")
NORMALISATIONS = ("none", "batch", "tokens")
# Of verl's configuration composed without the key.
_EXAMPLE = "+algorithm.basis.pass_rates=pass_rates.parquet"


@dataclass(frozen=True)
class Options:
    """The keys of `algorithm.basis`.

    Attributes
    ----------
    estimator : str
        Registered name. Where one of verl's own estimators runs, its name, and nothing else is set.
    estimator_options : mapping
        Keywords of the estimator: every key that is none of the others.
    pass_rates : str, optional
        Path of the Parquet file with the pass rates.
    prompt_key_column : str, optional
        Column with the prompts' keys ("extra_info.index"); by default the key is a hash of the
        prompt's content.
    prompt_source_column : str, optional
        Column with the prompts' sources ("data_source").
    min_coverage : float, optional
        Share of the training prompts that the pass rates must know, 0 to 1. Default: 1, or 0.5
        with ``missing=prior`` and for estimators that can do without a table.
    allow_mismatch : tuple of str
        Accepted differences between what made the pass rates and this run: "model", "revision",
        "verifier", "temperature".
    normalize_advantages : {"none", "batch", "tokens"}
        See `basis_rl.normalize.normalize_advantages`.
    max_zero_batches : int
        Error after this many batches in a row without any advantage other than 0; 0 never stops.
    record_rewards : bool
        Write every rollout's reward to ``basis_rewards.jsonl`` in trainer.default_local_dir.
    """

    estimator: str
    estimator_options: Mapping[str, Any] = field(default_factory=dict)
    pass_rates: str | None = None
    prompt_key_column: str | None = None
    prompt_source_column: str | None = None
    min_coverage: float | None = None
    allow_mismatch: tuple[str, ...] = ()
    normalize_advantages: str = "none"
    max_zero_batches: int = 50
    record_rewards: bool = True


# Keys of `algorithm.basis` that are no keyword of an estimator.
OWN = tuple(each.name for each in fields(Options) if each.name != "estimator_options")


def section(config: Config, *path: str) -> Mapping[str, Any]:
    """Part of a configuration; empty where it has no such part.

    Raises
    ------
    ConfigError
        If a value stands where keys are expected.
    """
    for depth, name in enumerate(path, 1):
        inner = config.get(name)
        if not isinstance(inner, Mapping | None):
            where = ".".join(path[:depth])
            raise ConfigError(f"{where} is {inner!r}: it holds keys, such as {where}.name=value")
        config = inner or {}
    return config


def whole_number(config: Config, path: str, least: int | None = None) -> int | None:
    """A number of verl's configuration; None where there is none.

    Raises
    ------
    ConfigError
        If it is no whole number, or less than the least that is allowed.
    """
    *parents, name = path.split(".")
    value = section(config, *parents).get(name)
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and (least is None or value >= least):
        return value
    wanted = "" if least is None else f" of {least} or more"
    raise ConfigError(f"{path} is {value!r}: give a whole number{wanted}")


def is_ours(algorithm: Config) -> bool:
    """Whether basis-rl computes the advantages: a name that verl has too means verl's own."""
    name = algorithm.get("adv_estimator")
    return name not in STOCK and _is_known(str(name))


def _is_known(name: str) -> bool:
    """Whether an estimator is registered, or an installed package brings it."""
    try:
        registry.pass_rates_use(name)
    except ConfigError:
        return False
    return True


def read_options(algorithm: Config) -> Options:
    """Read `algorithm.adv_estimator` and `algorithm.basis`.

    Parameters
    ----------
    algorithm : mapping
        That part of verl's configuration, resolved.

    Raises
    ------
    ConfigError
        If the estimator or a key is unknown, a value is of the wrong kind, or ``basis`` is given
        for one of verl's own estimators.
    """
    given = algorithm.get("basis")
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"algorithm.basis is {given!r}: it holds keys, such as {_EXAMPLE}")
    name = _estimator(str(algorithm.get("adv_estimator")), given)
    if name in STOCK and given.get("estimator") is None:
        return Options(name)
    own = {key: given[key] for key in OWN if given.get(key) is not None and key != "estimator"}
    for key, value in own.items():
        fits, wanted = _RULES[key]
        if not fits(value):
            raise ConfigError(f"algorithm.basis.{key} is {value!r}: use {wanted}")
    own["allow_mismatch"] = _mismatches(own.get("allow_mismatch", ()))
    rest = {str(key): value for key, value in given.items() if key not in OWN}
    _check_keywords(name, rest)
    return Options(name, rest, **own)


def _estimator(name: str, given: Config) -> str:
    """Name of the estimator, of `adv_estimator` or of `basis.estimator`."""
    inner = given.get("estimator")
    if inner is not None:
        if name not in ("basis", inner):
            raise ConfigError(
                f"algorithm.adv_estimator={name} and algorithm.basis.estimator={inner} differ: "
                "give algorithm.adv_estimator=basis, or leave algorithm.basis.estimator out"
            )
        if name in STOCK:
            raise ConfigError(
                f"algorithm.adv_estimator={name} is verl's own: give algorithm.adv_estimator=basis "
                f"for basis-rl's, named by algorithm.basis.estimator={inner}"
            )
        if not _is_known(str(inner)):
            raise ConfigError(
                f"algorithm.basis.estimator is {inner!r}{registry.nearest_name(str(inner))}"
            )
        return str(inner)
    if name in STOCK and given:
        named = f" with +algorithm.basis.estimator={name}" if name in _SHARED else ""
        raise ConfigError(
            f"algorithm.basis is given (algorithm.basis.{next(iter(given))}), and "
            f"algorithm.adv_estimator={name} is verl's own estimator, which does not read it: give "
            f"algorithm.adv_estimator=basis{named}, or leave algorithm.basis out"
        )
    if name not in STOCK and not _is_known(name):
        raise ConfigError(f"algorithm.adv_estimator is {name!r}{_nearest(name, given)}")
    return name


def _nearest(name: str, given: Config) -> str:
    """What a name may mean: without `algorithm.basis`, verl's own estimator first."""
    if name.lower() in STOCK and not given:
        return f": did you mean {name.lower()!r}, verl's own?"
    return registry.nearest_name(name, [*registry.names(), *STOCK])


def _check_keywords(name: str, rest: Mapping[str, Any]) -> None:
    allowed = registry.keywords(name)
    for key in rest:
        if allowed is not None and key not in allowed:
            raise ConfigError(
                f"algorithm.basis.{key} is neither an option of estimator {name!r} nor of the run"
                f"{nearest(key, [*OWN, *allowed])}"
            )


def _mismatches(given: Any) -> tuple[str, ...]:
    listed = [given] if isinstance(given, str) else list(given)
    for name in listed:
        if name not in MISMATCHES:
            raise ConfigError(
                f"algorithm.basis.allow_mismatch names {name!r}"
                f"{nearest(str(name), list(MISMATCHES))}"
            )
    return tuple(listed)


def _text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _share(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and 0 <= value <= 1


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "pass_rates": (_text, "the path of a Parquet file"),
    "prompt_key_column": (_text, "the name of a column, such as extra_info.index"),
    "prompt_source_column": (_text, "the name of a column, such as data_source"),
    "min_coverage": (_share, "a share from 0 to 1"),
    "allow_mismatch": (
        lambda value: isinstance(value, str | list | tuple),
        f"a list of names out of {', '.join(MISMATCHES)}",
    ),
    "normalize_advantages": (lambda value: value in NORMALISATIONS, "none, batch or tokens"),
    "max_zero_batches": (_count, "a whole number of 0 or more"),
    "record_rewards": (lambda value: isinstance(value, bool), "true or false"),
}
