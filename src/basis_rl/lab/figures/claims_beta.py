"""Statements about beta: Fig. 2 and 8."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from basis_rl.batch import FloatArray
from basis_rl.lab.figures.beta_curves import BetaPoint
from basis_rl.lab.figures.numbers import pick
from basis_rl.lab.figures.paper import Results
from basis_rl.lab.figures.verdicts import Finding, Statement, each_stage, of_all, too_small

CONSIDERABLY = 0.9
LESS_SENSITIVE = 0.5
UPPER_END = 4.0
BAND = (0.3, 0.5)


def refined_is_lower(results: Results) -> Statement | None:
    """Fig. 2: least MSE of either value."""

    def find(stage: str) -> Finding:
        initial, refined = _best(results, stage, "initial"), _best(results, stage, "refined")
        if nothing := too_small(initial.mse):
            return nothing
        text = (
            f"refined {refined.mse:.4f} at beta {refined.beta:g}, initial {initial.mse:.4f} at "
            f"beta {initial.beta:g}"
        )
        because = (
            f"in the {stage} stage the refined value's least MSE is "
            f"{refined.mse / initial.mse:.1f} times the initial value's; on the prompts of pass "
            f"rate between 0 and 1 they are {refined.mse_between:.4f} and "
            f"{initial.mse_between:.4f}"
        )
        return Finding(refined.mse <= CONSIDERABLY * initial.mse, text, because)

    if not results.beta_curves:
        return None
    return of_all(
        "Section 4, Fig. 2",
        "The refined value has a considerably lower MSE than the initial one.",
        f"least MSE over beta at most {CONSIDERABLY:.0%} of the initial value's, in every stage",
        each_stage(results, find),
    )


def refined_is_less_sensitive(results: Results) -> Statement | None:
    """Fig. 2: spread over beta."""

    def find(stage: str) -> Finding:
        ranges = {}
        for value in ("initial", "refined"):
            mse = [p.mse for p in pick(results.beta_curves, stage=stage, value=value)]
            ranges[value] = max(mse) - min(mse)
        if nothing := too_small(ranges["initial"]):
            return nothing
        text = f"refined {ranges['refined']:.4f}, initial {ranges['initial']:.4f}"
        worst = max(pick(results.beta_curves, stage=stage, value="refined"), key=lambda p: p.mse)
        because = (
            f"in the {stage} stage the refined value's MSE spans {ranges['refined']:.4f} and the "
            f"initial value's {ranges['initial']:.4f}; the refined value is worst, "
            f"{worst.mse:.4f}, at beta {worst.beta:g}"
        )
        return Finding(ranges["refined"] <= LESS_SENSITIVE * ranges["initial"], text, because)

    if not results.beta_curves:
        return None
    return of_all(
        "Section 4, Fig. 2",
        "The refined value is much less sensitive to beta than the initial one.",
        f"its MSE's range over beta is at most {LESS_SENSITIVE:.0%} of the initial value's, in "
        "every stage",
        each_stage(results, find),
    )


def beta_decreases(results: Results) -> Statement | None:
    """Fig. 8: course of beta."""
    if results.beta_steps:
        thirds = [float(np.median(part)) for part in np.array_split(_betas(results), 3)]
        names = "by thirds of the run"
    elif results.beta_stages:
        thirds = [row.beta for row in results.beta_stages]
        names = "by stage"
    else:
        return None
    text = f"median beta {names}: " + ", ".join(f"{m:.2f}" for m in thirds)
    falls = all(b < a for a, b in pairwise(thirds)) if len(thirds) > 1 else None
    because = f"the medians are {', '.join(f'{m:.2f}' for m in thirds)}"
    return of_all(
        "Section 4, Fig. 8",
        "The calibrated beta generally decreases over training.",
        "its median falls from each third of the run (or stage) to the next",
        [("paper's preset", Finding(falls, text, because))],
    )


def beta_starts_high(results: Results) -> Statement | None:
    """Fig. 8: first steps."""

    def find(betas: FloatArray, taus: FloatArray) -> Finding:
        first = max(len(betas) // 20, 1)
        median = float(np.median(betas[:first]))
        because = f"the first {first} batches choose {median:.2f} in the median; " + _by_likelihood(
            taus[:first]
        )
        text = f"median of the first {first} batches {median:.2f}"
        return Finding(median >= UPPER_END, text, because)

    return _of_course(
        results,
        "Beta starts near the upper end of the grid, 5.",
        f"median of the first 5% of batches at least {UPPER_END:g}",
        find,
    )


def beta_settles(results: Results) -> Statement | None:
    """Fig. 8: last steps."""

    def find(betas: FloatArray, taus: FloatArray) -> Finding:
        half = len(betas) // 2
        low, median, high = (float(q) for q in np.quantile(betas[half:], [0.1, 0.5, 0.9]))
        because = (
            f"the second half's median is {median:.2f} ({low:.2f} to {high:.2f}); "
            + _by_likelihood(taus[half:])
        )
        holds = BAND[0] <= median <= BAND[1] and high - low <= BAND[1]
        text = f"in the second half median {median:.2f}, 10% to 90% {low:.2f} to {high:.2f}"
        return Finding(holds, text, because)

    return _of_course(
        results,
        "Beta settles into a narrow band around 0.4.",
        f"second half: median {BAND[0]:g} to {BAND[1]:g}, 10% to 90% no wider than {BAND[1]:g}",
        find,
    )


FIGURE_2 = (refined_is_lower, refined_is_less_sensitive)
FIGURE_8 = (beta_decreases, beta_starts_high, beta_settles)


def _of_course(
    results: Results, claim: str, rule: str, find: Callable[[FloatArray, FloatArray], Finding]
) -> Statement | None:
    """Statement about beta over the steps of a run."""
    if results.beta_steps:
        finding = find(_betas(results), np.array([row.tau for row in results.beta_steps]))
    elif results.beta_stages:
        finding = Finding(None, "not measured", "checkpoints are no run: beta has no course")
    else:
        return None
    return of_all("Appendix D, Fig. 8", claim, rule, [("paper's preset", finding)])


def _by_likelihood(taus: FloatArray) -> str:
    """Where preset robust sees the policy in these batches, and the beta of it."""
    shift = float(np.median(taus))
    text = f"by likelihood (preset robust) the policy stands {shift:+.2f} from the cache in logits"
    return text + (f", beta {1.0 / shift:.1f}" if shift > 0 else ", which no beta reaches")


def _best(results: Results, stage: str, value: str) -> BetaPoint:
    return min(pick(results.beta_curves, stage=stage, value=value), key=lambda p: p.mse)


def _betas(results: Results) -> FloatArray:
    return np.array([row.beta for row in results.beta_steps])
