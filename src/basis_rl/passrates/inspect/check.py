"""Whether a table of pass rates fits the prompts and the run that it is meant for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from basis_rl.batch import IntArray
from basis_rl.passrates.inspect.compare import Reward, differences, untold
from basis_rl.passrates.inspect.expected_error import ExpectedError, expected_error
from basis_rl.passrates.inspect.variants import known_variants
from basis_rl.passrates.keys import prompt_hash
from basis_rl.passrates.provenance import Difference, Provenance
from basis_rl.passrates.table import PassRates

if TYPE_CHECKING:
    from basis_rl.prompts import Prompt, Repeats

SHOWN = 3
_VARIANTS_TRIED = 200  # of the prompts that are missing; the first few tell
_WIDTH = 60


@dataclass(frozen=True)
class Run:
    """What a training run wants of its pass rates.

    Attributes
    ----------
    provenance : Provenance
        Its model and sampling settings; None where unknown.
    rewards : sequence of Reward, optional
        Its reward functions, if they are known.
    allowed : sequence of str
        Fields that may differ.
    min_coverage : float
        Least share of its prompts that the table must know.
    smoothing : str or None
        Of its estimator; None if that uses no pass rates.
    refusal : str, optional
        Why its estimator does not take the table.
    """

    provenance: Provenance = field(default_factory=Provenance)
    rewards: Sequence[Reward] | None = None
    allowed: Sequence[str] = ()
    min_coverage: float = 1.0
    smoothing: str | None = "jeffreys"
    refusal: str | None = None


@dataclass(frozen=True)
class Some:
    """How many prompts there are of a sort, and the first of them."""

    count: int = 0
    first: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Report:
    """What `check` found.

    Attributes
    ----------
    prompts, table_prompts : int
        Different prompts of the data, and of the table.
    coverage, min_coverage : float
        Share of the data's prompts that the table knows, and that must be.
    missing, unused : Some
        Prompts that only the data, and only the table, have.
    rows, repeated : int
        Rows of the data, and those that repeat an earlier prompt.
    conflicts : Some
        Repeats with another answer.
    changed : Some or None
        Prompts whose text is another one than that of their key in the table; None where the
        table does not tell.
    known_as : dict of str to int
        Missing prompts that the table knows in another form, by form.
    differences, allowed : list of Difference
        What a run does not share with what made the table, and what of it may differ.
    untold : list of str
        Settings that cannot be compared, since the table does not tell them.
    share_at_zero, share_at_one : float
        Prompts of the table with a raw pass rate of exactly 0, or 1.
    smoothing : str or None
    expected : ExpectedError or None
        None where it cannot be told, or no smoothing is given.
    named_keys : bool
        Whether the keys are names, not hashes of the prompts' content.
    problems, warnings : list of str
        What a run would stop at or be misled by, and what it would only suffer from.
    """

    prompts: int
    table_prompts: int
    coverage: float
    min_coverage: float
    missing: Some
    unused: Some
    rows: int
    repeated: int
    conflicts: Some
    changed: Some | None
    known_as: dict[str, int]
    differences: list[Difference]
    allowed: list[Difference]
    untold: list[str]
    share_at_zero: float
    share_at_one: float
    smoothing: str | None
    expected: ExpectedError | None
    named_keys: bool
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def is_fine(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """All of it in JSON types."""
        return {"is_fine": self.is_fine, **asdict(self)}


def check(
    table: PassRates,
    prompts: Sequence[Prompt],
    run: Run,
    *,
    repeats: Repeats | None = None,
    named_keys: bool = False,
) -> Report:
    """Compare a table with the prompts and the run that it is meant for.

    Parameters
    ----------
    table : PassRates
    prompts : sequence of Prompt
        All different, as `load_prompts` gives them.
    run : Run
    repeats : Repeats, optional
        What `load_prompts` left out.
    named_keys : bool
        Whether the keys are names, not hashes of the prompts' content.
    """
    rows = table.rows([prompt.key for prompt in prompts])
    unknown = [prompts[i] for i in np.flatnonzero(rows < 0).tolist()]
    found = differences(table.provenance, run.provenance, run.rewards)
    allowed = [d for d in found if d.is_error and d.name in run.allowed]
    means = table.means
    usable = run.smoothing is not None and (table.kind != "rates" or run.smoothing == "none")
    report = Report(
        prompts=len(prompts),
        table_prompts=len(table),
        coverage=1.0 - len(unknown) / len(prompts),
        min_coverage=run.min_coverage,
        missing=_some([_shown(prompt) for prompt in unknown]),
        unused=_unused(table, rows),
        rows=repeats.read if repeats else len(prompts),
        repeated=repeats.repeated if repeats else 0,
        conflicts=_some(repeats.conflicts if repeats else []),
        changed=_changed(table, prompts, rows) if named_keys else None,
        known_as={} if named_keys else _known_as(table, unknown),
        differences=[d for d in found if d not in allowed],
        allowed=allowed,
        untold=untold(table.provenance, run.provenance),
        share_at_zero=float((means == 0).mean()),
        share_at_one=float((means == 1).mean()),
        smoothing=run.smoothing,
        expected=expected_error(table, str(run.smoothing)) if usable else None,
        named_keys=named_keys,
    )
    from basis_rl.passrates.inspect.check_findings import problems, warnings

    report.problems.extend(problems(report, table, run))
    report.warnings.extend(warnings(report, table, run, named_keys))
    return report


def _some(texts: Sequence[str]) -> Some:
    return Some(len(texts), list(texts[:SHOWN]))


def _shown(prompt: Prompt) -> str:
    content = prompt.prompt
    text = content if isinstance(content, str) else str(content[-1].get("content"))
    text = " ".join(text.split())
    return f"{prompt.key}: " + (text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…")


def _unused(table: PassRates, rows: IntArray) -> Some:
    used = np.zeros(len(table), dtype=np.bool_)
    used[rows[rows >= 0]] = True
    unused = np.flatnonzero(~used)
    return Some(len(unused), [table.keys[row] for row in unused[:SHOWN].tolist()])


def _changed(table: PassRates, prompts: Sequence[Prompt], rows: IntArray) -> Some | None:
    """Prompts whose text is not the one that the table's key stood for."""
    if table.prompt_hashes is None:
        return None
    changed = []
    for prompt, row in zip(prompts, rows.tolist(), strict=True):
        stored = table.prompt_hashes[row] if row >= 0 else ""
        if stored and stored != prompt_hash(prompt.prompt):
            changed.append(_shown(prompt))
    return _some(changed)


def _known_as(table: PassRates, unknown: Sequence[Prompt]) -> dict[str, int]:
    return known_variants(unknown[:_VARIANTS_TRIED], lambda keys: (table.rows(keys) >= 0).tolist())
