"""verl's side of `cpu_server`: replicas of the rollout "cpu", and how weights reach them."""

from __future__ import annotations

import os
from typing import Any

import ray
from cpu_server import CPUServer
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutMode, RolloutReplica

# All workers of a job share one server, so that it can count how often a prompt is asked for.
SHARED = "cpu_server"


class CPUReplica(RolloutReplica):
    """One server an own pool of (unused) devices; one for all replicas beside the actor."""

    async def launch_servers(self) -> None:
        hybrid = self.rollout_mode is RolloutMode.HYBRID
        name = SHARED if hybrid else f"{SHARED}_{self.replica_rank}"
        actor = ray.remote(CPUServer).options(
            name=name, get_if_exists=True, num_cpus=0, max_concurrency=self.max_concurrency
        )
        server = actor.remote(
            self.model_config.path, self.config.response_length, self.config.get("seed", 0) or 0
        )
        self.servers = [server]
        self._server_handle = server
        self._server_address = f"{name}:0"


class WeightSender(BaseRollout):
    """Lives in verl's workers; the first of them sends all weights to the server through Ray."""

    def __init__(
        self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1, **_: Any
    ) -> None:
        super().__init__(config, model_config, device_mesh)
        self.server = SHARED if replica_rank < 0 else f"{SHARED}_{replica_rank}"
        self.replica_rank = replica_rank
        self.is_leader_rank = replica_rank >= 0 or int(os.environ.get("RANK", "0")) == 0
        self.sleep_level = 2

    async def resume(self, tags: list[str]) -> None:
        """Nothing was released."""

    async def release(self) -> None:
        """A processor's memory needs no care."""

    async def update_weights(self, weights: Any, global_steps: int | None = None, **_: Any) -> None:
        """Send a copy; every worker must walk through the weights, which are gathered meanwhile."""
        state = {}
        async for name, value in each(weights):
            state[name] = value.detach().float().cpu().clone()
        if self.is_leader_rank:
            await ray.get_actor(self.server).load_weights.remote(state, global_steps)


async def each(weights: Any) -> Any:
    """Items of a generator, or of an asynchronous one."""
    if hasattr(weights, "__aiter__"):
        async for item in weights:
            yield item
    else:
        for item in weights:
            yield item
