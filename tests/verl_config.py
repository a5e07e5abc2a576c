"""verl's configuration as far as the adapter reads it, as plain dicts, and files of its data."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from basis_rl.passrates import Provenance
from basis_rl.passrates.keys import prompt_key

DEFAULTS: dict[str, Any] = {
    "algorithm.adv_estimator": "basis",
    "algorithm.use_kl_in_reward": False,
    "algorithm.filter_groups.enable": False,
    "actor_rollout_ref.model.path": "org/model",
    "actor_rollout_ref.model.external_lib": "basis_rl.verl",
    "actor_rollout_ref.actor.ppo_mini_batch_size": 64,
    "actor_rollout_ref.rollout.n": 1,
    "actor_rollout_ref.rollout.name": "vllm",
    "actor_rollout_ref.rollout.temperature": 1.0,
    "actor_rollout_ref.rollout.top_p": 1,
    "actor_rollout_ref.rollout.top_k": -1,
    "actor_rollout_ref.rollout.response_length": 512,
    "data.train_files": "train.parquet",
    "data.prompt_key": "prompt",
    "data.train_batch_size": 512,
    "data.max_response_length": 512,
    "reward.custom_reward_function.path": None,
    "reward.custom_reward_function.name": "compute_score",
    "reward.reward_model.enable": False,
    "trainer.use_v1": True,
    "trainer.v1.trainer_mode": "sync",
    "trainer.v1.separate_async.parameter_sync_step": 4,
    "trainer.default_local_dir": None,
}


def verl_config(changes: Mapping[str, Any] | None = None, **basis: Any) -> dict[str, Any]:
    """A right configuration with changes ("data.train_batch_size": 4), and `algorithm.basis`."""
    config: dict[str, Any] = {}
    for path, value in {**DEFAULTS, **(changes or {})}.items():
        *parents, name = path.split(".")
        inner = config
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = value
    if basis:
        config["algorithm"]["basis"] = basis
    return config


# What made a table that fits the configuration.
MADE = Provenance(
    model="org/model",
    temperature=1.0,
    top_p=1.0,
    top_k=0,
    max_tokens=512,
    verifier="verl.utils.reward_score:default_compute_score",
)


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


ROWS: list[dict[str, Any]] = [
    {"prompt": user(text), "data_source": "toy", "extra_info": {"index": i, "id": f"p{i}"}}
    for i, text in enumerate(["1+1=", "2+2=", "é ≤ 3", "4+4="])
]
KEYS = [prompt_key(row["prompt"]) for row in ROWS]


def write(path: Path, rows: Sequence[dict[str, Any]] = ROWS) -> str:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(rows)), path, row_group_size=3)
    elif path.name.endswith(".json"):
        path.write_text(json.dumps(list(rows)))
    elif path.name.endswith(".gz"):
        path.write_bytes(gzip.compress("".join(json.dumps(r) + "\n" for r in rows).encode()))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)
