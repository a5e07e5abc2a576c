"""A small run of `basis-rl train`: tiny model, a few prompts, pass rates, a configuration."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from basis_rl import PassRates
from basis_rl.passrates import Provenance, prompt_key

EXAMPLES = Path(__file__).parents[1] / "examples"
QUESTIONS = [f"{a} + {b}=" for a in range(8) for b in range(4)]


def example_module(name: str) -> ModuleType:
    """Import a script of examples/."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_data(folder: Path) -> dict[str, Any]:
    """Write prompts and pass rates; returns a configuration that uses them."""
    rows = [
        {"prompt": q, "answer": str(eval(q[:-1])), "task": "sum", "id": i, "nothing": None}
        for i, q in enumerate(QUESTIONS)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    evaluation = [{"prompt": f"{a} + 9=", "answer": str(a + 9), "task": "sum"} for a in range(4)]
    (folder / "eval.jsonl").write_text("".join(json.dumps(row) + "\n" for row in evaluation))
    table = PassRates.from_counts(
        [prompt_key(q) for q in QUESTIONS],
        [i % 9 for i in range(len(QUESTIONS))],
        8,
        provenance=Provenance(model=str(folder / "model"), verifier="exact"),
    )
    table.save(folder / "rates.parquet")
    return {
        "model": {"name": str(folder / "model")},
        "data": {"train": str(folder / "train.jsonl")},
        "reward": {"functions": ["exact"]},
        "pass_rates": str(folder / "rates.parquet"),
        "estimator": {"name": "basis"},
        "trl": {
            "max_steps": 4,
            "per_device_train_batch_size": 16,
            "max_completion_length": 3,
            "learning_rate": 1e-3,
            "logging_steps": 1,
            "save_steps": 2,
        },
        "output_dir": str(folder / "out"),
    }


def write_config(folder: Path, values: dict[str, Any], name: str = "config.yaml") -> str:
    """Write a configuration; returns its path."""
    path = folder / name
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return str(path)
