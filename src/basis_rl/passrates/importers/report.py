"""What an import read, kept and left out, in a few lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from basis_rl.passrates.importers.collect import Collector
from basis_rl.passrates.importers.record import Notes
from basis_rl.passrates.provenance import IDENTITY, SETTINGS

if TYPE_CHECKING:
    from basis_rl.passrates.table import PassRates

_COMPARED = (*IDENTITY, *(name for name in SETTINGS if name in ("temperature", "max_tokens")))
_SHOWN = 3


@dataclass(frozen=True)
class Report:
    """Counts of an import.

    Attributes
    ----------
    format : str
        What the source was taken for.
    rows : int
        Records read.
    prompts : int
        In the table.
    without_result : int
        Prompts that were read and have no result.
    rollouts : int
        In the table; 0 where their number is unknown.
    missing : int
        Rollouts (or prompts, where a row sums up a prompt) without a verdict; none counts as 0.
    dropped : dict of str to int
        Left out, by reason.
    unmatched : list of str
        Prompts that the data set of ``match`` does not have.
    mean, share_at_0, share_at_1 : float
        Of the prompts' mean rewards.
    unknown : list of str
        Fields of the provenance that a trainer compares and that nothing tells.
    remarks : list of str
        Decisions that the user should read.
    """

    format: str
    rows: int
    prompts: int
    without_result: int
    rollouts: int
    missing: int
    dropped: dict[str, int]
    unmatched: list[str]
    mean: float
    share_at_0: float
    share_at_1: float
    unknown: list[str]
    remarks: list[str]

    def lines(self) -> list[str]:
        """The report as lines of text."""
        rollouts = f"{self.rollouts} rollouts" if self.rollouts else "an unknown n of rollouts"
        lines = [
            f"read {self.rows} rows as {self.format}: {self.prompts} prompts, {rollouts}",
            f"  missing, not counted: {self.missing}; prompts without any result: "
            f"{self.without_result}",
        ]
        lines += [f"  left out, {reason}: {count}" for reason, count in self.dropped.items()]
        if self.unmatched:
            shown = "; ".join(f"{text!r:.60}" for text in self.unmatched[:_SHOWN])
            lines.append(
                f"  prompts that the data set does not have: {len(self.unmatched)}: {shown}"
            )
        lines.append(
            f"  mean {self.mean:.4f}; prompts at exactly 0: {self.share_at_0:.1%}, at exactly 1: "
            f"{self.share_at_1:.1%}"
        )
        lines += [f"  note: {remark}" for remark in self.remarks]
        if self.unknown:
            lines.append(
                f"  unknown: {', '.join(self.unknown)}. Training compares them with its own; "
                "give them with the options of these names"
            )
        return lines


def make_report(
    collector: Collector,
    notes: Notes,
    form: str,
    table: PassRates,
    prompts: int,
    unmatched: list[str],
) -> Report:
    """Report of an import that gave a table."""
    means = table.means
    return Report(
        format=form,
        rows=collector.read,
        prompts=len(table),
        without_result=prompts - len(table),
        rollouts=int(table.n.sum()),
        missing=collector.missing,
        dropped={reason: count for reason, count in notes.dropped.items() if count},
        unmatched=unmatched,
        mean=float(means.mean()),
        share_at_0=float((means == 0).mean()),
        share_at_1=float((means == 1).mean()),
        unknown=[name for name in _COMPARED if getattr(table.provenance, name) is None],
        remarks=list(notes.remarks),
    )
