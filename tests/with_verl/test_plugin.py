"""The plug-in in verl's own modules, without a job: what is registered, wrapped and refused."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from basis_rl.verl import v1

PLATFORM = "import verl.plugin.platform.platform_manager as manager"
BASE, LEGACY = "verl.trainer.ppo.v1.trainer_base", "verl.trainer.ppo.ray_trainer"


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


def printed(code: str, **environment: str) -> str:
    done = python(code, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def test_loading_the_plug_in_early_fixes_no_hardware_and_imports_no_trainer() -> None:
    code = f"""
import sys, verl
{PLATFORM}
from verl.trainer.ppo import core_algos
print(manager._current_platform, "{LEGACY}" in sys.modules, "{BASE}" in sys.modules,
      "basis-online" in core_algos.ADV_ESTIMATOR_REGISTRY,
      core_algos.ADV_ESTIMATOR_REGISTRY["opo"].__module__)
"""
    out = printed(code, VERL_USE_EXTERNAL_MODULES="basis_rl.verl")
    assert out == "None False False True verl.trainer.ppo.core_algos"


@pytest.mark.parametrize("early", [True, False])
def test_the_trainers_are_wrapped_whenever_the_plug_in_is_imported(early: bool) -> None:
    code = f"""
import verl, {BASE} as base, {LEGACY} as legacy
import basis_rl.verl
from basis_rl.verl.plugin import activate
activate()
from verl.trainer.ppo.v1 import get_trainer_cls
names = ("sync", "colocate_async", "separate_async")
modes = [get_trainer_cls(name)._compute_advantage for name in names]
print(all(m.__wrapped__.__module__ == "{BASE}" and not hasattr(m.__wrapped__, "__wrapped__")
          for m in modes), hasattr(legacy.RayPPOTrainer._get_gen_batch, "__wrapped__"))
"""
    environment = {"VERL_USE_EXTERNAL_MODULES": "basis_rl.verl"} if early else {}
    assert printed(code, **environment) == "True True"


def test_every_hook_is_a_method_of_verls_trainers() -> None:
    code = f"""
import inspect, {BASE} as base, {LEGACY} as legacy
from basis_rl.verl import v1, legacy as ours
for trainer, hooks in ((base.PPOTrainer, v1.HOOKS), (legacy.RayPPOTrainer, ours.HOOKS)):
    for name in hooks:
        print(name, *inspect.signature(trainer.__dict__[name]).parameters)
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert "_compute_advantage self batch metrics" in done.stdout


def test_the_guard_is_active_without_the_plug_in_and_stops_wrong_settings() -> None:
    code = """
import sys, verl
from omegaconf import OmegaConf
assert "basis_rl.verl.plugin" not in sys.modules
import verl.trainer.ppo.utils as utils
config = {"algorithm": {"adv_estimator": %r}, "critic": {"enable": False},
          "actor_rollout_ref": {"model": {"external_lib": None}, "rollout": {"n": 1}},
          "data": {"train_batch_size": 8}, "trainer": {"use_v1": True}}
print(utils.need_critic(OmegaConf.create(config)))
"""
    assert printed(code % "grpo") == "False"
    wrong = python(code % "basis")
    assert wrong.returncode != 0
    last = wrong.stderr.strip().splitlines()[-1]
    assert last.startswith("basis-rl: ")
    assert "external_lib=basis_rl.verl" in last


def test_the_guard_lets_other_programs_configurations_be() -> None:
    code = """
import sys, verl
from omegaconf import OmegaConf
import verl.trainer.ppo.utils as utils
made = {"algorithm": {"adv_estimator": "grpo"}, "critic": {"enable": True}, "model": "${not.there}"}
print(utils.need_critic(OmegaConf.create(made)), "ray" in sys.modules and __import__("ray").get)
"""
    shown = printed(code)
    assert shown.startswith("True")
    assert "told" not in shown


def test_an_error_of_a_worker_ends_the_command_with_one_line() -> None:
    code = """
import ray
from ray.exceptions import RayTaskError
from basis_rl import verl_guard
from basis_rl.errors import ConfigError

def fails(*refs):
    cause = ConfigError("one line")
    raise RayTaskError("run", "Traceback of many lines", cause).as_instanceof_cause()

ray.get = fails
verl_guard._repeat_errors_of_workers()
ray.get(None)
"""
    done = python(code)
    assert done.returncode != 0
    assert done.stderr.strip().splitlines()[-1] == "basis-rl: one line"


def test_rows_without_a_verdict_leave_the_loss_in_the_queue(monkeypatch: Any) -> None:
    put: dict[str, Any] = {}
    masks = {"a_0_0": torch.ones(3, dtype=torch.long), "c_0_0": torch.ones(5, dtype=torch.long)}

    def get(keys: list[str], partition_id: str, select_fields: list[str]) -> TensorDict:
        nested = torch.nested.as_nested_tensor([masks[k] for k in keys], layout=torch.jagged)
        return TensorDict({"response_mask": nested}, batch_size=len(keys))

    queue = types.SimpleNamespace(kv_batch_get=get, kv_batch_put=lambda **given: put.update(given))
    monkeypatch.setitem(sys.modules, "transfer_queue", queue)
    keys = ["a_0_0", "b_0_0", "c_0_0"]
    batch = types.SimpleNamespace(keys=keys, tags=[{}, {}, {}], partition_id="train")
    v1._leave_out(batch, ["a_0_0", "c_0_0"])
    assert put["keys"] == ["a_0_0", "c_0_0"]
    for name in ("response_mask", "loss_mask"):
        assert [row.tolist() for row in put["fields"][name].unbind()] == [[0] * 3, [0] * 5]
    assert batch.tags == [{"is_padding": True}, {}, {"is_padding": True}]
