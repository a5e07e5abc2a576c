"""Time that basis-rl adds to a step of verl: its own, and that of fetching the prompts.

    python benchmarks/bench_verl_step.py [--rows 512] [--rounds 30] [--transfer]

The first figure is what a run logs as ``basis/time_ms``: naming the rows, the record of rewards,
the estimate, and the advantages of every token. ``--transfer`` starts a real TransferQueue (verl's
environment) and times the request for one column of the rows, ``basis/fetch_ms``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import torch

from basis_rl import PassRates
from basis_rl.passrates import prompt_key
from basis_rl.verl import v1
from basis_rl.verl.advantages import estimated
from basis_rl.verl.options import Options
from basis_rl.verl.run import BasisRun
from basis_rl.verl.setup import open_estimator

TEXT = "A train leaves the station at noon and travels {} miles at {} miles an hour. How long? "
COLUMNS = {"content hashes": None, "a key column": "prompt_id"}
PADDED = (2048, 4096)


class Rows:
    """Prompts of about 300 characters, and a batch of them as verl's trainer hands it on."""

    def __init__(self, rows: int) -> None:
        texts = [(TEXT.format(row, 7 * row) * 4)[:300] for row in range(rows)]
        self.prompts = [[{"role": "user", "content": text}] for text in texts]
        self.ids = [f"train-{row:06d}" for row in range(rows)]
        self.uids = [f"{row:08d}-0000-4000-8000-000000000000" for row in range(rows)]

    def batch(self) -> Any:
        """Keys and tags, as a KVBatchMeta has them."""
        return types.SimpleNamespace(
            keys=[f"{uid}_0_0" for uid in self.uids],
            tags=[{"response_len": 1000, "min_global_steps": 4}] * len(self.uids),
            partition_id="train",
        )


def trainer(rows: Rows, column: str | None, folder: Path) -> Any:
    """What the hooks read of verl's trainer."""
    keys = rows.ids if column else [prompt_key(prompt) for prompt in rows.prompts]
    table = PassRates.from_counts(keys, [row % 65 for row in range(len(keys))], 64)
    table.save(folder / "table.parquet")
    config: dict[str, Any] = {
        "algorithm": {"adv_estimator": "basis"},
        "actor_rollout_ref": {"model": {"path": "a/model"}, "rollout": {"n": 1}},
        "data": {"train_batch_size": len(keys)},
        "trainer": {"default_local_dir": str(folder)},
    }
    options = Options("basis", pass_rates=str(folder / "table.parquet"), prompt_key_column=column)
    run = BasisRun(config, options, *open_estimator(config, options))
    return types.SimpleNamespace(_basis_run=run, global_steps=5)


def own_times(rows: Rows, column: str | None, tokens: int, rounds: int) -> list[float]:
    """Milliseconds of the adapter in each of some steps."""
    columns = {"raw_prompt": rows.prompts, "prompt_id": rows.ids}
    queue: Any = types.ModuleType("transfer_queue")
    queue.kv_batch_get = lambda **asked: {name: columns[name] for name in asked["select_fields"]}
    rewards = torch.zeros(len(rows.ids), tokens)
    rewards[torch.arange(len(rows.ids)), 999] = (torch.arange(len(rows.ids)) % 3 == 0).float()
    mask = (torch.arange(tokens) < 1000).long().expand(len(rows.ids), -1).contiguous()

    def verl(batch: Any, metrics: dict[str, Any]) -> Any:
        estimated(rewards, mask, index=rows.uids)
        return batch

    times = []
    with tempfile.TemporaryDirectory() as folder:
        own = trainer(rows, column, Path(folder))
        sys.modules["transfer_queue"] = queue
        try:
            for _ in range(rounds):
                metrics: dict[str, Any] = {}
                v1.compute_advantage(own, verl, rows.batch(), metrics)
                times.append(metrics["basis/time_ms"])
        finally:
            del sys.modules["transfer_queue"]
    return times


def transfer_times(rows: Rows, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of TransferQueue's answer for each column, in a cluster of this machine."""
    import ray
    import transfer_queue
    from omegaconf import OmegaConf
    from tensordict import TensorDict
    from tensordict.tensorclass import NonTensorStack

    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False)
    units = {"backend": {"SimpleStorage": {"num_data_storage_units": 1}}}
    transfer_queue.init(OmegaConf.create(units))
    batch = rows.batch()
    fields = {"raw_prompt": NonTensorStack(*rows.prompts), "prompt_id": NonTensorStack(*rows.ids)}
    transfer_queue.kv_batch_put(
        keys=batch.keys,
        partition_id="train",
        fields=TensorDict(fields, batch_size=len(batch.keys)),
        tags=batch.tags,
    )
    named = dict(zip(rows.uids, batch.keys, strict=True))
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, column in COLUMNS.items():
            run = trainer(rows, column, Path(folder))._basis_run
            times[name] = [1e3 * v1.prompt_columns(run, "train", named)[1] for _ in range(rounds)]
    transfer_queue.close()
    ray.shutdown()
    return times


def show(name: str, times: list[float]) -> None:
    """One line with the median and the range, without the first time."""
    times = times[1:]
    print(
        f"{name:42s} {statistics.median(times):6.2f} ms "
        f"({min(times):.2f} to {max(times):.2f}, {len(times)} times)"
    )


def main() -> None:
    """Print a line for each way to find the keys and each number of tokens."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=512, help="rollouts a step")
    parser.add_argument("--rounds", type=int, default=30, help="steps that are timed")
    parser.add_argument("--transfer", action="store_true", help="time TransferQueue too")
    options = parser.parse_args()
    torch.set_num_threads(1)  # as Ray does in the trainer's process
    rows = Rows(options.rows)
    print(f"{options.rows} rows, {torch.get_num_threads()} threads")
    for name, column in COLUMNS.items():
        for tokens in PADDED:
            times = own_times(rows, column, tokens, options.rounds + 1)
            show(f"own time, {name}, {tokens} tokens", times)
    if options.transfer:
        for name, times in transfer_times(rows, options.rounds + 1).items():
            show(f"fetching, {name}", times)


if __name__ == "__main__":
    main()
