"""Checks of a verl run's settings that read no file."""

from __future__ import annotations

import importlib.metadata
import re
import warnings

from basis_rl.adapters.checks import check_columns, check_rollouts
from basis_rl.errors import ConfigError
from basis_rl.estimators.base import Estimator
from basis_rl.verl.binary import check_rewards
from basis_rl.verl.option_names import VERL
from basis_rl.verl.options import STOCK, Config, Options, is_ours, read_options, section
from basis_rl.verl.sizes import parts, rollouts, rows_seen, trainer_mode
from basis_rl.verl.stand_in import stand_ins, takes_any_reward

__all__ = [
    "check_settings",
    "check_version",
    "external_libs",
    "parts",
    "rollouts",
    "rows_seen",
    "section",
    "trainer_mode",
    "uses_basis",
    "verl_version",
]
MODULE = "basis_rl.verl"
OLDEST, TOO_NEW = (0, 9), (0, 10)
FEW_ROWS = 8  # below it, the rest of a batch tells a baseline next to nothing

# What verl's own estimators do with one rollout a prompt (core_algos of verl 0.9).
_ALONE = {
    "gpg": "has baseline 0 then",
    "grpo": "has baseline 0 then",
    "grpo_passk": "stops at the first batch then",
    "grpo_vectorized": "has baseline 0 then",
    "opo": "has baseline 0 then",
    "optimal_token_baseline": "has baseline 0 then",
    "rloo": "has baseline 0 then",
    "rloo_vectorized": "gives every rollout advantage 0 then",
    "tir_optimal_token_baseline": "has baseline 0 then",
}
# With one rollout a prompt these only whiten the batch, as reinforce_plus_plus does.
_ONLY_WHITENED = ("gdpo", "reinforce_plus_plus_baseline")
# verl's own, of methods that need what only they have.
_STOCK_FOR = {"critic": "gae", "remax": "remax"}


def uses_basis(config: Config) -> bool:
    """Whether a run is meant to use basis-rl, whether it is set up rightly or not.

    Parameters
    ----------
    config : mapping
        verl's configuration, resolved.
    """
    algorithm = config.get("algorithm") or {}
    given = algorithm.get("basis") is not None
    return given or is_ours(algorithm) or MODULE in external_libs(config)


def external_libs(config: Config) -> list[str]:
    """Modules that verl imports where its trainer runs."""
    given = section(config, "actor_rollout_ref", "model").get("external_lib")
    if given is None:
        return []
    return [given] if isinstance(given, str) else [str(name) for name in given]


def check_settings(config: Config) -> Options:
    """Check everything that can be known of a run without reading a file.

    Parameters
    ----------
    config : mapping
        verl's configuration, resolved.

    Returns
    -------
    Options
        With the name of the estimator alone where it is not one of basis-rl's.

    Raises
    ------
    ConfigError
        One line that names what to change.

    Warns
    -----
    UserWarning
        Settings that weaken an estimate, or have no effect.
    """
    check_version()
    algorithm = section(config, "algorithm")
    name = str(algorithm.get("adv_estimator"))
    foreign = algorithm.get("basis") is None and name not in STOCK and not is_ours(algorithm)
    if foreign and set(external_libs(config)) - {MODULE}:
        return Options(name)  # another module may register it
    options = read_options(algorithm)
    if not is_ours(algorithm):
        _check_stock(config, options.estimator)
        return options
    _check_active(config, options.estimator)
    _check_estimator(config, options)
    _check_rows(config, options.estimator)
    _check_filter(config)
    return options


def check_version() -> None:
    """Refuse a version of verl that the adapter does not know; nothing where verl is missing.

    Raises
    ------
    ConfigError
        If it is too old.

    Warns
    -----
    UserWarning
        If it is newer.
    """
    version = verl_version()
    found = re.match(r"(\d+)\.(\d+)", version or "")
    if found is None:
        return
    release = (int(found[1]), int(found[2]))
    if release < OLDEST:
        raise ConfigError(
            f"verl {version} is installed, and basis-rl works with verl 0.9: pip install "
            "'verl>=0.9,<0.10'"
        )
    if release >= TOO_NEW:
        warnings.warn(
            f"verl {version} is newer than what basis-rl was tested with, verl 0.9: look at the "
            "basis/* metrics of the first steps, or pip install 'verl>=0.9,<0.10'",
            UserWarning,
            stacklevel=3,
        )


