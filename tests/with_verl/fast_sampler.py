"""verl's replay buffers with a short poll and rows in the data's order; for tests only.

The stock buffer polls every 2 s, most of a tiny model's step, and hands out rows in the order in
which they were finished, so that no two jobs have the same mini-batches.
"""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

POLL = 0.02  # seconds


class InOrder:
    """Rows sorted by when their prompt was submitted, then by rollout."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(poll_interval=POLL, **arguments)

    def _materialize_batch(self, partition: str, prompts: list[str], rows: dict[str, Any]) -> Any:
        number = {uid: n for n, uid in enumerate(self.prompt_global_steps[partition])}

        def place(key: str) -> tuple[int, int, int]:
            uid, rollout, part = key.split("_")
            return number.get(uid, -1), int(rollout), int(part)

        in_order = {key: rows[key] for key in sorted(rows, key=place)}
        return super()._materialize_batch(partition, prompts, in_order)


class FastReplayBuffer(InOrder, ReplayBuffer):
    """For trainer_mode=sync."""


class FastReplayBufferAsync(InOrder, ReplayBufferAsync):
    """For the other trainer modes."""
