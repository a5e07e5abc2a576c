"""Weights by way of a file, from the actor to a rollout with devices of its own; for tests only.

verl's own ways (NCCL, NIXL, Mooncake, …) need an accelerator. Import with
``actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module=file_weights``.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

POLL = 0.02  # seconds
PATIENCE = 60.0


@CheckpointEngineRegistry.register("file")
class FileEngine(CheckpointEngine):
    """The actor's first worker writes, every rollout reads; a new file each time."""

    def __init__(self, bucket_size: int, **_: Any) -> None:
        self.file: Path | None = None
        self.writes = False

    def prepare(self) -> str:
        return tempfile.mkdtemp(prefix="weights")

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[str]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """The first worker's folder for all; the others' are removed, all are on one machine."""
        for folder in metadata[1:]:
            shutil.rmtree(folder)
        first = [True] + [False] * (actor_wg_world_size - 1)
        actor = {"folder": metadata[:1] * actor_wg_world_size, "writes": first}
        return actor, {"folder": metadata[:1] * rollout_world_size}

    def init_process_group(self, folder: str, writes: bool = False) -> None:
        self.file = Path(folder, "weights.pt")
        self.writes = writes

    async def send_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None
    ) -> None:
        state = {name: value.detach().cpu().clone() for name, value in weights}
        if self.writes:
            part = self.file.with_suffix(".part")
            torch.save(state, part)
            part.rename(self.file)

    async def receive_weights(
        self, global_steps: int | None = None
    ) -> AsyncIterator[tuple[str, torch.Tensor]]:
        for _ in range(int(PATIENCE / POLL)):
            if self.file.exists():
                break
            await asyncio.sleep(POLL)
        for item in torch.load(self.file).items():
            yield item

    def finalize(self) -> None:
        if self.writes:
            shutil.rmtree(self.file.parent)
