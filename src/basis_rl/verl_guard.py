"""Stops a job of verl that names basis-rl and is set up wrongly, before Ray starts.

verl imports this module in each of its processes (entry-point group ``verl.plugins``) and looks at
no error of it. Nothing is activated: `basis_rl.verl` does that, where the trainer runs. Only verl's
experimental trainers get their hooks from here, see `hook_early`.
"""

from __future__ import annotations

import atexit
import functools
import sys
from collections.abc import Callable
from typing import Any

from basis_rl.after_import import after_import

# verl calls `need_critic` of this module with the configuration: first of all in the command, and
# later in the trainer.
MODULE = "verl.trainer.ppo.utils"
# Commands with trainers of their own call `run_ppo` of this one, which starts Ray.
COMMAND = "verl.trainer.main_ppo"
SEPARATE = "verl.experimental.separation.ray_trainer"


def guard(module: Any) -> None:
    """Let what is called with the configuration check that of a run that uses basis-rl, once."""
    for name in ("need_critic", "run_ppo"):
        called = getattr(module, name, None)
        if called is not None and not hasattr(called, "_basis_guard"):
            setattr(module, name, _guarded(called))


def _guarded(called: Callable[..., Any]) -> Callable[..., Any]:
    checked = False

    @functools.wraps(called)
    def guarded(config: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal checked
        if not checked:
            check(config)
            checked = True
        return called(config, *args, **kwargs)

    guarded._basis_guard = True  # type: ignore[attr-defined]
    return guarded


def check(config: Any) -> None:
    """Refuse wrong settings of a run that uses basis-rl; other runs are not looked at.

    Raises
    ------
    ConfigError
        Of one line, which is the last of the process's output.
    """
    from basis_rl.errors import BasisError

    try:
        _check(config)
    except BasisError as error:
        _say_last(error)
        raise


def _check(config: Any) -> None:
    from omegaconf import OmegaConf

    from basis_rl.verl.settings import check_settings, uses_basis

    if not OmegaConf.is_config(config):
        return
    given = OmegaConf.to_container(config)  # as it is: another program's may not resolve
    if not isinstance(given, dict) or not uses_basis(given):
        return
    _repeat_errors_of_workers()
    plain: dict[str, Any] = OmegaConf.to_container(config, resolve=True)
    check_settings(plain)


def _repeat_errors_of_workers() -> None:
    """Let the command end with the line that stopped its trainer, in a process of Ray's."""
    import ray

    from basis_rl.errors import BasisError

    get = ray.get
    if ray.is_initialized() or hasattr(get, "_basis_guard"):
        return

    @functools.wraps(get)
    def told(*args: Any, **kwargs: Any) -> Any:
        try:
            return get(*args, **kwargs)
        except BasisError as error:
            _say_last(error)
            raise

    told._basis_guard = True  # type: ignore[attr-defined]
    ray.get = told


def _say_last(error: Exception) -> None:
    """Print an error's line after what hydra prints of the exception."""
    # Ray's exception is of the error's class too, and its text is a whole traceback.
    line = f"basis-rl: {getattr(error, 'cause', error)}"
    atexit.register(print, line, file=sys.stderr, flush=True)


def hook_early(module: Any) -> None:
    """Put the hooks into verl's trainers with workers apart.

    Ray copies the fully asynchronous one, methods and all, before its process knows of any
    ``external_lib``. In a run that does not use basis-rl the hooks do nothing.
    """
    from basis_rl.verl.plugin import wrap_separate

    wrap_separate(module)


after_import(MODULE, guard)
after_import(COMMAND, guard)
after_import(SEPARATE, hook_early)
