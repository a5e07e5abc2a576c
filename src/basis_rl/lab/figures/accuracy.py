"""Fig. 3 a: MSE of every estimator over all prompts; and which prompts its error comes from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from basis_rl.lab.figures.draws import Draws, mean_where, pass_rate_ends
from basis_rl.lab.figures.numbers import interval


@dataclass(frozen=True)
class Accuracy:
    """MSE of one estimator at one stage.

    `mse` has the oracle's sampling variance taken off; `mse_uncorrected`, the paper's definition,
    has not. `low` and `high` are the 95% interval of `mse`.
    """

    stage: str
    estimator: str
    label: str
    rollouts: int
    mse: float
    low: float
    high: float
    mse_uncorrected: float


@dataclass(frozen=True)
class ErrorPart:
    """Error of one estimator on prompts of one kind of reference pass rate.

    Attributes
    ----------
    pass_rate : str
        "0", "1" or "between": what the table of pass rates says of the prompts.
    prompts : float
        Share of the drawn rows.
    mse : float
    error : float
        Share of the summed squared error, oracle's variance taken off.
    frequency_0 : float
        How often the baseline is exactly 0.
    """

    stage: str
    estimator: str
    pass_rate: str
    prompts: float
    mse: float
    error: float
    frequency_0: float


def accuracy(draws: Draws) -> list[Accuracy]:
    """Fig. 3 a of one stage: errors averaged over prompts and batches."""
    corrected = draws.errors()
    raw = draws.squared_errors(draws.stage.oracle)
    rows = []
    for e, c in enumerate(draws.compared):
        mse = interval(corrected[e], draws.rows, draws.batch_of)
        plain = float(raw[e].mean())
        rows.append(Accuracy(draws.stage.name, c.name, c.label, c.rollouts, *mse, plain))
    return rows


def error_parts(draws: Draws) -> list[ErrorPart]:
    """Squared error of every estimator by the prompts' reference pass rate: 0, 1 or between."""
    zero, one = (end[draws.rows] for end in pass_rate_ends(draws.stage))
    kinds = {"0": zero, "1": one, "between": ~(zero | one)}
    rows = []
    for e, (c, errors) in enumerate(zip(draws.compared, draws.errors(), strict=True)):
        total = float(errors.sum())
        for kind, mask in kinds.items():
            share = float(errors[mask].sum()) / total if total else float("nan")
            rows.append(
                ErrorPart(
                    draws.stage.name,
                    c.name,
                    kind,
                    float(np.mean(mask)),
                    mean_where(errors, mask),
                    share,
                    mean_where(draws.zeros[e], mask),
                )
            )
    return rows
