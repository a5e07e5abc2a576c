"""Lets the stock verl trainer run on a machine without accelerator; for tests only.

Every process of a job loads it: ``VERL_PLATFORM=cpu VERL_USE_EXTERNAL_MODULES=cpu_platform``. The
platform, the rollout and its weight transfer go through verl's registries. Two things have none and
are replaced: the engine's device key and the process group, which for verl is always a pair of back
ends.
"""

from __future__ import annotations

import os
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


def nothing(*_: Any, **__: Any) -> None:
    """Stands for a call that only an accelerator needs."""


def zero(*_: Any, **__: Any) -> int:
    """Stands for an accelerator's memory figure."""
    return 0


# What verl calls where it would call torch.cuda. Not available: its memory helpers then return.
CPU = types.SimpleNamespace(
    is_available=lambda: False,
    device_count=lambda: 1,
    current_device=lambda: "cpu",
    get_device_name=lambda *_: "cpu",
    set_device=nothing,
    empty_cache=nothing,
    synchronize=nothing,
    ipc_collect=nothing,
    reset_peak_memory_stats=nothing,
    set_per_process_memory_fraction=nothing,
    memory_allocated=zero,
    memory_reserved=zero,
    max_memory_allocated=zero,
    max_memory_reserved=zero,
    mem_get_info=lambda *_: (0, 0),
    manual_seed=torch.manual_seed,
    manual_seed_all=torch.manual_seed,
    get_rng_state=torch.get_rng_state,
    set_rng_state=torch.set_rng_state,
)


@PlatformRegistry.register(platform="cpu")
class CPUPlatform(PlatformBase):
    """The processor as verl's device; Ray's resource GPU is only a number there."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = CPU

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None

    set_device = synchronize = empty_cache = set_allocator_settings = nothing
    profiler_start = profiler_stop = nothing


def join_group(timeout_second: float | None = None, backend: str | None = None) -> None:
    """Join the workers' process group; "cpu:gloo,cpu:gloo", which verl builds, is an error."""
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group(
            backend="gloo",
            rank=int(os.environ.get("RANK", "0")),
            world_size=int(os.environ.get("WORLD_SIZE", "1")),
            init_method=os.environ.get("DIST_INIT_METHOD"),
        )


def replace_process_group() -> None:
    import verl.utils.distributed

    verl.utils.distributed.initialize_global_process_group_ray = join_group


def add_engine() -> None:
    """Serve FSDP's engine on the device "cpu" too; imported when an engine is first asked for."""
    from verl.workers.engine.base import EngineRegistry

    stock = EngineRegistry.get_engine_cls.__func__

    def get_engine_cls(cls: Any, model_type: str, backend: str) -> Any:
        from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

        backends = cls._engines.setdefault("language_model", {})
        backends.setdefault(backend, {}).setdefault("cpu", FSDPEngineWithLMHead)
        return stock(cls, model_type, backend)

    EngineRegistry.get_engine_cls = classmethod(get_engine_cls)


def add_rollout() -> None:
    """Register the rollout "cpu" under its names; imported when a rollout is first asked for."""
    from verl.workers.rollout.base import _ROLLOUT_REGISTRY
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    def load() -> Any:
        from cpu_rollout import CPUReplica

        return CPUReplica

    _ROLLOUT_REGISTRY[("cpu", "async")] = "cpu_rollout.WeightSender"
    RolloutReplicaRegistry.register("cpu", load)


replace_process_group()
add_engine()
add_rollout()
