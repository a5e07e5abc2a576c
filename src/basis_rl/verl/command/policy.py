"""Policy optimization (Section 5.2, Table 4) as a shell script."""

from __future__ import annotations

from collections.abc import Sequence

from basis_rl.verl.command.evaluation import (
    evaluated_steps,
    evaluation_lines,
    preparation_of_benchmarks,
)
from basis_rl.verl.command.settings import Choice, common_groups, training_groups
from basis_rl.verl.command.stages import (
    CHECK,
    STAGES,
    TRAIN,
    Places,
    cache_lines,
    checkpoint_note,
    finished,
    head,
    machines_note,
    prepare_lines,
    variables_lines,
)
from basis_rl.verl.command.text import array, comment
from basis_rl.verl.paper.data import DAPO
from basis_rl.verl.paper.times import what_it_costs, what_the_cache_costs

_HEADINGS = {
    "prepare": "Prompts in verl's form, with the answers",
    "cache": "Pass rates of the reference policy: once for all objectives and baselines",
    "check": "Is the run set up rightly? A few seconds, without Ray",
    "train": "Training; the same script goes on from the last checkpoint",
    "evaluate": "Evaluation of the checkpoints",
}
_EQ5 = {
    "paper": (
        "Two readings of Eq. 5. Preset paper, used here, takes its mean over the whole batch. As "
        "printed (--preset paper-literal) it is over the active set, which a small beta can shrink "
        "to a few hard prompts that all fail: the loss is 0 then, and nearly every baseline too. "
        "For a beta from the batch before (Appendix D) add "
        "+algorithm.basis.calibration=previous-batch."
    ),
    "paper-literal": (
        "Eq. 5 as printed: its mean is over the active set, which a small beta can shrink to a few "
        "hard prompts that all fail: the loss is 0 then, and nearly every baseline too. Preset "
        "paper takes the mean over the whole batch."
    ),
}
_MORE = "More overrides of verl for training may follow: bash FILE trainer.save_freq=10"
_GPG = (
    "GPG's factor is not in the paper. verl's own gpg estimator multiplies advantages by "
    "rollouts / nonzero rewards (assumed with 8 rollouts); another estimator has no such factor "
    "(assumed with one)."
)


def policy_script(
    choice: Choice, places: Places, stages: Sequence[str] = STAGES, *, command: str | None = None
) -> str:
    """Shell script of a run.

    Parameters
    ----------
    stages : sequence of str
        Out of `STAGES`.
    command : str, optional
        What has written the script, for its head.
    """
    builds = choice.of_baseline.pass_rates and places.pass_rates is None
    chosen = [stage for stage in stages if stage != "cache" or builds]
    notes = [machines_note(choice), *run_notes(choice), _MORE]
    lines = [*head(title_of(choice), notes, command), *_variables(choice, places)]
    if {"check", "train", "evaluate"} & set(chosen):
        lines += ["", *array("common", common_groups(choice))]
    if {"check", "train"} & set(chosen):
        lines += array("training", training_groups(choice))
    parts = {
        "prepare": lambda: _prepare(places),
        "cache": lambda: _cache(choice),
        "check": lambda: [CHECK],
        "train": lambda: _train(choice),
        "evaluate": lambda: _evaluate(choice),
    }
    return finished(lines, chosen, _HEADINGS, parts)


def title_of(choice: Choice) -> str:
    """What a run is, in a sentence."""
    rollouts = choice.of_baseline.rollouts
    each = "one rollout" if rollouts == 1 else f"{rollouts} rollouts"
    return (
        f"{choice.of_model.hub} on DAPO-Math-17K: {choice.of_objective.title} with "
        f"{choice.of_baseline.title}, {each} a prompt, {choice.total_steps} steps."
    )


def run_notes(choice: Choice) -> list[str]:
    """What a run costs, and what its baseline and its objective leave open."""
    notes = [what_it_costs(choice.model, choice.objective, choice.baseline, choice.total_steps)]
    if choice.of_baseline.variant is not None:
        notes.append(_EQ5[choice.preset])
    if choice.objective == "gpg":
        notes.append(_GPG)
    return notes


def _variables(choice: Choice, places: Places) -> list[str]:
    return variables_lines(choice, places, choice.model, pass_rates=choice.of_baseline.pass_rates)


def _prepare(places: Places) -> list[str]:
    lines = prepare_lines(DAPO) if places.train is None else []
    return [*lines, *preparation_of_benchmarks()]


def _cache(choice: Choice) -> list[str]:
    why = "Appendix D: each training prompt"
    return [
        *comment(what_the_cache_costs()),
        *cache_lines(choice, "$train", choice.offline_rollouts, why),
    ]


def _train(choice: Choice) -> list[str]:
    return [
        *checkpoint_note(choice, len(evaluated_steps(choice.total_steps))),
        'mkdir -p "$run"',
        *TRAIN,
    ]


def _evaluate(choice: Choice) -> list[str]:
    return evaluation_lines(" ".join(str(step) for step in evaluated_steps(choice.total_steps)))
