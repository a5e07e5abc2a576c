"""Statements about the settings of BASIS: Fig. 5."""

from __future__ import annotations

from basis_rl.lab.figures.numbers import pick
from basis_rl.lab.figures.paper import Results
from basis_rl.lab.figures.sensitivity import SensitivityPoint
from basis_rl.lab.figures.verdicts import BASIS, Finding, Statement, each_stage, of_all, too_small

UNCHANGED = 1.05
SIMILAR = 1.1
CACHE_REDUCTION = (0.50, 0.65)
MARGINAL = 0.1


def epsilon_does_not_matter(results: Results) -> Statement | None:
    """Fig. 5: epsilon."""
    return _level(
        results,
        "epsilon",
        (1e-8, 1e-2),
        UNCHANGED,
        "The MSE is nearly unchanged for epsilon from 1e-8 to 1e-2.",
    )


def grid_size_does_not_matter(results: Results) -> Statement | None:
    """Fig. 5: number of candidates for beta."""
    return _level(
        results, "grid", (8, 64), SIMILAR, "Between 8 and 64 candidates for beta are similar."
    )


def larger_cache_helps(results: Results) -> Statement | None:
    """Fig. 5: n."""

    def find(stage: str) -> Finding:
        points = _panel(results, stage, "n")
        if 8 not in points or max(points) <= 8:
            because = "the table holds no counts of more than 8 rollouts a prompt"
            return Finding(None, "not measured", because)
        small, large = points[8], points[max(points)]
        if nothing := too_small(small.mse):
            return nothing
        cut = 1.0 - large.mse / small.mse
        text = f"{small.mse:.4f} at n = 8, {large.mse:.4f} at n = {large.setting:g}, {cut:.0%} less"
        if large.setting < 64:
            told = f"8 to {large.setting:g} is told instead"
            because = f"the cache has {large.setting:g} rollouts of a prompt, not 64 ({told})"
            return Finding(None, text, because)
        low, high = CACHE_REDUCTION
        because = (
            f"in the {stage} stage it is {cut:.0%}: {small.ends:.1%} of the drawn prompts have a "
            f"pass rate of exactly 0 or 1 at n = 8 and {large.ends:.1%} at n = 64; on the other "
            f"prompts the MSE goes from {small.mse_between:.4f} to {large.mse_between:.4f}"
        )
        return Finding(low <= cut <= high, text, because)

    if not results.sensitivity:
        return None
    return of_all(
        "Appendix A, Fig. 5",
        "A cache of n = 64 instead of 8 reduces the MSE by about 55 to 59%.",
        f"by {CACHE_REDUCTION[0]:.0%} to {CACHE_REDUCTION[1]:.0%} in every stage",
        each_stage(results, find),
    )


def batch_size_saturates(results: Results) -> Statement | None:
    """Fig. 5: B."""

    def find(stage: str) -> Finding:
        mse = {size: point.mse for size, point in _panel(results, stage, "B").items()}
        small = {b: m for b, m in mse.items() if b <= 16}
        large = {b: m for b, m in mse.items() if b > 128}
        text = ", ".join(f"B = {b:g}: {m:.4f}" for b, m in mse.items())
        if not small or not large:
            missing = "more than 128" if not large else "16 or fewer"
            return Finding(None, text, f"no batch of {missing} prompts could be drawn")
        at = min(mse.get(64, float("inf")), mse.get(128, float("inf")))
        if nothing := too_small(small[max(small)], at):
            return nothing
        before, after = 1.0 - at / small[max(small)], 1.0 - min(large.values()) / at
        because = (
            f"in the {stage} stage the MSE {_change(before)} from B = {max(small):g} to the "
            f"better of 64 and 128, and {_change(after)} beyond"
        )
        return Finding(before > 0 and after <= MARGINAL, text, because)

    if not pick(results.sensitivity, panel="B"):
        return None
    return of_all(
        "Appendix A, Fig. 5",
        "A larger batch improves the estimate up to 64 to 128 prompts, and hardly beyond.",
        f"lower at 64 or 128 than at 16; at most {MARGINAL:.0%} lower beyond, in every stage",
        each_stage(results, find),
    )


CLAIMS = (
    epsilon_does_not_matter,
    larger_cache_helps,
    batch_size_saturates,
    grid_size_does_not_matter,
)


def _panel(results: Results, stage: str, panel: str) -> dict[float, SensitivityPoint]:
    rows = pick(results.sensitivity, stage=stage, panel=panel, estimator=BASIS)
    return {row.setting: row for row in rows}


def _change(cut: float) -> str:
    return f"falls by {cut:.0%}" if cut >= 0 else f"rises by {-cut:.0%}"


def _level(
    results: Results, panel: str, span: tuple[float, float], most: float, claim: str
) -> Statement | None:
    """A setting that does not matter in a span."""

    def find(stage: str) -> Finding:
        points = [
            point
            for setting, point in _panel(results, stage, panel).items()
            if span[0] <= setting <= span[1]
        ]
        low, high = min(points, key=lambda p: p.mse), max(points, key=lambda p: p.mse)
        if nothing := too_small(high.mse):
            return nothing
        because = (
            f"in the {stage} stage the MSE is {high.mse:.4f} at {high.setting:g} and "
            f"{low.mse:.4f} at {low.setting:g}, where {high.zeros:.1%} and {low.zeros:.1%} of the "
            "baselines are exactly 0"
        )
        text = f"{low.mse:.4f} to {high.mse:.4f}"
        return Finding(high.mse <= most * low.mse, text, because)

    if not pick(results.sensitivity, panel=panel):
        return None
    return of_all(
        "Appendix A, Fig. 5",
        claim,
        f"highest MSE at most {most:g} times the lowest, in every stage",
        each_stage(results, find),
    )
