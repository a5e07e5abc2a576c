"""Progress of a run: a bar with the figures that matter, and all metrics in a file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging as transformers_logging

FILE = "metrics.jsonl"
# Metric -> how the terminal names it.
SHOWN = {
    "reward": "reward",
    "eval_reward": "evaluation reward",
    "basis/baseline_mean": "baseline",
    "basis/advantage_to_reward_std": "advantage/reward std",
    "basis/tau": "tau",
    "basis/beta": "beta",
    "completions/mean_length": "length",
    "completions/clipped_ratio": "cut off",
    "loss": "loss",
    "kl": "kl",
}


class ShowProgress(TrainerCallback):
    """A line for every log and a bar below; every metric goes to ``metrics.jsonl``.

    Parameters
    ----------
    output_dir : str or Path
        Folder of ``metrics.jsonl``.
    say : callable
        Prints one line.
    """

    def __init__(self, output_dir: str | Path, say: Callable[[str], None]) -> None:
        self.path = Path(output_dir) / FILE
        self._say = say
        self._bar: Progress | None = None
        self._task: Any = None
        self._bars_were_on = True

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Drop metrics of steps that are done again, and start the bar."""
        if not state.is_world_process_zero:
            return
        keep_until(self.path, state.global_step)
        self._bars_were_on = transformers_logging.is_progress_bar_enabled()
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        console = Console(stderr=True)
        if console.is_terminal and not args.disable_tqdm:
            self._bar = Progress(
                TextColumn("training"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=console,
            )
            self._task = self._bar.add_task(
                "training", total=state.max_steps, completed=state.global_step
            )
            self._bar.start()

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.update(self._task, completed=state.global_step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write all metrics, show a few."""
        if not state.is_world_process_zero or not logs:
            return
        numbers = {
            name: value if math.isfinite(value) else None
            for name, value in logs.items()
            if isinstance(value, int | float)
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": state.global_step, **numbers}) + "\n")
        shown = [
            f"{label} {numbers[name]:.4g}"
            for name, label in SHOWN.items()
            if numbers.get(name) is not None
        ]
        if shown:
            line = f"step {state.global_step}/{state.max_steps}: " + ", ".join(shown)
            self.say(line)

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Say where the checkpoint is."""
        if state.is_world_process_zero:
            self._say(
                f"checkpoint: {Path(str(args.output_dir)) / f'checkpoint-{state.global_step}'}"
            )

    def say(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        if self._bar is None:
            self._say(line)
        else:
            self._bar.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Stop the bar, also after an error."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._bars_were_on:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def keep_until(path: Path, step: int) -> None:
    """Leave out lines of a metrics file that are later than a step, or cut short."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except (ValueError, KeyError, TypeError):
            continue
    path.write_text("".join(kept) if step else "", encoding="utf-8")
