"""What each trainer calls the settings that the shared checks speak of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OptionNames:
    """Words of one trainer for error messages.

    Attributes
    ----------
    trainer : str
        "TRL".
    rollouts : str
        Rollouts per prompt.
    key_column, source_column, min_coverage, max_zero_batches : str
        Options of these meanings.
    prompt_column : str
        What to do where the training data have no such column.
    prior : str
        What starts unknown prompts from a prior.
    allow_mismatch : str
        With ``{}`` for the name of what may differ.
    no_record : str
        What leaves the record of rewards out.
    checkpoint : str
        Of which checkpoints hold an estimator's state.
    """

    trainer: str
    rollouts: str
    key_column: str
    source_column: str
    prompt_column: str
    min_coverage: str
    max_zero_batches: str
    prior: str
    allow_mismatch: str
    no_record: str
    checkpoint: str
