"""Kills a whole job at a point of a step, as a scheduler does; imported by a job's processes.

The environment variable `WHEN` names the point: "update 4" is after the estimate of step 4, "save
4" after the estimator's state of that step was written and before verl's own files are.
"""

from __future__ import annotations

import functools
import os
import signal
from typing import Any, NoReturn

from jobs import session

from basis_rl.after_import import after_import

WHEN = "SUDDEN_END"


def end(*_: Any, **__: Any) -> NoReturn:
    others = [process.pid for process in session(os.getsid(0)) if process.pid != os.getpid()]
    for process in [*others, os.getpid()]:
        os.kill(process, signal.SIGKILL)
    raise AssertionError("still alive")


def wrap(module: Any) -> None:
    point, _, step = os.environ.get(WHEN, "").partition(" ")
    if not point:
        return
    update, save = module.PPOTrainer._update_actor, module.PPOTrainer._save_checkpoint

    @functools.wraps(update)
    def updating(self: Any, *args: Any, **kwargs: Any) -> Any:
        if point == "update" and self.global_steps == int(step):
            end()
        return update(self, *args, **kwargs)

    @functools.wraps(save)
    def saving(self: Any) -> Any:
        if point == "save" and self.global_steps == int(step):
            self.actor_rollout_wg.save_checkpoint = end
        return save(self)

    module.PPOTrainer._update_actor, module.PPOTrainer._save_checkpoint = updating, saving


after_import("verl.trainer.ppo.v1.trainer_base", wrap)
