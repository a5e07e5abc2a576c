"""Reading a record of rewards, whatever wrote it."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from basis_rl.errors import BasisError, nearest
from basis_rl.files import refuse_device
from basis_rl.lab.reading import matrix, run, trace
from basis_rl.lab.reading.dump import read_dump
from basis_rl.lab.reading.file import is_record, load_record, write_record
from basis_rl.lab.reading.visits import Visits, joined
from basis_rl.lab.record import RecordError, RewardRecord
from basis_rl.passrates.importers.read import SUFFIXES, first_row
from basis_rl.passrates.importers.record import Notes, Options
from basis_rl.passrates.table import PassRates
from basis_rl.passrates.training_record import NAME as RUN_RECORD

__all__ = ["OWN_FORMATS", "read_record", "write_record"]

Source = str | os.PathLike[str] | npt.NDArray[Any]
Reader = Callable[[Path, Visits], None]

_READERS: dict[str, Reader] = {
    "trace": trace.read,
    "run": run.read,
    "matrix": matrix.read,
}
OWN_FORMATS = ("record", *_READERS)


def read_record(
    source: Source | Sequence[Source],
    *,
    format: str | None = None,
    steps: tuple[int, int] | None = None,
    pass_rates: PassRates | str | os.PathLike[str] | None = None,
    name: str | None = None,
    mapping: Mapping[float, float] | None = None,
    options: Options | None = None,
    notes: Notes | None = None,
) -> RewardRecord:
    """Read rewards by visit from a file, a folder, an array, or several of them.

    Parameters
    ----------
    source : path, str, array, or a list of them
        A trace (JSON lines with ``prompt_id``, ``rollouts_per_visit`` and ``successes_by_visit``),
        a matrix of rewards (.npy, .npz, .csv, Parquet with a list column, or an array: prompts x
        rollouts, or prompts x visits x rollouts), the record of a training run or its folder, a
        table of pass rates, a dump of rollouts that `cache import` reads, or a file that
        `write_record` wrote. Several are the steps of one run: without steps of their own, in the
        order given.
    format : str, optional
        One of `OWN_FORMATS` or of the importer's `FORMATS`; found from the content by default.
    steps : (first, last), optional
        Steps to keep, both ends included. In a trace the first visit is step 1.
    pass_rates : PassRates or path, optional
        Rollouts under the reference policy, none of which is in ``source``.
    name : str, optional
        By default the file's.
    mapping : mapping of float to float, optional
        Rewards to replace, e.g. ``{-1: 0}``.
    options : Options, optional
        Columns, where a dump's format needs them.
    notes : Notes, optional
        Filled in: ``dropped`` counts rollouts left out (those without a verdict among them), by
        reason, and ``remarks`` tells what the user should know.

    Returns
    -------
    RewardRecord

    Raises
    ------
    BasisError
        If there is no such source, its format is unknown, a row is damaged (with its place), or
        nothing is left.
    """
    notes = Notes() if notes is None else notes
    table = PassRates.load(pass_rates) if isinstance(pass_rates, str | os.PathLike) else pass_rates
    parts: list[Source] = list(source) if isinstance(source, list | tuple) else [source]  # type: ignore[list-item]
    if not parts:
        raise RecordError("no record is named: name at least one file or folder")
    _check_different(parts)
    one = _One(format, steps, dict(mapping or {}), options, notes)
    records = [one.read(part) for part in parts]
    title = name or (records[0].name if len(parts) == 1 else f"{records[0].name} and more")
    if len(parts) == 1:
        record = dataclasses.replace(records[0], name=title)
    else:
        stepless = all(not each.step.any() for each in records)
        if not stepless:
            _check_new(records)
        record = joined(records, name=title, stepless=stepless)
    if steps is not None:
        record = within(record, steps)
    return record if table is None else with_pass_rates(record, table)


def _check_different(parts: Sequence[Source]) -> None:
    """A source that is named twice would be shown to estimators and be their oracle too."""
    seen: set[str] = set()
    for part in parts:
        if isinstance(part, np.ndarray):
            continue
        path = os.path.realpath(os.path.expanduser(part))
        if path.endswith(os.sep + RUN_RECORD):
            path = os.path.dirname(path)
        if path in seen:
            raise RecordError(f"{os.fspath(part)} is named twice: name each part of a run once")
        seen.add(path)


def _check_new(records: Sequence[RewardRecord]) -> None:
    """Refuse copies: parts with the same rewards at the same steps."""
    seen: dict[bytes, str] = {}
    for record in records:
        keys = [record.keys[i] for i in record.prompt.tolist()]
        parts = (repr(keys).encode(), record.step, record.starts, record.rewards)
        content = hashlib.sha256(b"".join(bytes(part) for part in parts)).digest()
        if content in seen:
            raise RecordError(
                f"{record.name} holds the same steps and rewards as {seen[content]}: name each "
                "part of a run once"
            )
        seen[content] = record.name


@dataclasses.dataclass(frozen=True)
class _One:
    """How each of the sources is read."""

    format: str | None
    steps: tuple[int, int] | None
    mapping: dict[float, float]
    options: Options | None
    notes: Notes

    def read(self, source: Source) -> RewardRecord:
        if isinstance(source, np.ndarray):
            visits = Visits("the array", self.notes, self.mapping)
            matrix.add_array(visits, source)
            return visits.record()
        path = Path(source).expanduser()
        visits = Visits(path.name or str(path), self.notes, self.mapping)
        form = self.format or ("columns" if self._names_columns() else format_of(path))
        if form is not None and form not in OWN_FORMATS:
            _check_format(form)
            form = None
        if form == "record":
            return load_record(path)
        if form is not None:
            refuse_device(path, shown=os.fspath(source))
            if not path.exists():
                raise RecordError(f"there is no file {path}: check the path")
            _READERS[form](path, visits)
        else:
            chosen = None if self.format in OWN_FORMATS else self.format
            read_dump(os.fspath(source), visits, chosen, self.steps, self.options)
        return visits.record()

    def _names_columns(self) -> bool:
        """Whether the caller names columns, and so leaves the kind of file to the importer."""
        names = ("reward_column", "successes_column", "rate_column")
        return any(getattr(self.options, name, None) is not None for name in names)


def _check_format(form: str) -> None:
    from basis_rl.passrates.importers.detect import FORMATS, format_named

    try:
        format_named(form)
    except BasisError:
        known = [*OWN_FORMATS, *FORMATS]
        raise RecordError(f"there is no format {form!r}{nearest(form, known)}") from None


def format_of(path: Path) -> str | None:
    """Which of `OWN_FORMATS` a file or folder has; None leaves it to the importer."""
    if path.is_dir():
        return "run" if (path / RUN_RECORD).is_file() else None
    if not path.is_file():
        return None
    if path.name.endswith((".npy", ".npz")):
        return "matrix"
    if path.name.endswith(".parquet"):
        if is_record(path):
            return "record"
        if matrix.is_table(path):
            return "matrix"
    if not path.name.endswith(SUFFIXES):
        return None
    row = _first(path)
    if row is None:
        return None
    for form, module in (("trace", trace), ("run", run), ("matrix", matrix)):
        if module.detect(row, path):
            return form
    return None


def _first(path: Path) -> dict[str, Any] | None:
    try:
        return first_row(path)
    except BasisError:
        # A table of numbers without a header is no table of named columns.
        return {} if path.name.endswith(".csv") else first_row(path)


def within(record: RewardRecord, steps: tuple[int, int]) -> RewardRecord:
    """Visits of some steps, both ends included.

    Raises
    ------
    RecordError
        If there are none.
    """
    kept = np.flatnonzero((record.step >= steps[0]) & (record.step <= steps[1]))
    if not len(kept):
        raise RecordError(
            f"{record.name} has no rewards of steps {steps[0]} to {steps[1]}: it holds steps "
            f"{record.step[0]} to {record.step[-1]}"
        )
    return of_visits(record, kept)


def of_visits(record: RewardRecord, visits: npt.NDArray[np.int64]) -> RewardRecord:
    """Some visits of a record, in the given order; the prompts stay."""
    counts = record.counts[visits]
    starts = np.concatenate([[0], np.cumsum(counts)])
    places = np.repeat(record.starts[visits] - starts[:-1], counts) + np.arange(starts[-1])
    return dataclasses.replace(
        record,
        prompt=record.prompt[visits],
        step=record.step[visits],
        starts=starts,
        rewards=record.rewards[places],
        lengths=None if record.lengths is None else record.lengths[places],
    )


def with_pass_rates(record: RewardRecord, table: PassRates) -> RewardRecord:
    """The record with rollouts under the reference policy.

    Raises
    ------
    RecordError
        If the table knows none of its prompts.
    """
    visited = [record.keys[i] for i in np.unique(record.prompt)]
    if table.coverage(visited) == 0:
        raise RecordError(
            f"the pass rates know none of the {len(visited)} prompts of {record.name} (first: "
            f"{visited[0]!r:.80}): name a table with the same prompt keys"
        )
    return dataclasses.replace(record, pass_rates=table)
