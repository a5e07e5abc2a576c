"""One entry of a dump: a rollout, or a prompt's rollouts together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from basis_rl.errors import PassRatesError

Prompt = str | list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Row:
    """One row as read.

    Attributes
    ----------
    place : str
        How an error names it (``file, line 3``).
    columns : dict
    file : Path, optional
        None for a hub data set.
    step : int, optional
        Training step that the file's name tells.
    """

    place: str
    columns: dict[str, Any]
    file: Path | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """What a row says of one prompt's rollouts.

    Exactly one of ``rewards``, ``successes`` and ``rate`` is set, or none where it is missing.

    Attributes
    ----------
    place : str
        How an error names the row.
    key : str, optional
        The prompt's key where the dump names one; otherwise the hash of ``prompt``.
    prompt : str or list of messages, optional
    rewards : sequence of float, optional
        One a rollout; None where a rollout has no verdict.
    successes : int, optional
        Out of ``n``.
    n : int, optional
    rate : float, optional
        Pass rate from 0 to 1 of an unknown number of rollouts.
    step, first_step : int, optional
        Training step, and the first one where a rollout spans several.
    source : str, optional
        Data set or task of the prompt.
    rollout : object, optional
        Name of the rollout within the dump; of two with one name the later holds.
    extra : dict
        Further columns (completion, ground truth, …) under the dump's own names.
    """

    place: str
    key: str | None = None
    prompt: Prompt | None = None
    rewards: Sequence[float | None] | None = None
    successes: int | None = None
    n: int | None = None
    rate: float | None = None
    step: int | None = None
    first_step: int | None = None
    source: str | None = None
    rollout: Any = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """What the caller says about a dump; see `import_pass_rates`."""

    steps: tuple[int, int] | None = None
    prompt_column: str | None = None
    key_column: str | None = None
    source_column: str | None = None
    reward_column: str | None = None
    successes_column: str | None = None
    n_column: str | None = None
    rate_column: str | None = None
    unit: str | None = None
    n: int | None = None
    direction: str | None = None
    filter: str | None = None
    tokenizer: str | None = None
    split: str = "train"
    data_revision: str | None = None

    def __post_init__(self) -> None:
        if self.n is not None and self.n < 1:
            raise PassRatesError(f"--n is {self.n}: use a positive number of rollouts, or none")
        if self.steps is not None and self.steps[0] > self.steps[1]:
            raise PassRatesError(
                f"--steps {self.steps[0]}:{self.steps[1]}: write the earlier step first, "
                f"{self.steps[1]}:{self.steps[0]}"
            )
        if self.direction not in (None, "passes", "failures"):
            raise PassRatesError(f"--direction is {self.direction!r}: use passes or failures")


@dataclass
class Notes:
    """What was seen while reading.

    Attributes
    ----------
    known : dict
        Fields of a `Provenance` that the dump tells.
    dropped : Counter
        Rollouts left out, by reason.
    remarks : list of str
        Decisions that the user should read.
    """

    known: dict[str, Any] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)

    def remark(self, text: str) -> None:
        """Add a remark once."""
        if text not in self.remarks:
            self.remarks.append(text)

    def know(self, place: str, **values: Any) -> None:
        """Note what made a rollout; rollouts of two models do not go into one table.

        Raises
        ------
        PassRatesError
            If the model or its revision is another one than before.
        """
        for name, value in values.items():
            if value is None:
                continue
            before = self.known.setdefault(name, value)
            if before == value:
                continue
            if name in ("model", "revision"):
                raise PassRatesError(
                    f"{place} has {name} {value!r}, rows before it {before!r}: import one policy's "
                    "rollouts at a time"
                )
            self.known[name] = None
            self.remark(f"{name} differs between rows and is noted as unknown")
