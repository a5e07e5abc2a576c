"""Which files and rollouts of a dump are of the training steps asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from basis_rl.errors import PassRatesError
from basis_rl.passrates.importers.format import Format
from basis_rl.passrates.importers.record import Options

Steps = tuple[int, int]


def files_of_steps(files: list[Path], form: Format, options: Options, any_step: bool) -> list[Path]:
    """Files whose names tell a step of the range; all where a name tells none."""
    steps = [form.step_of(file) if form.step_of else None for file in files]
    known = [step for step in steps if step is not None]
    if len(known) < len(files):
        return files
    if options.steps is None:
        if not any_step:
            refuse_steps(set(known))
        return files
    first, last = options.steps
    kept = [file for file, step in zip(files, known, strict=True) if first <= step <= last]
    if not kept:
        raise no_such_steps(options.steps, min(known), max(known))
    return kept


def refuse_steps(steps: set[int]) -> None:
    """Refuse rollouts of several training steps: they are those of as many policies.

    Raises
    ------
    PassRatesError
        Telling the range that is there.
    """
    if len(steps) > 1:
        raise PassRatesError(
            f"this dump holds {len(steps)} training steps, {min(steps)} to {max(steps)}, each of "
            f"another policy: choose a range with --steps, e.g. --steps {min(steps)}:{min(steps)}"
        )


def no_such_steps(wanted: Steps, first: int, last: int) -> PassRatesError:
    """Error for a range without rollouts."""
    return PassRatesError(
        f"there is no rollout of steps {wanted[0]} to {wanted[1]}: the dump has {first} to {last}"
    )


def refuse_two_runs(files: list[Path], step_of: Callable[[Path], int | None]) -> None:
    """Refuse steps in two folders: two runs, or one's training and its validation.

    Raises
    ------
    PassRatesError
    """
    folders: dict[Path, int] = {}
    for file in files:
        step = step_of(file)
        if step is None:
            continue
        # Where a folder is named by its step, the one above holds the run.
        tells_itself = step_of(Path(file.name)) is not None
        folders.setdefault(file.parent if tells_itself else file.parent.parent, step)
    if len(folders) > 1:
        (one, step), (other, later), *_ = folders.items()
        raise PassRatesError(
            f"step {step} is in {one} and step {later} in {other}, two runs or training and "
            "validation: name one of these folders"
        )
