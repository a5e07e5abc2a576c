"""What a source is: a file, a folder of files, or a data set of the hub; and which format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from basis_rl.errors import BasisError, PassRatesError
from basis_rl.files import refuse_device
from basis_rl.passrates.importers.detect import FORMATS, detect, format_named
from basis_rl.passrates.importers.format import Format, Rows
from basis_rl.passrates.importers.hub import HubRows
from basis_rl.passrates.importers.public import find_public, format_of
from basis_rl.passrates.importers.read import (
    PICKLES,
    SUFFIXES,
    first_row,
    refuse_pickle,
    rows_of,
)
from basis_rl.passrates.importers.record import Notes, Options, Record, Row
from basis_rl.passrates.importers.steps import files_of_steps, refuse_two_runs

SHOWN = 3
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")


@dataclass(frozen=True)
class Source:
    """Rows to import.

    Attributes
    ----------
    name : str
        As the caller named it.
    form : Format
    files : list of Path
        Empty for a hub data set.
    rows : iterable of Row
        Can be read more than once.
    revision : str, optional
        Of a hub data set.
    """

    name: str
    form: Format
    files: list[Path]
    rows: Rows
    revision: str | None = None


class FileRows:
    """Rows of files, one file after the other.

    Parameters
    ----------
    files : sequence of Path
    form : Format
    """

    def __init__(self, files: Sequence[Path], form: Format) -> None:
        self.files, self.form = files, form

    def __iter__(self) -> Iterator[Row]:
        for file in self.files:
            step = self.form.step_of(file) if self.form.step_of else None
            for place, columns in rows_of(file):
                yield Row(place, columns, file, step)


def open_source(
    source: str, form: str | None, options: Options, notes: Notes, *, any_step: bool = False
) -> Source:
    """Find what a source is, without reading more than its files' first rows.

    Parameters
    ----------
    source : str
        File, folder, or hub id ``owner/name[:config]``.
    form : str, optional
        Name of a format or hub id of a public data set; otherwise found from the content.
    options : Options
    notes : Notes
    any_step : bool
        Take a dump with several steps without a range.

    Raises
    ------
    BasisError
        If there is no such source, its format is unknown or mixed, or it is a dump with several
        steps and no range of steps was given.
    """
    path = Path(source).expanduser()
    chosen = format_named(form) if form is not None else None
    if not path.exists():
        return _hub_source(source, chosen, options)
    refuse_device(path, shown=source)
    if path.is_dir():
        files, chosen = _files_in(path, chosen, options, notes)
    else:
        refuse_pickle(path)
        if not path.name.endswith(SUFFIXES):
            raise PassRatesError(
                f"{source} cannot be read: dumps end in {', '.join(SUFFIXES)}; convert it"
            )
        files, chosen = [path], chosen or _format_of_file(path, options)
    check_options(chosen, options)
    files = files_of_steps(files, chosen, options, any_step)
    if chosen.known is not None:
        chosen.known(files, notes)
    return Source(source, chosen, files, FileRows(files, chosen))


def run_id(source: Source) -> str:
    """What names a dump's run, however the caller named it: the folder that holds its steps."""
    if not source.files:
        return source.name
    file, step_of = source.files[0].resolve(), source.form.step_of
    if step_of is None or step_of(file) is None:
        return str(Path(source.name).expanduser().resolve())
    # Where a folder is named by its step, the one above holds the run.
    return str(file.parent if step_of(Path(file.name)) is not None else file.parent.parent)


def records_of(source: Source, options: Options, notes: Notes) -> Iterator[Record]:
    """Records of a source's rows.

    Raises
    ------
    BasisError
        If a row is damaged or not as its format writes it.
    """
    rows = _Watched(source.rows)
    try:
        yield from source.form.rows(rows, options, notes)
    # A format reads nested fields as its producer writes them; another nesting fails somewhere.
    except (AttributeError, TypeError, KeyError, IndexError) as error:
        raise PassRatesError(
            f"{rows.place} is not as {source.form.name} writes its rows ({type(error).__name__}: "
            f"{error}): name the right --format, or mend the row"
        ) from error


