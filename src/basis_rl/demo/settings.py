"""What a demo run can be told."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from basis_rl.demo.tasks import TASKS
from basis_rl.errors import ConfigError, nearest

# Not "larger" and "smaller": to copy always the same operand is right half of the time, and a
# policy that has fallen into that does not get out again within a few dozen steps.
DEFAULT_TASKS = ("multiplication", "addition")
GROUP = 8  # GRPO's rollouts per prompt in a comparison


@dataclass(frozen=True)
class DemoSettings:
    """Settings of a demo run.

    Attributes
    ----------
    out : Path
        Folder of the report and the intermediate results.
    model : str, optional
        Folder or hub id of a causal language model; SmolLM2-135M-Instruct by default.
    tasks : tuple of str
        Names in `basis_rl.demo.tasks.TASKS`.
    steps, batch_size : int
        Training steps, and rollouts in each.
    learning_rate : float
    seed : int
        Of the questions, of all sampling and of training.
    threads : int, optional
        Processor threads; by default as many as this process may use.
    compare : bool
        Also train with GRPO, REINFORCE++ and no baseline, as many rollouts each.
    train, test : int
        Questions of each task.
    reference_rollouts : int
        Rollouts of each training prompt for the pass rates.
    samples : int
        Completions of each test prompt, before and after.

    Raises
    ------
    ConfigError
        If a value is out of range.
    """

    out: Path
    model: str | None = None
    tasks: tuple[str, ...] = DEFAULT_TASKS
    steps: int = 36
    batch_size: int = 32
    learning_rate: float = 2e-5
    seed: int = 0
    threads: int | None = None
    compare: bool = False
    train: int = 128
    test: int = 200
    reference_rollouts: int = 8
    samples: int = 2

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ConfigError(f"no task is named: name some of {', '.join(TASKS)}")
        for name in self.tasks:
            if name not in TASKS:
                raise ConfigError(f"no demo task is named {name!r}{nearest(name, list(TASKS))}")
        for name in ("steps", "batch_size", "train", "reference_rollouts", "samples"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: use at least 1")
        if self.test < 2:
            raise ConfigError(f"test is {self.test}: an interval needs at least 2 prompts per task")
        if self.seed < 0:
            raise ConfigError(f"seed is {self.seed}: use 0 or a positive whole number")
        if self.threads is not None and self.threads < 1:
            raise ConfigError(f"threads is {self.threads}: use at least 1")
        if not (0 < self.learning_rate < math.inf):
            raise ConfigError(f"learning_rate is {self.learning_rate}: use a positive number")
        if self.compare and self.batch_size % GROUP:
            raise ConfigError(
                f"batch_size is {self.batch_size}: with --compare use a multiple of {GROUP}, "
                "GRPO's rollouts per prompt"
            )
        if self.batch_size > self.train * len(self.tasks):
            raise ConfigError(
                f"batch_size is {self.batch_size}, more than the {self.train * len(self.tasks)} "
                "training prompts: lower it"
            )
        if self.out.exists() and not self.out.is_dir():
            raise ConfigError(f"{self.out} is a file: name a folder for the report")

    @property
    def processor_threads(self) -> int:
        """Threads to use."""
        if self.threads is not None:
            return self.threads
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1

    def to_dict(self) -> dict[str, Any]:
        """JSON types, for the report."""
        return {
            "model": self.model,
            "tasks": list(self.tasks),
            "steps": self.steps,
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
            "seed": self.seed,
            "threads": self.processor_threads,
            "compare": self.compare,
            "train_prompts_per_task": self.train,
            "test_prompts_per_task": self.test,
            "reference_rollouts": self.reference_rollouts,
            "samples_per_test_prompt": self.samples,
        }
