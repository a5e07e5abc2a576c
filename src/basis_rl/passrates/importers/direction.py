"""Whether counts of several models are of passes or of failures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from basis_rl.errors import PassRatesError
from basis_rl.passrates.importers.record import Notes, Options, Row
from basis_rl.passrates.importers.values import number, optional

_STANDARD_ERRORS = 5
_LEAST_ROWS = 30  # a few rows alike have no standard error
_ROWS = 20_000  # enough to decide; more would only take time


def holds_failures(
    rows: Iterable[Row], weak_to_strong: Sequence[str], options: Options, notes: Notes
) -> bool:
    """Whether counts are failures: the stronger of two models of one family has fewer of those.

    Parameters
    ----------
    rows : iterable of Row
        Can be read a second time.
    weak_to_strong : sequence of str
        Columns of the models, the weakest first; the first and the last are compared, row by row.

    Raises
    ------
    PassRatesError
        If the means are closer than five standard errors, or of fewer than 30 rows, and the caller
        gave no direction.
    """
    weak, strong = weak_to_strong[0], weak_to_strong[-1]
    if options.direction is not None:
        notes.remark(f"counts are taken as {options.direction}, as you said")
        return options.direction == "failures"
    pairs = []
    for row in rows:
        pair = [number(optional(row.columns, name), row.place, name) for name in (weak, strong)]
        if None not in pair:
            pairs.append(pair)
        if len(pairs) == _ROWS:
            break
    values = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    differences = values[:, 0] - values[:, 1]
    mean = float(differences.mean()) if len(differences) else 0.0
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences)) if len(pairs) > 1 else 0.0
    means = ", ".join(f"{value:.2f}" for value in values.mean(axis=0)) if pairs else "unknown"
    compared = f"means of {weak} and {strong} over {len(pairs)} rows: {means}"
    if len(pairs) < _LEAST_ROWS or abs(mean) <= _STANDARD_ERRORS * error:
        raise PassRatesError(
            f"passes or failures? The {compared}, too close or too few to tell: say --direction "
            "passes or --direction failures"
        )
    failures = mean > 0
    kind = "failures" if failures else "passes"
    notes.remark(f"counts are taken as {kind}: {compared}, and the stronger model solves more")
    return failures
