"""The demo's results: `report.json`, the figures as PNG files, and one HTML file."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from basis_rl.demo import figures
from basis_rl.demo.evaluate import Comparison
from basis_rl.demo.page import page
from basis_rl.demo.policy import Policy
from basis_rl.demo.settings import DemoSettings
from basis_rl.demo.tasks import TASKS
from basis_rl.demo.training import Method
from basis_rl.files import write_atomically
from basis_rl.passrates import PassRates
from basis_rl.prompts import Prompt


def collect(
    settings: DemoSettings,
    policy: Policy,
    prompts: Mapping[str, Sequence[Prompt]],
    table: PassRates,
    runs: Mapping[str, dict[str, Any]],
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """All numbers of a report, as JSON types.

    Parameters
    ----------
    settings : DemoSettings
    policy : Policy
    prompts : mapping
        "train" and "test".
    table : PassRates
    runs : mapping
        `run_entry` of each method.
    seconds : mapping
        Seconds of each stage.
    """
    rates = dict(zip(table.keys, table.means.tolist(), strict=True))
    return {
        "model": {"name": policy.name},
        "settings": settings.to_dict(),
        "tasks": {name: _task(name, prompts, rates) for name in settings.tasks},
        "pass_rates": {
            "prompts": len(table),
            "rollouts": int(table.n.sum()),
            "rollouts_per_prompt": settings.reference_rollouts,
            "mean": sum(rates.values()) / len(rates),
            "always_or_never_right": sum(rate in (0.0, 1.0) for rate in rates.values())
            / len(rates),
        },
        "runs": dict(runs),
        "seconds": dict(seconds),
        "machine": {
            "processors": os.cpu_count(),
            "python": platform.python_version(),
            **{name: version(name) for name in ("basis-rl", "torch", "transformers", "trl")},
        },
    }


def run_entry(
    method: Method, history: list[dict[str, float]], evaluation: Mapping[str, Comparison]
) -> dict[str, Any]:
    """One method's part of a report."""
    return {
        "label": method.label,
        "estimator": method.estimator,
        "rollouts_per_prompt": method.rollouts_per_prompt,
        "history": history,
        "evaluation": {task: result.to_dict() for task, result in evaluation.items()},
    }


def _task(
    name: str, prompts: Mapping[str, Sequence[Prompt]], rates: Mapping[str, float]
) -> dict[str, Any]:
    train = [prompt for prompt in prompts["train"] if prompt.source == name]
    test = [prompt for prompt in prompts["test"] if prompt.source == name]
    return {
        "description": TASKS[name].description,
        "train_prompts": len(train),
        "test_prompts": len(test),
        "reference_pass_rate": sum(rates[prompt.key] for prompt in train) / len(train),
        "example_prompt": test[0].prompt,
        "example_answer": test[0].columns["answer"],
    }


def write(report: Mapping[str, Any], out: Path) -> list[Path]:
    """Write report.json, the PNG files and report.html; returns their paths."""
    images = {name: figures.png(draw(report)) for name, draw in figures.FIGURES.items()}
    contents = {
        "report.html": page(report, images).encode(),
        "report.json": json.dumps(report, indent=1, ensure_ascii=False).encode() + b"\n",
        **{f"{name}.png": image for name, image in images.items()},
    }
    for name, content in contents.items():
        write_atomically(out / name, content)
    return [out / name for name in contents]
