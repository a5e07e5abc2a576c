"""Pass rates from what people already have: dumps of trainers and evaluators, public data sets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from basis_rl.errors import PassRatesError
from basis_rl.passrates.importers.collect import Collector
from basis_rl.passrates.importers.detect import FORMATS
from basis_rl.passrates.importers.doubts import remark_doubts, remark_verifier
from basis_rl.passrates.importers.record import Notes, Options, Record
from basis_rl.passrates.importers.report import Report, make_report
from basis_rl.passrates.importers.source import open_source, records_of, run_id
from basis_rl.passrates.importers.tables import make_table, match_entries
from basis_rl.passrates.provenance import Provenance

if TYPE_CHECKING:
    from basis_rl.passrates.table import PassRates
    from basis_rl.prompts import Prompt

__all__ = [
    "FORMATS",
    "Imported",
    "Notes",
    "Options",
    "Record",
    "Report",
    "import_pass_rates",
    "read_records",
]


@dataclass(frozen=True)
class Imported:
    """An imported table.

    Attributes
    ----------
    table : PassRates
    report : Report
    """

    table: PassRates
    report: Report


def read_records(
    source: str | os.PathLike[str],
    *,
    format: str | None = None,
    steps: tuple[int, int] | None = None,
    options: Options | None = None,
    notes: Notes | None = None,
) -> Iterator[Record]:
    """Records of a dump, one after the other, without holding them.

    A dump with several training steps is read whole unless a range is given.

    Parameters
    ----------
    source : path or str
        File, folder, or hub id ``owner/name[:config]``.
    format : str, optional
        One of `FORMATS` or the hub id of a public data set; found from the content by default.
    steps : (first, last), optional
    options : Options, optional
        Columns and units, where the format needs them.
    notes : Notes, optional
        Filled in while reading.

    Raises
    ------
    BasisError
        If there is no such source, its format is unknown, or a row is damaged.
    """
    import dataclasses

    options = options or Options()
    if steps is not None:
        options = dataclasses.replace(options, steps=steps)
    notes = notes if notes is not None else Notes()
    found = open_source(os.fspath(source), format, options, notes, any_step=True)
    for record in records_of(found, options, notes):
        first = record.step if record.first_step is None else record.first_step
        outside = (
            options.steps is not None
            and record.step is not None
            and first is not None
            and not (options.steps[0] <= first and record.step <= options.steps[1])
        )
        if not outside:
            yield record


def import_pass_rates(
    source: str | os.PathLike[str],
    *,
    format: str | None = None,
    options: Options | None = None,
    mapping: Mapping[float, float] | None = None,
    threshold: float | None = None,
    as_is: bool = False,
    repeats: str = "error",
    limit: int | None = None,
    match: Sequence[Prompt] | None = None,
    match_column: str | None = None,
    provenance: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
    **more: Any,
) -> Imported:
    """Read a dump or a public data set into a table of pass rates.

    Parameters
    ----------
    source : path or str
        File, folder, or hub id ``owner/name[:config]``.
    format : str, optional
        One of `FORMATS` or the hub id of a public data set (for a local file of it); found from
        the content by default.
    options : Options, optional
        What the caller says about the dump; its fields can also be given by name
        (``steps=(1, 1)``, ``reward_column="score"``).
    mapping : mapping of float to float, optional
        Rewards to replace, e.g. ``{-1: 0}``.
    threshold : float, optional
        Rewards from here on are successes, all others failures.
    as_is : bool
        Keep rewards of -1 and 1 as they are.
    repeats : str
        ``error``, ``first`` or ``sum``: what to do with a prompt that two rows sum up differently.
    limit : int, optional
        Take so many prompts.
    match : sequence of Prompt, optional
        The training's prompts: rows get their keys, prompts that are none of them are left out.
    match_column : str, optional
        Column of the training's rows that holds the dump's prompt, where the training's prompt is
        that text in a template of its own; by default the training's prompts are compared.
    provenance : mapping, optional
        Fields of `Provenance` that the caller knows; they go before what the dump tells.
    progress : callable, optional
        Called now and then with the rows read.
    **more
        Fields of `Options`.

    Raises
    ------
    BasisError
        If the source cannot be read, a row is damaged or contradicts another, several steps or
        policies are mixed, or nothing is left.
    """
    import dataclasses

    options = dataclasses.replace(options or Options(), **more)
    notes = Notes()
    opened = open_source(os.fspath(source), format, options, notes)
    collector = Collector(
        options,
        notes,
        mapping=dict(mapping or {}),
        threshold=threshold,
        repeats=repeats,
        limit=limit,
        progress=progress,
    )
    collector.collect(records_of(opened, options, notes))
    entries = list(collector.entries.values())
    unmatched: list[str] = []
    if match_column is not None and match is None:
        raise PassRatesError("--match-column names a column of the data set of --match: name it")
    if match is not None:
        entries, unmatched = match_entries(entries, match, notes, match_column)
    known = {name: value for name, value in notes.known.items() if value is not None}
    known |= {name: value for name, value in (provenance or {}).items() if value is not None}
    if known.get("temperature") == 0:
        notes.remark("temperature 0: greedy answers are no sample of the policy that trains")
    told: dict[str, Any] = {
        "source": opened.name,
        "format": opened.form.name,
        "source_revision": opened.revision,
        "steps": list(options.steps) if options.steps else None,
        "map": {f"{old:g}": new for old, new in (mapping or {}).items()} or None,
        "threshold": threshold,
        "remarks": notes.remarks or None,
    }
    extra: dict[str, Any] = {
        "import": {name: value for name, value in told.items() if value is not None}
    }
    if collector.steps is not None:
        # As `cache absorb` notes its steps, so that neither takes them again.
        note = {"run": opened.name, "run_id": run_id(opened), "steps": list(collector.steps)}
        extra["absorbed"] = [note]
        first, last = collector.steps
        if first < last:
            extra["warning"] = (
                f"mixes policies: rollouts of steps {first} to {last} of a training run, each with "
                "a policy of its own"
            )
    made_by = Provenance(**known, extra=extra)
    table = make_table(collector, entries, made_by, as_is=as_is)
    remark_doubts(table, options, threshold, notes)
    remark_verifier(known.get("verifier"), notes)
    report = make_report(collector, notes, opened.form.name, table, len(entries), unmatched)
    return Imported(table, report)
