"""What `check` makes of its report: problems that stop a run, and warnings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from basis_rl.passrates.inspect.check import Report, Run
    from basis_rl.passrates.table import PassRates


def problems(report: Report, table: PassRates, run: Run) -> list[str]:
    """What a run would stop at, or be misled by."""
    found = [] if run.refusal is None else [run.refusal]
    if table.kind == "rates" and run.smoothing not in (None, "none"):
        found.append(
            f"the table holds rates without their n, and smoothing {run.smoothing} needs it: "
            "import them with n (`basis-rl cache import --n N`) if you know it, or train with "
            "estimator.smoothing: none (here --smoothing none)"
        )
    if report.coverage < run.min_coverage:
        found.append(
            f"the table knows {percent(report.coverage)} of the prompts and "
            f"{percent(run.min_coverage)} are needed: add the {report.missing.count} missing "
            "ones, or start them from a prior (estimator option missing: prior)"
        )
    found += [
        f"{d}: build a table for this run, or allow it with pass_rates.allow: [{d.name}] "
        f"(allow_mismatch of BasisConfig)"
        for d in report.differences
        if d.is_error
    ]
    if report.changed is not None and report.changed.count:
        found.append(
            f"{report.changed.count} prompts have another text than when their pass rates were "
            "sampled: give changed prompts new keys and sample them again"
        )
    return found


def warnings(report: Report, table: PassRates, run: Run, named_keys: bool) -> list[str]:
    """What a run would only suffer from, and what could not be compared."""
    found = [f"{d}; the pass rates are off by that" for d in report.differences if not d.is_error]
    if report.untold:
        found.append(f"not compared, since the table does not tell: {', '.join(report.untold)}")
    found += _told_by_the_table(table)
    if report.conflicts.count:
        found.append(
            f"{report.conflicts.count} repeated rows have another answer than the prompt's first "
            "row, which holds: most often the prompt leaves out what tells them apart"
        )
    if report.known_as:
        forms = ", ".join(f"{count} {form}" for form, count in report.known_as.items())
        found.append(f"of the missing prompts the table knows {forms}")
    if named_keys and table.prompt_hashes is None:
        found.append(
            "the table has named keys and no hashes of the prompts: a text that changed under its "
            "key cannot be found"
        )
    ends = report.share_at_zero + report.share_at_one
    if run.smoothing == "none" and ends and not table.is_continuous:
        found.append(
            f"{percent(ends)} of the pass rates are exactly 0 or 1 and smoothing is none: these "
            "prompts keep that baseline whatever the policy learns"
        )
    if run.smoothing == "none" and table.is_adaptive:
        found.append(
            "the table was sampled adaptively and smoothing is none: prompts stopped early where "
            "they were at 0 or 1; use smoothing jeffreys or empirical-bayes"
        )
    return found


def _told_by_the_table(table: PassRates) -> Iterator[str]:
    """Doubts that its own provenance has: mixed policies, verdicts that were lost."""
    extra = table.provenance.extra
    if "warning" in extra:
        yield f"the table {extra['warning']}"
    failures, without = extra.get("verifier_failures"), extra.get("unverified_rollouts")
    causes = failures if isinstance(failures, Mapping) else {}
    failed, without = sum(causes.values()), without if isinstance(without, int) else 0
    completions = extra.get("completions")
    if failed + without and isinstance(completions, int) and completions:
        listed = ", ".join(f"{cause} {count}" for cause, count in causes.items())
        yield (
            f"{failed + without} of {completions} verdicts ({(failed + without) / completions:.1%})"
            f" were lost: the verifier failed on {failed} rollouts, which count 0"
            + (f" ({listed})" if listed else "")
            + f", and {without} without a verdict are left out"
        )


def percent(share: float) -> str:
    """Percent with one decimal, never 100 for less than all."""
    return f"{np.floor(share * 1000) / 10:.1f}%"
