"""Prompts that reasoning-gym generates: ``reasoning-gym:<task>?size=200&seed=1&min_terms=2``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

from basis_rl.errors import PromptsError, nearest
from basis_rl.prompts.files import Row

PREFIX = "reasoning-gym:"
# Without a fixed seed every start would train on other prompts, none of them in the pass rates.
_DEFAULTS = {"seed": 0, "size": 500}


def parse(data: str) -> tuple[str, dict[str, Any]]:
    """Task and options of a ``reasoning-gym:`` name.

    Raises
    ------
    PromptsError
        If an option has no value or appears twice.
    """
    task, _, query = data.removeprefix(PREFIX).partition("?")
    options: dict[str, Any] = {}
    try:
        pairs = parse_qsl(query, strict_parsing=True) if query else []
    except ValueError:
        raise PromptsError(f"{data!r}: write options as name=value joined by &") from None
    for name, text in pairs:
        if name in options:
            raise PromptsError(f"{data!r} gives {name} twice: give it once")
        try:
            options[name] = json.loads(text)
        except ValueError:
            options[name] = text
    return task, {**_DEFAULTS, **options}


def check(data: str) -> None:
    """Refuse an unknown task or option without generating anything.

    Raises
    ------
    PromptsError
        Naming the nearest task or option.
    """
    task, options = parse(data)
    try:
        from reasoning_gym.factory import DATASETS
    except ModuleNotFoundError:
        raise PromptsError(
            f"{data!r} needs the package reasoning-gym: pip install reasoning-gym"
        ) from None
    if task not in DATASETS:
        close = nearest(task, sorted(DATASETS))
        if "did you mean" not in close:
            close = f": see the {len(DATASETS)} names in reasoning_gym.factory.DATASETS"
        raise PromptsError(f"reasoning-gym has no task {task!r}{close}")
    known = [field.name for field in dataclasses.fields(DATASETS[task][1])]
    for name in options:
        if name not in known:
            raise PromptsError(
                f"reasoning-gym task {task!r} has no option {name!r}{nearest(name, known)}"
            )
    if not isinstance(options["size"], int) or options["size"] < 1:
        raise PromptsError(f"{data!r}: size is {options['size']!r}, use a whole number of prompts")


def read_rows(data: str) -> Iterator[Row]:
    """Rows with the columns prompt (the question), question, answer and metadata.

    Raises
    ------
    PromptsError
        If the task, an option's name or an option's value is refused.
    """
    check(data)
    task, options = parse(data)
    import reasoning_gym

    try:
        dataset = reasoning_gym.create_dataset(task, **options)
        for index in range(len(dataset)):
            entry = dataset[index]
            yield f"{data}, item {index}", {"prompt": entry["question"], **entry}
    # Each task checks its options in its own way, if at all.
    except Exception as error:
        raise PromptsError(
            f"reasoning-gym task {task!r} refuses its options ({error or type(error).__name__}): "
            f"change the values in {data!r}"
        ) from None
