"""The guard of verl's command: what it says last."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from basis_rl import verl_guard
from basis_rl.errors import BasisError, ConfigError


class RemoteError(ConfigError):
    """What Ray makes of an error in another process: its text is a traceback."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(f"Traceback\n  somewhere\n{cause}")
        self.cause = cause


@pytest.fixture
def last_words(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(
        verl_guard.atexit, "register", lambda function, line, **_: said.append(line)
    )
    return said


def ray_that(get: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, *, started: bool) -> Any:
    ray = types.SimpleNamespace(get=get, is_initialized=lambda: started)
    monkeypatch.setitem(sys.modules, "ray", ray)
    verl_guard._repeat_errors_of_workers()
    verl_guard._repeat_errors_of_workers()
    return ray


def fail() -> None:
    raise RemoteError(ConfigError("one line"))


def test_an_error_of_the_trainers_process_is_the_commands_last_line(
    monkeypatch: pytest.MonkeyPatch, last_words: list[str]
) -> None:
    ray = ray_that(fail, monkeypatch, started=False)
    with pytest.raises(BasisError):
        ray.get()
    assert last_words == ["basis-rl: one line"]


def test_other_errors_and_other_processes_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, last_words: list[str]
) -> None:
    ray = ray_that(lambda: {}["other"], monkeypatch, started=False)
    with pytest.raises(KeyError):
        ray.get()
    ray = ray_that(fail, monkeypatch, started=True)
    assert ray.get is fail
    assert not last_words


def test_a_module_is_guarded_once() -> None:
    module = types.SimpleNamespace(need_critic=lambda config: config)
    verl_guard.guard(module)
    guarded = module.need_critic
    verl_guard.guard(module)
    assert module.need_critic is guarded


def test_a_command_with_a_trainer_of_its_own_is_checked_before_ray_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    monkeypatch.setattr(verl_guard, "check", lambda config: done.append(f"checked {config}"))
    module = types.SimpleNamespace(run_ppo=lambda config, runner: done.append(f"ran {runner}"))
    verl_guard.guard(module)
    module.run_ppo("settings", "mine")
    assert done == ["checked settings", "ran mine"]
