"""Trains three steps and writes each process's advantages; started by test_trl_processes.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tiny_model import sums, tiny_config, tiny_trainer

CASES: dict[str, dict[str, Any]] = {
    "robust": {"estimator_options": {"max_unverified": 0.5}, "prompt_source_column": "task"},
    "previous-batch": {
        "estimator_options": {
            "preset": "paper", "calibration": "previous-batch", "max_unverified": 0.5,
        }
    },
    "groups": {"num_generations": 2, "estimator_options": {"max_unverified": 0.5}},
}  # fmt: skip
ROWS = 8  # rollouts of a generation batch, over all processes


def in_two_processes(script: Path, folder: Path, *, timeout: float) -> list[Any]:
    """What a script wrote as rank0.json and rank1.json into the folder that it is given."""
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port",
         "0", "--standalone", str(script), str(folder)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)]


def reward(id: list[str], **_: Any) -> list[float | None]:
    """By the prompt alone, so that it does not matter which process samples what."""
    numbers = [int(name.split("-")[1]) for name in id]
    return [None if n % 7 == 3 else float(n % 3 == 0) for n in numbers]


def run(folder: Path, world_size: int, **changes: Any) -> dict[str, Any]:
    """Keys, advantages and verdicts of this process's rows, step by step."""
    config = tiny_config(
        folder,
        per_device_train_batch_size=ROWS // world_size,
        max_steps=3,
        save_strategy="steps",
        save_steps=3,
        **changes,
    )
    data = sums(24, task=["a" if i % 2 else "b" for i in range(24)])
    trainer = tiny_trainer(config, data, reward)
    trainer.train()
    steps = [
        {
            "ids": [row["id"] for row in rows],
            "advantages": output["advantages"].tolist(),
            "kept": (output["completion_mask"].sum(1) > 0).tolist(),
        }
        for rows, output in trainer.generated
    ]
    metrics = [
        {name: value for name, value in entry.items() if name.startswith("basis/")}
        for entry in trainer.state.log_history
        if "loss" in entry
    ]
    table = list(trainer._logs["advantages"])
    state = trainer.estimator.state_dict()
    return {"steps": steps, "metrics": metrics, "state": state, "table": table}


def main() -> None:
    """Run all cases on this process."""
    from accelerate import PartialState

    folder = Path(sys.argv[1])
    state = PartialState(cpu=True, backend="gloo")
    results = {
        name: run(folder / name, state.num_processes, ddp_backend="gloo", **changes)
        for name, changes in CASES.items()
    }
    results |= {"world_size": state.num_processes, "folder": str(folder)}
    path = folder / f"rank{state.process_index}.json"
    path.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
