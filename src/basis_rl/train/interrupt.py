"""Ctrl-C and SIGTERM end a run after its current step, with a checkpoint."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def updates_per_generation(args: Any) -> int:
    """Optimizer steps from one start of a batch of rollouts to the next; 1 on-policy.

    A step may end within a batch of rollouts, so the next common multiple of both counts.
    """
    batches = args.steps_per_generation * args.num_iterations
    per_step = args.gradient_accumulation_steps
    return int(math.lcm(batches, per_step) // per_step)


class StopOnSignal(TrainerCallback):
    """Asks the trainer to save and stop at the end of the step in which a signal came.

    Use it as a context manager around training; a second signal stops at once. With several
    processes all stop after the same step as soon as one of them got the signal.

    Parameters
    ----------
    announce : callable
        Told once that the run is about to stop.

    Attributes
    ----------
    requested : bool
        Whether a signal came.
    """

    def __init__(self, announce: Callable[[str], None]) -> None:
        self.requested = False
        self._announce = announce
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopOnSignal:
        # Only the main thread may set handlers; elsewhere (tests, notebooks) there are none.
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self._announce("stopping after this step, with a checkpoint (once more stops at once)")

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Request a checkpoint and the end, if any process got a signal."""
        # Inside a generation batch there is nothing to resume from: its rollouts are not saved.
        if state.global_step % updates_per_generation(args) == 0 and self._anywhere(args):
            self.requested = True
            control.should_save = True
            control.should_training_stop = True

    def _anywhere(self, args: TrainingArguments) -> bool:
        if args.world_size == 1:
            return self.requested
        import torch

        flag = torch.tensor([float(self.requested)], device=args.device)
        torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
        return bool(flag.item())