class _Watched:
    """Rows that remember the place of the last one read."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.place = rows, "the source"

    def __iter__(self) -> Iterator[Row]:
        for row in self.rows:
            self.place = row.place
            yield row


def _hub_source(source: str, chosen: Format | None, options: Options) -> Source:
    refuse_pickle(Path(source))
    entry = find_public(source)
    parent = Path(source).expanduser().parent
    is_path = source.endswith(SUFFIXES) or (parent != Path() and parent.is_dir())
    if entry is None and (is_path or not _HUB_ID.fullmatch(source)):
        from basis_rl.prompts.files import is_file_name

        kind = "file" if is_file_name(source) else "file, folder or hub data set"
        raise PassRatesError(f"there is no {kind} {source}: check the path")
    rows = HubRows(source, options.split, options.data_revision)
    if chosen is None and entry is not None:
        chosen = format_of(entry)
    if chosen is None:
        first = next(iter(rows), None)
        chosen = detect(first.columns, source) if first is not None else None
    chosen = chosen or FORMATS["columns"]
    check_options(chosen, options)
    return Source(source, chosen, [], rows, rows.revision)


def check_options(form: Format, options: Options) -> None:
    """Refuse options that mean nothing for a format, rather than ignore them.

    Raises
    ------
    PassRatesError
    """
    always = {"steps", "split", "data_revision"}
    for name in Options.__dataclass_fields__:
        if name not in form.takes | always and getattr(options, name) is not None:
            option = name.replace("_", "-")
            raise PassRatesError(
                f"--{option} has no meaning for the format {form.name}: leave it out, or say "
                "--format columns to read the file by its columns"
            )


def _names_a_result(options: Options) -> bool:
    named = (options.reward_column, options.successes_column, options.rate_column)
    return any(name is not None for name in named)


def _format_of_file(path: Path, options: Options) -> Format:
    row = first_row(path)
    if row is None:
        raise PassRatesError(f"{path} has no rows: there is nothing to import")
    found = detect(row, path.name)
    if found is None and {"task_id", "solution"} <= set(row):
        raise PassRatesError(
            f"{path} has solutions without verdicts: run evalplus.evaluate on it and import its "
            "_eval_results.json"
        )
    return found or FORMATS["columns"]


def _files_in(
    folder: Path, chosen: Format | None, options: Options, notes: Notes
) -> tuple[list[Path], Format]:
    """Files of one format in a folder, sorted by step and name; others are left out."""
    candidates = _different(
        path
        for path in folder.rglob("*")
        # A tokenizer or a configuration deep in a checkpoint is no dump: .json counts at the top.
        if path.is_file()
        and path.name.endswith(SUFFIXES)
        and (path.parent == folder or not path.name.endswith((".json", ".json.gz")))
    )
    if not candidates:
        pickles = [path for path in sorted(folder.rglob("*")) if path.name.endswith(PICKLES)]
        if pickles:
            refuse_pickle(pickles[0])
        raise PassRatesError(f"{folder} holds no file that ends in {', '.join(SUFFIXES)}")
    files: dict[str, list[Path]] = {}
    others: list[str] = []
    damaged: list[BasisError] = []
    for path in candidates:
        row = _first_row_or_none(path, damaged)
        found = detect(row, path.name) if row else None
        if chosen is not None and (row is None or chosen.detect(row) or found is None):
            found = chosen
        if found is None:
            others.append(str(path.relative_to(folder)))
        else:
            files.setdefault(found.name, []).append(path)
    if chosen is not None:
        files = {chosen.name: files.get(chosen.name, [])}
    if len(files) > 1:
        listed = ", ".join(f"{name} ({len(some)} files)" for name, some in files.items())
        raise PassRatesError(f"{folder} holds several formats, {listed}: say which with --format")
    if not any(files.values()) and _names_a_result(options):
        return candidates, FORMATS["columns"]
    if damaged and not any(files.values()):
        raise damaged[0]
    if not any(files.values()):
        raise PassRatesError(
            f"{folder} holds {len(candidates)} files and none of a known format: name one of them "
            "and its columns (--prompt-column, --reward-column, …)"
        )
    if others:
        more = ", …" if len(others) > SHOWN else ""
        left = f"{len(others)} other file{'' if len(others) == 1 else 's'} of the folder left out"
        notes.remark(f"{left}: {', '.join(others[:SHOWN])}{more}")
    name, some = next(iter(files.items()))
    form = chosen or FORMATS[name]
    step_of = form.step_of or (lambda path: None)
    refuse_two_runs(some, step_of)
    return sorted(some, key=lambda path: (step_of(path) or 0, str(path))), form


def _different(paths: Iterable[Path]) -> list[Path]:
    """Files sorted by name, each once: links to one of them are left out.

    Raises
    ------
    PassRatesError
        If a file is there compressed too.
    """
    by_file: dict[tuple[int, int], Path] = {}
    for path in sorted(paths, key=lambda path: (path.is_symlink(), path)):
        there = path.stat()
        by_file.setdefault((there.st_dev, there.st_ino), path)
    kept = sorted(by_file.values())
    names = set(kept)
    for path in kept:
        if path.suffix == ".gz" and path.with_suffix("") in names:
            raise PassRatesError(f"{path.with_suffix('')} and {path} are there: remove one of them")
    return kept


def _first_row_or_none(path: Path, damaged: list[BasisError]) -> dict[str, object] | None:
    """First row; a .json file that cannot be read may be no dump, and is noted as damaged."""
    try:
        return first_row(path)
    except BasisError as error:
        if not path.name.endswith((".json", ".json.gz")):
            raise
        damaged.append(error)
        return None
