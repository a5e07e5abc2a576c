"""The paper's three policy objectives in verl; it names them and gives none of their constants."""

from __future__ import annotations

from dataclasses import dataclass

from basis_rl.verl.paper.setting import Setting

_ACTOR = "actor_rollout_ref.actor."


@dataclass(frozen=True)
class Objective:
    """A policy objective.

    Attributes
    ----------
    title : str
        As the paper writes it.
    settings : tuple of Setting
        Of the loss.
    group_estimator : str
        verl's own estimator of the objective's original form with several rollouts a prompt.
    """

    title: str
    settings: tuple[Setting, ...]
    group_estimator: str


def _loss(mode: str, aggregation: str, why: str) -> tuple[Setting, ...]:
    return (
        Setting(f"{_ACTOR}policy_loss.loss_mode", mode, "Section 5.2 names the objective"),
        Setting(f"{_ACTOR}loss_agg_mode", aggregation, f"assumed: {why}"),
    )


def _clip(low: float, high: float, why: str) -> tuple[Setting, ...]:
    return (
        Setting(f"{_ACTOR}clip_ratio_low", low, f"assumed: {why}"),
        Setting(f"{_ACTOR}clip_ratio_high", high, f"assumed: {why}"),
    )


_VERL = "verl's default"
OBJECTIVES = {
    "grpo": Objective(
        "GRPO",
        (
            *_loss("vanilla", "token-mean", _VERL),
            *_clip(0.2, 0.2, _VERL),
            Setting(f"{_ACTOR}clip_ratio_c", 3.0, "assumed: verl's default (dual clip)"),
        ),
        "grpo",
    ),
    "gpg": Objective("GPG", _loss("gpg", "token-mean", _VERL), "gpg"),
    "gspo": Objective(
        "GSPO",
        (
            *_loss("gspo", "seq-mean-token-mean", "the GSPO paper's loss (arXiv 2507.18071)"),
            *_clip(0.0003, 0.0004, "the GSPO paper's ranges (arXiv 2507.18071)"),
        ),
        "grpo",
    ),
}
