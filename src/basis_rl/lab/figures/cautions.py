"""Where a record is too small for a figure, and what would help."""

from __future__ import annotations

from basis_rl.lab.figures.draws import half_of
from basis_rl.lab.figures.numbers import pick
from basis_rl.lab.figures.paper import Results

# Below them a bin's mean is that of a few prompts or batches, and no statement is judged by it.
LEAST_BATCHES = 10
LEAST_PROMPTS = 10


def cautions(results: Results) -> list[str]:
    """Sentences for whoever looks at the figures; none where the record is large enough."""
    few = few_prompts(results, results.main_stage)
    told = [batches_are_equal(results) or batches_are_alike(results)]
    told.append(f"in figures 3 c, 3 d and 4 {few}" if few else "")
    return [f"{text[0].upper()}{text[1:]}." for text in told if text]


def batches_are_equal(results: Results) -> str:
    """Says that every batch holds all prompts; empty where it does not."""
    prompts = len(results.stages[0].keys)
    if results.settings.batch_size < prompts:
        return ""
    return (
        f"every batch holds all {prompts} prompts, so all have the same heterogeneity: record "
        f"more prompts, or choose --batch-size {half_of(prompts)}"
    )


def batches_are_alike(results: Results) -> str:
    """Says that two batches share most of their prompts; empty where they do not."""
    prompts, size = len(results.stages[0].keys), results.settings.batch_size
    if 2 * size <= prompts or not results.heterogeneity:
        return ""
    return (
        f"a batch holds {size} of the {prompts} prompts, so batches are much alike and figure 3 b "
        f"spans little: record more prompts, or choose --batch-size {half_of(prompts)}"
    )


def few_prompts(results: Results, stage: str) -> str:
    """Names the bins of values that too few prompts are in; empty where there are none."""
    rows = pick(results.difficulty, stage=stage)
    first = rows[0].estimator if rows else ""
    few = [row for row in rows if row.estimator == first and row.prompts < LEAST_PROMPTS]
    if not few:
        return ""
    bins = ", ".join(f"{row.bin_low:g}-{row.bin_high:g}: {row.prompts}" for row in few)
    return (
        f"fewer than {LEAST_PROMPTS} prompts have values in some of the five bins ({bins}): "
        "record more prompts"
    )
