"""Evaluation of a run's checkpoints by verl's own validation."""

from __future__ import annotations

from collections.abc import Mapping

from basis_rl.verl.command.settings import METRICS_FILE
from basis_rl.verl.command.stages import MAIN
from basis_rl.verl.command.text import array, comment, quoted
from basis_rl.verl.paper.data import ASKED, GREEDY, SAMPLED, Benchmark
from basis_rl.verl.paper.setting import Group, Setting

EVERY = 50
_VAL = "actor_rollout_ref.rollout.val_kwargs."


def evaluated_steps(steps: int) -> list[int]:
    """Steps of the checkpoints that are evaluated: 50 to the last one."""
    found = list(range(EVERY, steps + 1, EVERY))
    return found if found and found[-1] == steps else [*found, steps]


def preparation_of_benchmarks() -> list[str]:
    """Lines that write the seven benchmarks of Table 1 in verl's form."""
    lines = [
        *comment(
            "Benchmarks: Section 5.2 names them. Assumed: hub ids, and that they are asked as "
            "DAPO-Math-17K's prompts are."
        ),
        f"asked={quoted([ASKED])}",
        "benchmark() {  # name, hub id, split, columns of the question and of the answer",
        '  test -f "$folder/benchmarks/$1.parquet" || basis-rl verl prepare "$2" --split "$3" \\',
        '    --template "${asked/QUESTION/$4}" --answer-column "$5" --data-source "$1" \\',
        '    --verifier math --out "$folder/benchmarks" --name "$1"',
        "}",
    ]
    for name, each in {**SAMPLED, **GREEDY}.items():
        words = ["benchmark", name, each.hub, each.split, each.question, each.answer]
        lines.append(f"{quoted(words):<78}  # {each.title}, {each.problems} problems")
    return lines


def evaluation_lines(steps: str, *others: Setting) -> list[str]:
    """Lines that evaluate checkpoints twice: sampled rollouts, and a greedy one.

    Parameters
    ----------
    steps : str
        Of the checkpoints, as words of bash.
    *others : Setting
        What verl wants besides, and evaluation does not depend on.
    """
    return [
        *comment(
            "Figures 6 and 7 have steps 50 to 300 (every 50: assumed); Table 1 the last. Accuracy: "
            "val-core/<benchmark>/acc/mean@32 and mean@1, printed and in the files below. Every "
            "completion is kept beside them."
        ),
        *array("evaluation", [Group("", (*_settings(), *others))]),
        *array("sampled", [Group("Section 5.2: avg@32", _sampled())]),
        *array("greedy", [Group("Section 5.2: one greedy rollout", _greedy())]),
        f"for step in {steps}; do",
        "  for way in sampled greedy; do",
        '    scores="$run/evaluation/step-$step-$way.jsonl"',
        '    test ! -s "$scores" || continue',
        '    mkdir -p "$run/evaluation"',
        '    declare -n of_way="$way"',
        f'    {MAIN} "${{common[@]}}" "${{evaluation[@]}}" "${{of_way[@]}}" \\',
        f"      \"{METRICS_FILE}='$scores'\" \\",
        "      \"trainer.resume_from_path='$run/global_step_$step'\" \\",
        "      \"trainer.validation_data_dir='$run/evaluation/$way'\"",
        "  done",
        "done",
    ]


def _settings() -> tuple[Setting, ...]:
    return (
        Setting("trainer.val_only", True, "no training"),
        Setting("trainer.val_before_train", True, "verl validates here"),
        Setting("trainer.resume_mode", "resume_path", "of the checkpoint below"),
        Setting("algorithm.adv_estimator", "grpo", "not used: nothing is trained"),
        Setting(f"{_VAL}top_p", 1.0, "assumed: as in training"),
        Setting(f"{_VAL}top_k", -1, "assumed: as in training"),
    )


def _sampled() -> tuple[Setting, ...]:
    return (
        _files(SAMPLED),
        Setting(f"{_VAL}n", 32, "Section 5.2: avg@32 for AIME, AMC and HMMT"),
        Setting(f"{_VAL}do_sample", True, "Section 5.2: sampled rollouts"),
        Setting(f"{_VAL}temperature", 1.0, "assumed: as in training"),
    )


def _greedy() -> tuple[Setting, ...]:
    return (
        _files(GREEDY),
        Setting(f"{_VAL}n", 1, "Section 5.2: a single greedy deterministic rollout"),
        Setting(f"{_VAL}do_sample", False, "Section 5.2"),
        Setting(f"{_VAL}temperature", 0, "Section 5.2"),
    )


def _files(benchmarks: Mapping[str, Benchmark]) -> Setting:
    files = ",".join(f"'$folder/benchmarks/{name}.parquet'" for name in benchmarks)
    titles = ", ".join(each.title for each in benchmarks.values())
    return Setting("data.val_files", f"[{files}]", titles, expands=True)
