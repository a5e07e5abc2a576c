"""What a statement of the paper comes to on other data: a rule per stage, and the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from basis_rl.lab.figures.accuracy import ErrorPart
from basis_rl.lab.figures.numbers import pick
from basis_rl.lab.figures.paper import Results

BASIS, ROBUST = "basis-paper", "basis-robust"
REINFORCE = "batch-mean"


@dataclass(frozen=True)
class Finding:
    """A statement's rule applied once, to one stage or to all.

    Attributes
    ----------
    holds : bool or None
        None where the numbers cannot tell.
    text : str
        The numbers that the rule looked at.
    because : str
        What in the numbers makes it fail, or why they cannot tell; may be empty where it holds.
    """

    holds: bool | None
    text: str
    because: str = ""


@dataclass(frozen=True)
class Statement:
    """One statement of the paper and what it comes to here.

    Attributes
    ----------
    place : str
        Where the paper says it.
    claim : str
        What it says.
    rule : str
        When it is taken to hold.
    holds : bool or None
        None where the numbers cannot tell.
    because : str
        What makes it fail, or why the numbers cannot tell; empty where it holds.
    numbers : tuple of str
        What the rule looked at, stage by stage.
    """

    place: str
    claim: str
    rule: str
    holds: bool | None
    because: str
    numbers: tuple[str, ...]

    @property
    def opening(self) -> str:
        """The verdict: "Holds here." or "Does not, because …."."""
        if self.holds:
            return "Holds here."
        if self.holds is None:
            return f"Cannot be told here: {self.because}."
        return f"Does not, because {self.because}."


def of_stages(
    results: Results, place: str, claim: str, rule: str, find: Callable[[str], Finding | None]
) -> Statement | None:
    """Statement about one checkpoint: the verdict is the middle stage's, the others are told."""
    found = {stage.name: find(stage.name) for stage in results.stages}
    main = found[results.main_stage]
    if main is None:
        return None
    numbers = tuple(
        f"{name}: {'' if finding.holds == main.holds else _OTHER[finding.holds]}{finding.text}"
        for name, finding in found.items()
        if finding is not None
    )
    return Statement(place, claim, rule, main.holds, "" if main.holds else main.because, numbers)


def each_stage(results: Results, find: Callable[[str], Finding]) -> list[tuple[str, Finding]]:
    """A rule applied to every stage, with the stage's name."""
    return [(stage.name, find(stage.name)) for stage in results.stages]


def of_all(place: str, claim: str, rule: str, found: Sequence[tuple[str, Finding]]) -> Statement:
    """Statement about several stages: it holds if it does in each."""
    holds: bool | None = all(finding.holds for _, finding in found)
    failed = [finding for _, finding in found if finding.holds is False]
    if not failed and any(finding.holds is None for _, finding in found):
        holds = None
    decisive = failed[0] if failed else next((f for _, f in found if f.holds is holds), found[0][1])
    numbers = tuple(f"{name}: {finding.text}" for name, finding in found)
    because = next((f.because for f in failed if f.because), decisive.because)
    return Statement(place, claim, rule, holds, "" if holds else because, numbers)


def too_small(*errors: float) -> Finding | None:
    """What a rule about ratios comes to where an error is not above 0; None where all are."""
    if min(errors) > 0.0:
        return None
    because = "an MSE that it divides by is not above 0, the oracle's noise taken off"
    return Finding(None, "not measured", because)


def ends(results: Results, stage: str) -> str:
    """What the prompts of pass rate exactly 0 or 1 do to BASIS and to group means, as numbers."""
    parts = pick(results.parts, stage=stage, estimator=BASIS)
    if not parts:
        return ""
    ends_, between = [p for p in parts if p.pass_rate != "between"], parts[-1]
    share = sum(p.prompts for p in ends_)
    if share == 0:
        return "no prompt's cached pass rate is exactly 0 or 1, so the active set is not the cause"
    error = sum(p.error for p in ends_ if p.error == p.error)
    zeros = sum(p.prompts * p.frequency_0 for p in ends_ if p.prompts) / share
    text = (
        f"{share:.1%} of the drawn prompts have a cached pass rate of exactly 0 or 1 "
        f"({_shares(ends_)}); {zeros:.0%} of their baselines are exactly 0, and they make "
        f"{error:.0%} of BASIS's squared error"
    )
    if not between.prompts:
        return text
    text += f"; on the other prompts its MSE is {between.mse:.4f}"
    group = pick(results.parts, stage=stage, estimator="group-mean-8", pass_rate="between")
    return text + (f" (GRPO 8 there: {group[0].mse:.4f})" if group else "")


def _shares(parts: Sequence[ErrorPart]) -> str:
    return ", ".join(f"{p.prompts:.1%} at {p.pass_rate}" for p in parts)


_OTHER = {True: "holds, ", False: "does not, ", None: "cannot be told, "}
