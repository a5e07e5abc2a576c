"""Puts the adapter into verl: the estimators into its registry, the hooks into its trainers."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable
from typing import Any

from basis_rl.after_import import after_import
from basis_rl.errors import ConfigError
from basis_rl.verl.settings import check_version

# Importing this one leaves verl's choice of hardware open, unlike the two trainers.
CORE = "verl.trainer.ppo.core_algos"
V1 = "verl.trainer.ppo.v1.trainer_base"
LEGACY = "verl.trainer.ppo.ray_trainer"
SEPARATE = "verl.experimental.separation.ray_trainer"

# Called with the trainer, its own method, and the method's arguments.
Hook = Callable[..., Any]


def activate() -> None:
    """Register the estimators with verl, and wrap its trainers now or when they are imported.

    A second call changes nothing. A trainer whose run does not use basis-rl goes on as it was.

    Raises
    ------
    ConfigError
        If verl is too old: verl 0.8 has no place from where the settings could be checked.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a newer version is told of where the run starts
        check_version()
    register_estimators()
    after_import(V1, _wrap_v1)
    after_import(LEGACY, _wrap_legacy)
    after_import(SEPARATE, wrap_separate)


def register_estimators() -> None:
    """Give verl every name of the registry of estimators that is not an estimator of its own."""
    core_algos = importlib.import_module(CORE)
    import basis_rl.estimators  # noqa: F401  (registers the estimators)
    from basis_rl.estimators import registry
    from basis_rl.verl.advantages import estimated

    for name in registry.names():
        if name not in core_algos.ADV_ESTIMATOR_REGISTRY:
            core_algos.register_adv_est(name)(estimated)


def _wrap_v1(module: Any) -> None:
    from basis_rl.verl.attach import plainly
    from basis_rl.verl.v1 import HOOKS

    with plainly():
        wrap(module.PPOTrainer, HOOKS)


def _wrap_legacy(module: Any) -> None:
    from basis_rl.verl.legacy import HOOKS

    trainer = getattr(module, "RayPPOTrainer", None)
    # verl means to remove it, and its V1 trainers import this module too.
    if trainer is not None and all(hasattr(trainer, name) for name in HOOKS):
        wrap(trainer, HOOKS)


def wrap_separate(module: Any) -> None:
    """Put the hooks into what the fully asynchronous and the one-step-off trainer are built on."""
    from basis_rl.verl.fully_async import HOOKS

    trainer = getattr(module, "SeparateRayPPOTrainer", None)
    # verl calls it experimental, and imports it for runs that do not use basis-rl.
    if trainer is not None and all(hasattr(trainer, name) for name in HOOKS):
        wrap(trainer, HOOKS)


def wrap(trainer: type, hooks: dict[str, Hook]) -> None:
    """Let a hook stand before each named method of a trainer, once.

    Raises
    ------
    ConfigError
        If the trainer has no such method: a version of verl that the adapter does not know.
    """
    if trainer.__dict__.get("_basis_wrapped"):
        return
    missing = [name for name in hooks if not hasattr(trainer, name)]
    if missing:
        raise ConfigError(
            f"this version of verl is not known to basis-rl: its {trainer.__name__} has no method "
            f"{missing[0]}: pip install 'verl>=0.9,<0.10'"
        )
    for name, hook in hooks.items():
        setattr(trainer, name, _hooked(getattr(trainer, name), hook))
    trainer._basis_wrapped = True  # type: ignore[attr-defined]


def _hooked(method: Callable[..., Any], hook: Hook) -> Callable[..., Any]:
    @functools.wraps(method)
    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        return hook(self, functools.partial(method, self), *args, **kwargs)

    return hooked
