"""Value estimation (Section 5.1) as a shell script: GRPO on MATH, and three of its checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from basis_rl.errors import ConfigError
from basis_rl.verl.command.settings import Choice, common_groups, training_groups
from basis_rl.verl.command.stages import (
    CHECK,
    TRAIN,
    Places,
    cache_lines,
    checkpoint_note,
    finished,
    head,
    machines_note,
    prepare_lines,
    rollout_settings,
    variables_lines,
)
from basis_rl.verl.command.text import array, comment
from basis_rl.verl.paper.data import MATH
from basis_rl.verl.paper.setting import Group, Setting

MODEL, OBJECTIVE, BASELINE = "qwen2.5-math-7b", "grpo", "grpo-8"
FOLDER = "section-5.1"
CHECKPOINTS = {"early": 10, "middle": 50, "late": 100}
OFFLINE = Setting("--n", 64, "Appendix A: n = 64 by default")
WHY_RECORDED = "assumed: the prompts recorded below"
UP_TO = "trainer.total_training_steps=$step"
RECORDED = "$folder/recorded/validation.parquet"
TITLE = (
    "Section 5.1: Qwen/Qwen2.5-Math-7B trained with GRPO on MATH Level 3-5; value estimates at an "
    "early, a middle and a late checkpoint against 256 rollouts of each prompt."
)
_HEADINGS = {
    "prepare": "Prompts in verl's form, with the answers",
    "cache": "Pass rates of the reference policy",
    "check": "Is the run set up rightly? A few seconds, without Ray",
    "train": "Training with GRPO up to each checkpoint; the same script goes on from the last one",
    "evaluate": "Rollouts under the checkpoints, and the figures",
}
# What Section 5.1 says itself; all else of the training run is that of Section 5.2.
_SAID = {
    "actor_rollout_ref.model.path": "Section 5.1",
    "algorithm.adv_estimator": "Section 5.1: trained with GRPO",
    "actor_rollout_ref.actor.policy_loss.loss_mode": "Section 5.1: trained with GRPO",
}


def value_script(
    choice: Choice, places: Places, stages: Sequence[str], *, command: str | None = None
) -> str:
    """Shell script of Section 5.1.

    Parameters
    ----------
    choice : Choice
        With the model, objective and baseline of that section.
    stages : sequence of str
        Out of `basis_rl.verl.command.stages.STAGES`.

    Raises
    ------
    ConfigError
        If a number of steps is given.
    """
    if choice.steps is not None:
        raise ConfigError(
            f"--steps has no effect: Section 5.1 stops at {_checkpoints(', ')}; leave it out"
        )
    choice = replace(choice, steps=max(CHECKPOINTS.values()))
    needed = {"cache": places.pass_rates is None}
    chosen = [stage for stage in stages if needed.get(stage, True)]
    lines = [*head(TITLE, _notes(choice), command)]
    lines += variables_lines(choice, places, FOLDER, pass_rates=True)
    if {"check", "train"} & set(chosen):
        lines += ["", *array("common", restated(common_groups(choice)))]
        lines += array("training", restated(training_groups(choice)))
    parts = {
        "prepare": lambda: _prepare(places),
        "cache": lambda: _cache(choice),
        "check": lambda: [CHECK],
        "train": lambda: _train(choice),
        "evaluate": lambda: _figures(choice),
    }
    return finished(lines, chosen, _HEADINGS, parts)


def _notes(choice: Choice) -> list[str]:
    return [machines_note(choice), "The paper gives no time for Section 5.1."]


def _checkpoints(between: str) -> str:
    return between.join(str(step) for step in CHECKPOINTS.values())


def restated(groups: Sequence[Group]) -> list[Group]:
    """Settings with what Section 5.1 says of them, which is little."""
    return [
        Group(group.title, tuple(_restate(each) for each in group.settings)) for group in groups
    ]


def _restate(setting: Setting) -> Setting:
    if setting.key == "trainer.save_freq":
        # verl saves the last step of a run whenever this is positive.
        value = max(CHECKPOINTS.values())
        return replace(setting, value=value, source="assumed: at the last step of each part below")
    if setting.key in _SAID:
        return replace(setting, source=_SAID[setting.key])
    if setting.key.startswith("trainer.total_training_steps"):
        return replace(setting, source="assumed: up to the late checkpoint")
    said = setting.source
    if said.startswith(("Section 5.2", "Appendix D", "--gpus;", "--nodes;")):
        return replace(setting, source=f"assumed: not said of Section 5.1; {said}")
    return setting


def _prepare(places: Places) -> list[str]:
    return [*(prepare_lines(MATH) if places.train is None else []), *recorded_lines()]


def recorded_lines() -> list[str]:
    """Lines that choose the prompts whose values are measured."""
    return [
        *comment(
            "Values are measured on a random fifth of the training prompts (assumed; the paper has "
            "10 batches of 64 and 500 batches, and does not say out of how many)."
        ),
        f'test -f "{RECORDED}" || basis-rl verl prepare "$train" --verifier math \\',
        "  --answer-column reward_model.ground_truth --validation-fraction 0.2 \\",
        '  --out "$folder/recorded"',
    ]


def _cache(choice: Choice) -> list[str]:
    return cache_lines(choice, RECORDED, OFFLINE, WHY_RECORDED)


def _train(choice: Choice) -> list[str]:
    return [
        *checkpoint_lines(choice),
        'mkdir -p "$run"',
        *until_each_checkpoint(TRAIN[0], f"{TRAIN[1]} {UP_TO}"),
    ]


def checkpoint_lines(choice: Choice) -> list[str]:
    """Which checkpoints there are, and their size."""
    return [
        *comment(
            "Steps: Figure 2's files are called v_step10, v_step50 and v_step100; the text says "
            "early, middle and late."
        ),
        *checkpoint_note(choice, len(CHECKPOINTS)),
    ]


def until_each_checkpoint(*training: str) -> list[str]:
    """Lines that train to each checkpoint that there is not."""
    return [
        f"for step in {_checkpoints(' ')}; do",
        '  saved="$(cat "$run/latest_checkpointed_iteration.txt" 2>/dev/null || echo 0)"',
        '  test "$saved" -ge "$step" || \\',
        *(f"  {line}" for line in training),
        "done",
    ]


def _figures(choice: Choice) -> list[str]:
    return figure_lines(*rollout_settings(choice))


def figure_lines(*rollouts: Setting, others: str = "") -> list[str]:
    """Lines that record rollouts under the checkpoints, and draw the figures.

    Parameters
    ----------
    *rollouts : Setting
        How they are sampled.
    others : str
        The same as words of bash.
    """
    recording = (
        Setting("--data", RECORDED, "assumed: a fifth of the prompts", expands=True),
        Setting("--oracle", 256, "Section 5.1, Appendix A"),
        Setting("--rollouts", 8, "Appendix A: up to eight rewards a prompt"),
        Setting("--seed", 1, "assumed: not that of the pass rates"),
        *rollouts,
    )
    drawing = (
        Setting("--batch-size", 64, "Appendix A"),
        Setting("--repeats", 10, "Appendix A; the default, 100, leaves less to chance"),
        Setting("--batches", 500, "Appendix A"),
    )
    records = " ".join(f'"$run/{name}.parquet"' for name in CHECKPOINTS)
    names = " ".join(f"{name}:{step}" for name, step in CHECKPOINTS.items())
    return [
        *array("recording", [Group("", recording)]),
        *array("drawing", [Group("", drawing)]),
        f"for checkpoint in {names}; do",
        '  name="${checkpoint%:*}" step="${checkpoint#*:}" merged="$run/merged/$name"',
        '  test -f "$merged/config.json" || python -m verl.model_merger merge --backend fsdp \\',
        '    --local_dir "$run/global_step_$step/actor" --target_dir "$merged"',
        f'  basis-rl lab record "$merged" "${{recording[@]}}"{others} --step "$step" \\',
        '    --pass-rates "$pass_rates" --out "$run/$name.parquet"',
        "done",
        f"basis-rl lab figures {records} \\",
        '  "${drawing[@]}" --pass-rates "$pass_rates" --out "$run/figures"',
    ]
