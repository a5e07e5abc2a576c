"""Writes down each batch as verl's actor is given it; imported by a job's processes.

The rows are read from TransferQueue just before the update, so that what is written is what the
loss sees.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import torch

from basis_rl.after_import import after_import

FIELDS = ["advantages", "returns", "response_mask", "loss_mask", "rm_scores", "raw_prompt"]
FILE = "batches.jsonl"


def rows_of(batch: Any) -> list[dict[str, Any]]:
    """One dict a row: its key, whether verl added it, and the fields as lists."""
    import transfer_queue

    data = transfer_queue.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=FIELDS
    )
    rows: list[dict[str, Any]] = [{"key": key} for key in batch.keys]
    for name in FIELDS:
        values = data[name]
        listed = values.unbind() if isinstance(values, torch.Tensor) else list(values)
        for row, value in zip(rows, listed, strict=True):
            row[name] = value.tolist() if isinstance(value, torch.Tensor) else value
    return rows


def read(folder: Path) -> list[dict[str, Any]]:
    """The batches of a job: step and rows."""
    lines = (folder / FILE).read_text().splitlines()
    return [json.loads(line) for line in lines]


def wrap(module: Any) -> None:
    update = module.PPOTrainer._update_actor

    @functools.wraps(update)
    def dumped(self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
        entry = {"step": self.global_steps, "rows": rows_of(batch)}
        path = Path(self.config.trainer.default_local_dir).parent / FILE
        with path.open("a") as stream:
            stream.write(json.dumps(entry) + "\n")
        return update(self, batch, metrics=metrics)

    module.PPOTrainer._update_actor = dumped


after_import("verl.trainer.ppo.v1.trainer_base", wrap)
