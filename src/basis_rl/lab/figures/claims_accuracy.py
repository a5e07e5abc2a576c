"""Statements of Section 5.1 on the error over all prompts: Fig. 3 a."""

from __future__ import annotations

from collections.abc import Callable

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

REDUCTION = 0.69


def reduces(results: Results) -> Statement | None:
    """BASIS against REINFORCE++."""

    def find(stage: str) -> Finding | None:
        mse = _mse(results, stage)
        if not mse:
            return None
        if nothing := too_small(mse[REINFORCE]):
            return nothing
        cut = 1.0 - mse[BASIS] / mse[REINFORCE]
        text = f"BASIS {mse[BASIS]:.4f}, REINFORCE++ {mse[REINFORCE]:.4f}, {_less(cut)}" + _ours(
            mse, lambda value: _less(1.0 - value / mse[REINFORCE])
        )
        because = f"the reduction is {cut:.0%}: {ends(results, stage)}"
        return Finding(cut >= REDUCTION, text, because)

    return of_stages(
        results,
        "Section 5.1, finding 1, Fig. 3 a",
        "BASIS reduces the MSE of REINFORCE++ by 69%.",
        f"MSE at least {REDUCTION:.0%} lower",
        find,
    )


def beats_eight(results: Results) -> Statement | None:
    """BASIS against GRPO and RLOO with 8 rollouts."""

    def find(stage: str) -> Finding | None:
        mse = _mse(results, stage)
        eight = {label: mse[name] for name, label in _EIGHT.items() if name in mse}
        if not mse:
            return None
        if not eight:
            return Finding(None, "not measured", "fewer than 8 rollouts of a prompt are shown")
        if nothing := too_small(*eight.values()):
            return nothing
        told = ", ".join(f"{label} {value:.4f}" for label, value in eight.items())
        text = f"BASIS {mse[BASIS]:.4f}, {told}" + _ours(mse, lambda value: _below(value, eight))
        because = (
            f"BASIS's MSE is {mse[BASIS] / min(eight.values()):.1f} times that of "
            f"{min(eight, key=lambda label: eight[label])}: {ends(results, stage)}"
        )
        return Finding(mse[BASIS] < min(eight.values()), text, because)

    return of_stages(
        results,
        "Section 5.1, finding 1, Fig. 3 a",
        "With one rollout BASIS has a lower MSE than GRPO and RLOO with 8.",
        "lower than both",
        find,
    )


def leave_one_out_is_larger(results: Results) -> Statement | None:
    """RLOO against GRPO."""

    def find(stage: str) -> Finding | None:
        mse = _mse(results, stage)
        pairs = [
            (g, mse[f"leave-one-out-{g}"], mse[f"group-mean-{g}"])
            for g in (2, 4, 8)
            if f"leave-one-out-{g}" in mse
        ]
        if not pairs:
            return None
        if nothing := too_small(*(min(pair[1:]) for pair in pairs)):
            return nothing
        text = ", ".join(f"G = {g}: {rloo:.4f} and {grpo:.4f}" for g, rloo, grpo in pairs)
        wrong = [g for g, rloo, grpo in pairs if rloo <= grpo]
        because = f"at G = {', '.join(map(str, wrong))} RLOO's is not larger"
        return Finding(not wrong, f"RLOO and GRPO at {text}", because)

    return of_stages(
        results,
        "Section 5.1, finding 1, Fig. 3 a",
        "RLOO has a larger MSE than GRPO, since it leaves one rollout out.",
        "larger for every G",
        find,
    )


CLAIMS = (reduces, beats_eight, leave_one_out_is_larger)
_EIGHT = {"group-mean-8": "GRPO 8", "leave-one-out-8": "RLOO 8"}
_OURS = {ROBUST: "preset robust", "basis-online": "basis-online"}


def _mse(results: Results, stage: str) -> dict[str, float]:
    return {row.estimator: row.mse for row in pick(results.accuracy, stage=stage)}


def _ours(mse: dict[str, float], judge: Callable[[float], str]) -> str:
    """What this package's other estimators come to."""
    return "".join(
        f"; {label} {mse[name]:.4f}, {judge(mse[name])}"
        for name, label in _OURS.items()
        if name in mse
    )


def _less(cut: float) -> str:
    return f"{cut:.0%} less" if cut >= 0 else f"{-cut:.0%} more"


def _below(value: float, eight: dict[str, float]) -> str:
    return "lower than both" if value < min(eight.values()) else "not lower than both"
