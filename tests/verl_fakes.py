"""verl's trainers as far as the hooks know them, and its TransferQueue as a dict."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from basis_rl.verl import legacy, v1
from basis_rl.verl.advantages import estimated
from basis_rl.verl.plugin import wrap

TOKENS = 6


class Queue(types.ModuleType):
    """Columns by row's key."""

    def __init__(self) -> None:
        super().__init__("transfer_queue")
        self.rows: dict[str, dict[str, Any]] = {}
        self.asked: list[list[str]] = []

    def kv_batch_get(
        self, keys: Sequence[str], partition_id: str, select_fields: Sequence[str]
    ) -> dict[str, list[Any]]:
        assert partition_id == "train"
        self.asked.append(list(keys))
        return {name: [self.rows[key][name] for key in keys] for name in select_fields}


def core_algos() -> Any:
    """verl's registry of estimators, which knows one."""
    module: Any = types.ModuleType("core_algos")
    registry: dict[str, Any] = {"opo": "verl's own"}
    module.ADV_ESTIMATOR_REGISTRY = registry
    module.register_adv_est = lambda name: lambda made: registry.setdefault(name, made)
    return module


@dataclass
class Batch:
    """verl's KVBatchMeta."""

    keys: list[str]
    tags: list[dict[str, Any]]
    partition_id: str = "train"


@dataclass
class Data:
    """verl's training data: a table, and items made of it."""

    rows: list[dict[str, Any]]
    wraps: bool = False
    prompt_key: str = "prompt"
    dataframe: Any = field(init=False)

    def __post_init__(self) -> None:
        self.dataframe = Table(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> dict[str, Any]:
        prompt = self.rows[row][self.prompt_key]
        if self.wraps:
            prompt = [{"role": "system", "content": "Think."}, *prompt]
        return {**self.rows[row], "raw_prompt": prompt}


class Table(list):  # type: ignore[type-arg]
    """A `datasets.Dataset`."""

    @property
    def column_names(self) -> list[str]:
        return list(self[0]) if self else []


def fresh_v1() -> Any:
    """A V1 trainer's class with the hooks; `log` says what was called."""

    class PPOTrainer:
        def __init__(self, config: Mapping[str, Any], data: Data) -> None:
            self.config, self._data = config, data
            self.global_steps = 0
            self.log: list[str] = []
            self.rewards: torch.Tensor | None = None
            self.mask: torch.Tensor | None = None
            self.result: torch.Tensor | None = None

        def _init_dataloader(self) -> None:
            self.train_dataset = self._data

        def _compute_advantage(self, batch: Batch, metrics: dict[str, Any]) -> Batch:
            uids = np.array([key.rsplit("_", 2)[0] for key in batch.keys], dtype=object)
            self.result, _ = estimated(
                token_level_rewards=self.rewards, response_mask=self.mask, config={}, index=uids
            )
            return batch

        def _save_checkpoint(self) -> None:
            folder = Path(self.config["trainer"]["default_local_dir"])
            there = [path.name for path in folder.glob("global_step_*/*")]
            self.log.append(f"latest written after {', '.join(there) or 'nothing'}")

        def _load_checkpoint(self) -> None:
            self.log.append("loaded")

    wrap(PPOTrainer, v1.HOOKS)
    return PPOTrainer


class LegacyBatch:
    """verl's DataProto."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.non_tensor_batch = columns
        self.meta_info: dict[str, Any] = {"metrics": {}}


def fresh_legacy(**methods: Any) -> Any:
    """The legacy trainer's class with the hooks."""

    class RayPPOTrainer:
        def __init__(self, config: Mapping[str, Any], data: Data) -> None:
            self.config = config
            self.global_steps = 3
            self._create_dataloader(data)

        def _create_dataloader(self, data: Data) -> None:
            self.train_dataset = data

        def _get_gen_batch(self, batch: LegacyBatch) -> LegacyBatch:
            batch.non_tensor_batch = {"uid": batch.non_tensor_batch["uid"]}
            return batch

        def _update_actor(self, batch: LegacyBatch) -> LegacyBatch:
            return LegacyBatch({})

        def _save_checkpoint(self) -> None: ...

        def _load_checkpoint(self) -> None: ...

    for name, method in methods.items():
        setattr(RayPPOTrainer, name, method)
    wrap(RayPPOTrainer, legacy.HOOKS)
    return RayPPOTrainer


def prompt(number: int) -> list[dict[str, str]]:
    """A chat of one message."""
    return [{"role": "user", "content": f"{number}+{number}="}]


def rows(count: int) -> list[dict[str, Any]]:
    """Training data with an id, a nested index and a source."""
    return [
        {
            "prompt": prompt(number),
            "prompt_id": f"id-{number}",
            "data_source": "even" if number % 2 == 0 else "odd",
            "reward_model": {"ground_truth": str(2 * number)},
            "extra_info": {"index": number},
            "own.name": f"own-{number}",
        }
        for number in range(count)
    ]


def token_rewards(rewards: Sequence[float]) -> torch.Tensor:
    """The reward of each row at its last token."""
    tokens = torch.zeros(len(rewards), TOKENS)
    tokens[:, -1] = torch.tensor(rewards)
    return tokens


def tag(*, padding: bool = False, version: int | None = 4, length: int = TOKENS) -> dict[str, Any]:
    """A row's tag."""
    plain = {"min_global_steps": version, "response_len": length}
    return {**plain, "is_padding": True} if padding else plain
