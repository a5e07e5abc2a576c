"""Every statement of the paper's value estimation, tested on a record's own numbers."""

from __future__ import annotations

from basis_rl.lab.figures import claims_accuracy, claims_beta, claims_bins, claims_settings
from basis_rl.lab.figures.paper import Results
from basis_rl.lab.figures.verdicts import Statement

__all__ = ["Statement", "statements"]

VERDICTS = {True: "holds here", False: "does not", None: "cannot be told"}


def statements(results: Results) -> list[Statement]:
    """The statements that the results have figures for, in the order of the paper's figures.

    Each has a rule, said with it; the rule looks at means, whose intervals are in the figures'
    numbers. A statement about one checkpoint is judged at the middle stage.
    """
    claims = (
        *claims_beta.FIGURE_2,
        *claims_accuracy.CLAIMS,
        *claims_bins.CLAIMS,
        *claims_settings.CLAIMS,
        *claims_beta.FIGURE_8,
    )
    found = (claim(results) for claim in claims)
    return [statement for statement in found if statement is not None]
