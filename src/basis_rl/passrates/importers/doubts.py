"""What a table's numbers say against the units that the caller gave."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from basis_rl.passrates.importers.record import Notes, Options

if TYPE_CHECKING:
    from basis_rl.passrates.table import PassRates

_ENOUGH = 10  # prompts neither at 0 nor at 1, before a common divisor means anything


def remark_doubts(
    table: PassRates, options: Options, threshold: float | None, notes: Notes
) -> None:
    """Remark a threshold that all or no rewards reach, rates taken for percent, and a wrong n."""
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
