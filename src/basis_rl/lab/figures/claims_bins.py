"""Statements of Section 5.1 by heterogeneity and difficulty: Fig. 3 b to d and 4."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from basis_rl.lab.figures.cautions import (
    LEAST_BATCHES,
    LEAST_PROMPTS,
    batches_are_equal,
    few_prompts,
)
from basis_rl.lab.figures.difficulty import DifficultyBin
from basis_rl.lab.figures.heterogeneity import HeterogeneityBin
from basis_rl.lab.figures.numbers import pick
from basis_rl.lab.figures.paper import Results
from basis_rl.lab.figures.verdicts import (
    BASIS,
    REINFORCE,
    ROBUST,
    Finding,
    Statement,
    ends,
    of_stages,
    too_small,
)

FLAT = 1.25
DOUBLES = 1.6
MUCH = 2.0
OFTEN = 0.1
_OF_PROMPTS = f"bins of {LEAST_PROMPTS} prompts or more"


def flat_over_heterogeneity(results: Results) -> Statement | None:
    """BASIS by the spread of values in a batch."""

    def find(stage: str) -> Finding | None:
        bins = _batch_bins(results, stage, BASIS)
        if len(bins) < 2:
            return _too_few_batches(results)
        if nothing := too_small(max(b.mse for b in bins)):
            return nothing
        robust = _batch_bins(results, stage, ROBUST)
        told = _flat_text(bins, robust, [f"{b.heterogeneity:.3f}" for b in bins])
        return Finding(_ratio(bins) <= FLAT, told, _flat_reason(bins))

    return of_stages(
        results,
        "Section 5.1, finding 2 (i), Fig. 3 b",
        "BASIS is nearly flat across the heterogeneity of batches.",
        f"highest bin at most {FLAT} times the lowest; bins of {LEAST_BATCHES} batches or more",
        find,
    )


def reinforce_doubles(results: Results) -> Statement | None:
    """REINFORCE++ by the spread of values in a batch."""

    def find(stage: str) -> Finding | None:
        bins = _batch_bins(results, stage, REINFORCE)
        if len(bins) < 2:
            return _too_few_batches(results)
        first, last = bins[0], bins[-1]
        if nothing := too_small(first.mse, first.heterogeneity):
            return nothing
        ratio = last.mse / first.mse
        square = (last.heterogeneity / first.heterogeneity) ** 2
        text = (
            f"from {first.mse:.4f} at {first.heterogeneity:.3f} to {last.mse:.4f} at "
            f"{last.heterogeneity:.3f}, {ratio:.2f} times"
        )
        because = f"it grows {ratio:.2f} times"
        if abs(ratio / square - 1.0) < 0.15:
            because += (
                "; it grows with the square of the heterogeneity, which spans only "
                f"{first.heterogeneity:.3f} to {last.heterogeneity:.3f} here (squared: "
                f"{square:.2f} times)"
            )
        return Finding(ratio >= DOUBLES, text, because)

    return of_stages(
        results,
        "Section 5.1, finding 2 (ii), Fig. 3 b",
        "The MSE of REINFORCE++ nearly doubles from the least to the most heterogeneous batches.",
        f"last bin at least {DOUBLES} times the first; bins of {LEAST_BATCHES} batches or more",
        find,
    )


def flat_over_difficulty(results: Results) -> Statement | None:
    """BASIS by difficulty."""

    def find(stage: str) -> Finding | None:
        bins = _difficulty(results, stage, BASIS)
        if len(bins) < 5:
            return _too_few_values(results, stage)
        if nothing := too_small(max(b.mse for b in bins)):
            return nothing
        told = _flat_text(bins, _difficulty(results, stage, ROBUST), [_values(b) for b in bins])
        return Finding(_ratio(bins) <= FLAT, told, _flat_reason(bins))

    return of_stages(
        results,
        "Section 5.1, finding 2 (i), Fig. 3 c",
        "BASIS is nearly flat across prompt difficulty.",
        f"highest bin at most {FLAT} times the lowest; {_OF_PROMPTS}",
        find,
    )


def reinforce_is_best_in_the_middle(results: Results) -> Statement | None:
    """REINFORCE++ by difficulty."""

    def find(stage: str) -> Finding | None:
        bins = _difficulty(results, stage, REINFORCE)
        if len(bins) < 5:
            return _too_few_values(results, stage)
        best = min(bins, key=lambda b: b.mse)
        inner, outer = bins[1:-1], (bins[0], bins[-1])
        holds = best in inner and all(b.mse >= MUCH * best.mse for b in outer)
        text = ", ".join(f"{_values(b)}: {b.mse:.4f}" for b in bins)
        because = f"its least MSE is at values {_values(best)}, and the ends have {text}"
        return Finding(holds, text, because)

    return of_stages(
        results,
        "Section 5.1, finding 2 (ii), Fig. 3 c",
        "REINFORCE++ is best on prompts of medium difficulty and much worse on easy and hard ones.",
        f"least in one of the three inner bins, both outer ones at least {MUCH:g} times that; "
        f"{_OF_PROMPTS}",
        find,
    )


def groups_are_worst_in_the_middle(results: Results) -> Statement | None:
    """GRPO and RLOO by difficulty."""

    def find(stage: str) -> Finding | None:
        names = [f"group-mean-{g}" for g in (1, 2, 4, 8)]
        names += [f"leave-one-out-{g}" for g in (2, 4, 8)]
        rows = {name: _difficulty(results, stage, name) for name in names}
        worst = {
            bins[0].label: max(bins, key=lambda b: b.mse)
            for bins in rows.values()
            if len(bins) == 5
        }
        if not worst:
            return _too_few_values(results, stage)
        wrong = [label for label, b in worst.items() if b.bin in (1, 5)]
        text = "worst at values " + ", ".join(f"{n} {_values(b)}" for n, b in worst.items())
        because = f"{', '.join(wrong)} is worst at an end"
        return Finding(not wrong, text, because)

    return of_stages(
        results,
        "Section 5.1, finding 2 (iii), Fig. 3 c and 4",
        "GRPO and RLOO are worst on prompts of medium difficulty.",
        f"each has its highest MSE in one of the three inner bins; {_OF_PROMPTS}",
        find,
    )


def never_extreme(results: Results) -> Statement | None:
    """Baselines of exactly 0 or 1 by BASIS."""

    def find(stage: str) -> Finding | None:
        share = _frequency(results, stage, BASIS)
        if share is None:
            return None
        robust = _frequency(results, stage, ROBUST)
        text = f"{share:.1%} of BASIS's baselines are exactly 0 or 1"
        if robust is not None:
            text += f"; preset robust {robust:.1%}"
        return Finding(share == 0.0, text, f"{share:.1%} are: {ends(results, stage)}")

    return of_stages(
        results,
        "Section 5.1, finding 3, Fig. 3 d",
        "BASIS never returns a baseline of 0 or 1.",
        "not once",
        find,
    )


def groups_are_often_extreme(results: Results) -> Statement | None:
    """Baselines of exactly 0 or 1 by GRPO."""

    def find(stage: str) -> Finding | None:
        bins = _difficulty(results, stage, "group-mean-8")
        if len(bins) < 5:
            return _too_few_values(results, stage)
        share = [b.frequency for b in bins]
        holds = min(share[0], share[-1]) >= max(*share[1:-1], OFTEN)
        text = "GRPO 8: " + ", ".join(f"{_values(b)}: {b.frequency:.0%}" for b in bins)
        return Finding(holds, text, f"its shares are {text}")

    return of_stages(
        results,
        "Section 5.1, finding 3, Fig. 3 d",
        "GRPO often returns a baseline of 0 or 1, particularly on easy and hard prompts.",
        f"GRPO 8: in both outer bins at least {OFTEN:.0%}, and more than in any inner one; "
        f"{_OF_PROMPTS}",
        find,
    )


CLAIMS = (
    flat_over_heterogeneity,
    reinforce_doubles,
    flat_over_difficulty,
    reinforce_is_best_in_the_middle,
    groups_are_worst_in_the_middle,
    never_extreme,
    groups_are_often_extreme,
)


def _batch_bins(results: Results, stage: str, estimator: str) -> list[HeterogeneityBin]:
    if batches_are_equal(results):
        return []
    found = pick(results.heterogeneity, stage=stage, estimator=estimator)
    return [b for b in found if b.batches >= LEAST_BATCHES]


def _difficulty(results: Results, stage: str, estimator: str) -> list[DifficultyBin]:
    found = pick(results.difficulty, stage=stage, estimator=estimator)
    return [b for b in found if b.prompts >= LEAST_PROMPTS and not np.isnan(b.mse)]


def _too_few_batches(results: Results) -> Finding | None:
    if not results.heterogeneity:
        return None
    because = f"fewer than two of the five bins have {LEAST_BATCHES} batches: draw more (--batches)"
    return Finding(None, "not measured", batches_are_equal(results) or because)


def _too_few_values(results: Results, stage: str) -> Finding | None:
    if not results.difficulty:
        return None
    because = few_prompts(results, stage) or "GRPO 8 is missing"
    return Finding(None, "not measured", because)


def _values(b: DifficultyBin) -> str:
    return f"{b.bin_low:g}-{b.bin_high:g}"


Bins = Sequence[HeterogeneityBin | DifficultyBin]


def _ratio(bins: Bins) -> float:
    """Highest MSE over the lowest; infinite where the lowest is not above 0."""
    low, high = min(b.mse for b in bins), max(b.mse for b in bins)
    return high / low if low > 0 else float("inf")


def _flat_text(bins: Bins, robust: Bins, names: list[str]) -> str:
    text = ", ".join(f"{name}: {b.mse:.4f}" for name, b in zip(names, bins, strict=True))
    text = f"BASIS at {text}"
    if robust:
        text += f"; preset robust {', '.join(f'{b.mse:.4f}' for b in robust)}"
    return text


def _flat_reason(bins: Bins) -> str:
    high, low = max(bins, key=lambda b: b.mse), min(bins, key=lambda b: b.mse)
    times = f"{_ratio(bins):.1f} times its lowest" if low.mse > 0 else "above 0, its lowest not"
    return (
        f"its highest bin is {times} ({high.mse:.4f} and {low.mse:.4f}); without the prompts of "
        f"pass rate exactly 0 or 1 these two bins have {high.mse_between:.4f} and "
        f"{low.mse_between:.4f}"
    )


def _frequency(results: Results, stage: str, estimator: str) -> float | None:
    bins = [b for b in pick(results.difficulty, stage=stage, estimator=estimator) if b.rows]
    if not bins:
        return None
    return sum(b.frequency * b.rows for b in bins) / sum(b.rows for b in bins)
