"""What a table's numbers say against the units that the caller gave."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from basis_rl.batch import FloatArray
from basis_rl.errors import nearest
from basis_rl.passrates.importers.record import Notes, Options

if TYPE_CHECKING:
    from basis_rl.passrates.table import PassRates

_ENOUGH = 10  # prompts neither at 0 nor at 1, before a common divisor means anything


def remark_doubts(
    table: PassRates, options: Options, threshold: float | None, notes: Notes
) -> None:
    """Remark what does not look like the scale, unit or n that the caller gave."""
    if table.reward_values is not None and threshold is None:
        _remark_scale(table.reward_values, int(table.n.max()), options, notes)
    means = table.means
    inside = (means > 0) & (means < 1)
    if threshold is not None and len(means) > 1 and (means == means[0]).all() and not inside[0]:
        which = "all rewards reach" if means[0] else "no reward reaches"
        notes.remark(f"{which} the threshold {threshold:g}: is it of another scale?")
    if options.unit is not None and options.unit.startswith("percent") and inside.any():
        far = means if options.unit == "percent" else 1.0 - means
        if far.max() <= 0.01 + 1e-9:
            notes.remark("no value is above 1 percent: are they rates from 0 to 1, not percent?")
    if options.n is not None and table.successes is not None and inside.sum() >= _ENOUGH:
        common = math.gcd(options.n, int(np.gcd.reduce(table.successes)))
        if common > 1:
            n = f"{options.n // common}, not {options.n}"
            notes.remark(f"all counts are multiples of {common}: is n {n}?")


def _remark_scale(values: FloatArray, most: int, options: Options, notes: Notes) -> None:
    """Remark rewards of two values, and pass rates in percent that were taken for rewards."""
    low, high = float(values.min()), float(values.max())
    if low == 0.0 and high > 1.0 and np.isin(values, (low, high)).all():
        notes.remark(
            f"the rewards are 0 and {high:g}: say --threshold {high / 2:g} if {high:g} is a success"
        )
        return
    column = options.reward_column
    is_percent = low >= 0.0 and 1.0 < high <= 100.0 and (values == np.rint(values)).mean() >= 0.5
    if column is not None and most == 1 and is_percent:
        notes.remark(
            f"the rewards are from {low:g} to {high:g}, one a prompt: if they are pass rates in "
            f"percent, say --rate-column {column} --unit percent"
        )


def remark_verifier(name: str | None, notes: Notes) -> None:
    """Remark a verifier that training would not know by that name."""
    from basis_rl.verifiers import NAMES

    parts = [part.rpartition(" x ")[2] for part in (name or "").split(" + ")]
    for part in parts:
        if part and ":" not in part and part not in NAMES:
            notes.remark(
                f"verifier {part!r} is neither module:function nor a known name"
                f"{nearest(part, NAMES)}"
            )
