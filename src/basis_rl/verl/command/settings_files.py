"""Files of settings that runs share: `recipes/settings.sh`, and one of each model."""

from __future__ import annotations

from basis_rl.verl.command.settings import Choice
from basis_rl.verl.command.shared import Settings, rollouts_of
from basis_rl.verl.command.stages import SOURCES, machines_note
from basis_rl.verl.command.text import array, assignments, comment
from basis_rl.verl.paper.models import MODELS
from basis_rl.verl.paper.objectives import OBJECTIVES
from basis_rl.verl.paper.setting import Group


def settings_lines(shared: Settings) -> list[str]:
    """Lines of the file that all others begin with."""
    models = " or ".join(MODELS)
    places = [("train", "$folder/train.parquet"), ("pass_rates", "$folder/pass-rates.parquet")]
    return [
        *comment(
            "Settings that all runs share. The other files begin with it, and name the model and "
            "the run: source settings.sh qwen3-4b grpo-basis-unb"
        ),
        *comment(SOURCES),
        *comment(machines_note(Choice(next(iter(MODELS))))),
        'model_name="${1:-}" run_name="${2:-}"',
        'recipes="$(dirname "$(realpath "${BASH_SOURCE[0]}")")"',
        "",
        'fail() { echo "$*" >&2; exit 1; }',
        "needs() {  # a file, and the script that writes it",
        '  test -f "$1" || fail "$1 is missing: run recipes/$2 $model_name first"',
        "}",
        'test -n "$model_name" && test -f "$recipes/$model_name/settings.sh" || \\',
        f"  fail \"no settings of model '$model_name': name {models}\"",
        "",
        "# Words of verl (common, training) and of basis-rl cache build (rollouts, offline).",
        "common=() training=() rollouts=() offline=()",
        'source "$recipes/$model_name/settings.sh"',
        *assignments([("folder", "$PWD/runs/$model_name"), *places]),
        'run="$folder/$run_name"',
        "",
        *_arrays(shared),
        *_alternatives(),
    ]


def model_lines(model: str, shared: Settings) -> list[str]:
    """Lines of the file of a model."""
    paper = MODELS[model]
    return [
        *comment(f"Settings that all runs of {paper.hub} share; ../settings.sh has the others."),
        *assignments([("model", paper.hub)]),
        "",
        *_arrays(shared),
        *array("offline+", [Group("Rollouts behind a pass rate", (paper.offline,))]),
    ]


def _arrays(settings: Settings) -> list[str]:
    """What is added to the arrays."""
    return [
        *array("common+", settings.common),
        *(array("training+", settings.training) if settings.training else []),
        *array("rollouts+", settings.rollouts),
    ]


def _alternatives() -> list[str]:
    """Arrays of which each run takes one: objectives, and numbers of rollouts."""
    lines = comment("Each run takes an objective, and a number of rollouts of a prompt.")
    for name, objective in OBJECTIVES.items():
        lines += array(name, [Group("", objective.settings)])
    model = next(iter(MODELS))
    for baseline, name in (("basis-unb", "one_rollout"), ("grpo-8", "eight_rollouts")):
        lines += array(name, [Group("", rollouts_of(Choice(model, baseline=baseline)))])
    return lines
