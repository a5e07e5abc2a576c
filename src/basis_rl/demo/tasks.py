"""Small arithmetic tasks that a 135M-parameter model can partly do, split without overlap.

Every prompt is plain text to complete: a few solved lines, then one to solve. The answer ends with
the line. All questions of a task are enumerated, so train and test are disjoint by construction:
a question and its mirror image (``3 + 5`` and ``5 + 3``) never lie on different sides.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from basis_rl.errors import ConfigError, nearest
from basis_rl.passrates import prompt_key
from basis_rl.prompts import Prompt

Operands = tuple[int, int]


@dataclass(frozen=True)
class Task:
    """A family of questions about two numbers.

    Attributes
    ----------
    name, description : str
    template : str
        One line with ``{a}`` and ``{b}``, up to where the answer starts.
    answer : callable
        The right answer for two operands.
    operands : callable
        All pairs of operands, in a fixed order.
    solved : tuple of pairs
        Operands of the solved lines above every question; asked nowhere.
    """

    name: str
    description: str
    template: str
    answer: Callable[[int, int], int]
    operands: Callable[[], Iterator[Operands]]
    solved: tuple[Operands, ...]

    def prompt(self, operands: Operands) -> str:
        """The solved lines, then the question."""
        lines = [self._question(pair) + str(self.answer(*pair)) for pair in self.solved]
        return "\n".join([*lines, self._question(operands)])

    def _question(self, operands: Operands) -> str:
        a, b = operands
        return self.template.format(a=a, b=b)


def _grid(first: range, second: range, *, ties: bool = True) -> Callable[[], Iterator[Operands]]:
    return lambda: ((a, b) for a in first for b in second if ties or a != b)


TASKS = {
    task.name: task
    for task in (
        Task(
            "multiplication",
            "a two-digit number times a number up to 5",
            "{a} * {b} = ",
            lambda a, b: a * b,
            _grid(range(10, 100), range(1, 6)),
            ((23, 3), (41, 5)),
        ),
        Task(
            "addition",
            "a number up to 99 plus a one-digit number",
            "{a} + {b} = ",
            lambda a, b: a + b,
            _grid(range(1, 100), range(1, 10)),
            ((53, 5), (38, 9)),
        ),
        Task(
            "larger",
            "the larger of two two-digit numbers",
            "max({a},{b})=",
            max,
            _grid(range(10, 100), range(10, 100), ties=False),
            ((25, 71), (64, 32)),
        ),
        Task(
            "smaller",
            "the smaller of two two-digit numbers",
            "min({a},{b})=",
            min,
            _grid(range(10, 100), range(10, 100), ties=False),
            ((25, 71), (64, 32)),
        ),
    )
}


def split(names: Sequence[str], *, train: int, test: int, seed: int) -> dict[str, list[Prompt]]:
    """Prompts to train and to test on, ``train`` and ``test`` of each task, in random order.

    Parameters
    ----------
    names : sequence of str
        Names in `TASKS`.
    train, test : int
        Questions per task.
    seed : int

    Returns
    -------
    dict with "train" and "test" : list of Prompt
        The test prompts are grouped by task; the train prompts are mixed. The task is the
        source; the columns are prompt, answer and task.

    Raises
    ------
    ConfigError
        If a task is unknown or named twice, or has fewer questions than asked for.
    """
    parts: dict[str, list[Prompt]] = {"train": [], "test": []}
    for name in names:
        if name not in TASKS:
            raise ConfigError(f"no demo task is named {name!r}{nearest(name, list(TASKS))}")
        if list(names).count(name) > 1:
            raise ConfigError(f"task {name!r} is named twice: name each task once")
        questions = _questions(TASKS[name], random.Random(f"{seed}/{name}"))
        if train + test > len(questions):
            raise ConfigError(
                f"task {name!r} has {len(questions)} questions, {train} train + {test} test were "
                "asked for: lower one of them"
            )
        parts["test"] += questions[:test]
        parts["train"] += questions[test : test + train]
    random.Random(f"{seed}/order").shuffle(parts["train"])
    return parts


def _questions(task: Task, rng: random.Random) -> list[Prompt]:
    """All questions but the solved ones in random order, one of every mirrored pair."""
    pairs = list(task.operands())
    rng.shuffle(pairs)
    seen = {tuple(sorted(pair)) for pair in task.solved}
    chosen = []
    for pair in pairs:
        mirrored = tuple(sorted(pair))
        if mirrored not in seen:
            seen.add(mirrored)
            chosen.append(_as_prompt(task, pair))
    return chosen


def _as_prompt(task: Task, operands: Operands) -> Prompt:
    text = task.prompt(operands)
    answer = str(task.answer(*operands))
    return Prompt(
        prompt_key(text), text, task.name, {"prompt": text, "answer": answer, "task": task.name}
    )
