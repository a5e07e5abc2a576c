"""The report of `check` as lines of text."""

from __future__ import annotations

import os
from collections.abc import Iterator

from basis_rl.passrates.inspect.check import Report, Some
from basis_rl.passrates.inspect.check_findings import percent


def lines(report: Report, path: str | os.PathLike[str]) -> Iterator[str]:
    """What was found, problems last."""
    known, share = report.prompts - report.missing.count, percent(report.coverage)
    yield (
        f"{os.fspath(path)}: knows {known} of {report.prompts} prompts ({share}; "
        f"at least {percent(report.min_coverage)} needed)"
    )
    yield from _some("missing", report.missing)
    yield from _some("in the table only", report.unused)
    if report.repeated:
        yield f"  repeated rows: {report.repeated} of {report.rows}, left out"
    yield from _some("repeats with another answer", report.conflicts)
    if report.changed is not None:
        yield from _some("changed texts", report.changed)
        if not report.changed.count:
            yield "  changed texts: none"
    elif report.missing.count and not report.named_keys:
        yield "  (keys are hashes of the text: a prompt whose text changed counts as missing)"
    for difference in report.allowed:
        yield f"  allowed: {difference}"
    yield (
        f"  prompts at exactly 0: {report.share_at_zero:.1%}, "
        f"at exactly 1: {report.share_at_one:.1%}"
    )
    yield from _expected(report)
    for warning in report.warnings:
        yield f"warning: {warning}"
    for problem in report.problems:
        yield f"problem: {problem}"
    if report.is_fine:
        yield "fine" if not report.warnings else "fine, apart from the warnings"


def _some(what: str, some: Some) -> Iterator[str]:
    if not some.count:
        return
    yield f"  {what}: {some.count}"
    for text in some.first:
        yield f"    {text}"
    if some.count > len(some.first):
        yield f"    and {some.count - len(some.first)} more"


def _expected(report: Report) -> Iterator[str]:
    if report.smoothing is None:
        return
    expected = report.expected
    if expected is None:
        yield "  expected baseline error: unknown, as the number of rollouts does not tell"
        return
    adds = (
        f", which adds {expected.excess:.1%} to the variance of rewards, "
        f"{expected.reward_variance:.4f}"
    )
    yield (
        f"  expected baseline error: {expected.error:.4f} (root mean square, smoothing "
        f"{report.smoothing})" + (adds if expected.reward_variance else "")
    )
    others = ", ".join(f"{error:.4f} with n = {n}" for n, error in expected.at.items())
    yield f"  it would be {others}"
