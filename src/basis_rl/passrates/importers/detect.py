"""Which format a file has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from basis_rl.errors import PassRatesError, nearest
from basis_rl.passrates.importers.format import Format
from basis_rl.passrates.importers.formats import (
    areal,
    columns,
    evalplus,
    lighteval,
    lm_eval,
    nemo_rl,
    open_instruct,
    open_r1,
    skyrl,
    spo,
    trl,
    verifiers_results,
    verifiers_traces,
    verl,
)
from basis_rl.passrates.importers.public import PUBLIC, find_public, format_of

FORMATS: dict[str, Format] = {
    module.FORMAT.name: module.FORMAT
    for module in (
        verl,
        trl,
        lm_eval,
        lighteval,
        evalplus,
        nemo_rl,
        skyrl,
        areal,
        open_instruct,
        verifiers_traces,
        verifiers_results,
        spo,
        open_r1,
        columns,
    )
}


def format_named(name: str) -> Format:
    """A format by its name, or a public data set by its hub id.

    Raises
    ------
    PassRatesError
        Naming the nearest.
    """
    if name in FORMATS:
        return FORMATS[name]
    entry = find_public(name)
    if entry is not None:
        return format_of(entry)
    public = [known for data in PUBLIC for known in data.names]
    within = [known for known in public if name.lower() in known.lower()]
    if within:
        raise PassRatesError(
            f"there is no format {name!r}: public data sets of that name are {', '.join(within)}"
        )
    raise PassRatesError(
        f"there is no format {name!r}{nearest(name, [*FORMATS, *public])}; the hub id of a public "
        f"data set is one too, e.g. {public[0]}"
    )


def detect(row: Mapping[str, Any], name: str) -> Format | None:
    """Format of a file by its first row, None if it is no known one.

    Parameters
    ----------
    row : mapping
    name : str
        Of the file: a few formats are documents of one kind only.

    Raises
    ------
    PassRatesError
        If several formats claim it.
    """
    found = [
        form
        for form in FORMATS.values()
        if (not form.suffixes or name.endswith(form.suffixes)) and form.detect(row)
    ]
    if len(found) > 1:
        names = " and ".join(form.name for form in found)
        raise PassRatesError(
            f"{name}: columns {', '.join(row)} fit {names}: say which with --format"
        )
    return found[0] if found else None