def verl_version() -> str | None:
    """Version of the installed verl; None where it is not installed as a package."""
    try:
        return importlib.metadata.version("verl")
    except importlib.metadata.PackageNotFoundError:
        return None


def _check_stock(config: Config, name: str) -> None:
    if rollouts(config) > 1:
        return
    remedy = f"give algorithm.adv_estimator=basis, or {VERL.rollouts} of 2 or more (usually 8)"
    if name in _ALONE:
        raise ConfigError(
            f"algorithm.adv_estimator={name} compares the rollouts of one prompt, {VERL.rollouts} "
            f"is {rollouts(config)}, and verl's {name} {_ALONE[name]}: {remedy}"
        )
    if name in _ONLY_WHITENED:
        warnings.warn(
            f"algorithm.adv_estimator={name} compares the rollouts of one prompt, and "
            f"{VERL.rollouts} is {rollouts(config)}: only the batch is whitened, as "
            f"reinforce_plus_plus does; {remedy}",
            UserWarning,
            stacklevel=4,
        )


def _check_active(config: Config, name: str) -> None:
    libs = external_libs(config)
    if MODULE in libs:
        return
    both = f"'[{','.join([*libs, MODULE])}]'" if libs else MODULE
    raise ConfigError(
        f"estimator {name!r} is basis-rl's, and nothing imports it where verl's trainer runs (a "
        "reward function or VERL_USE_EXTERNAL_MODULES do so elsewhere): add "
        f"actor_rollout_ref.model.external_lib={both}"
    )


def _check_estimator(config: Config, options: Options) -> None:
    name = options.estimator
    tries = stand_ins(name, options.estimator_options, with_table=options.pass_rates is not None)
    for estimator in tries[:1]:
        if name in _STOCK_FOR and estimator.needed_columns:
            raise ConfigError(
                f"estimator {name!r} needs {estimator.needed_columns[0]}, which verl gives its own "
                f"estimator alone: give algorithm.adv_estimator={_STOCK_FOR[name]} without "
                "algorithm.basis"
            )
        check_columns(name, estimator.needed_columns, VERL)
        check_rollouts(name, estimator.min_rollouts, rollouts(config), VERL)
        _check_scaled_once(options, estimator)
    if tries and not any(takes_any_reward(estimator) for estimator in tries):
        check_rewards(config, name)


def _check_scaled_once(options: Options, estimator: Estimator) -> None:
    if getattr(estimator, "std", False) and options.normalize_advantages != "none":
        raise ConfigError(
            f"estimator {options.estimator!r} divides its advantages by a deviation, and "
            f"algorithm.basis.normalize_advantages={options.normalize_advantages} would again: "
            "leave it out, or add +algorithm.basis.std=false"
        )


def _check_rows(config: Config, estimator: str) -> None:
    rows, mode = rows_seen(config), trainer_mode(config)
    if mode in ("separate_async", "fully_async"):
        why = (
            f"trainer.v1.separate_async.parameter_sync_step={parts(config)}"
            if mode == "separate_async"
            else "the fully asynchronous trainer"
        )
        warnings.warn(
            f"{why}: an estimate of {estimator!r} sees {rows} rollouts at a time, not the whole "
            "batch (metric basis/rows)",
            UserWarning,
            stacklevel=4,
        )
    if rows < FEW_ROWS:
        warnings.warn(
            f"an estimate of {estimator!r} sees {rows} rollouts, and learns next to nothing from "
            "the rest of such a batch: raise data.train_batch_size",
            UserWarning,
            stacklevel=4,
        )


def _check_filter(config: Config) -> None:
    if not section(config, "algorithm", "filter_groups").get("enable"):
        return
    if rollouts(config) == 1:
        text = (
            f"algorithm.filter_groups.enable=true drops no prompt with {VERL.rollouts}=1: leave it "
            "out"
        )
    else:
        text = (
            "algorithm.filter_groups.enable=true drops prompts whose rollouts agree before an "
            "estimator sees them, so that baselines are drawn to the middle: leave it out, or use "
            "a group's estimator, such as group-mean"
        )
    warnings.warn(text, UserWarning, stacklevel=4)
