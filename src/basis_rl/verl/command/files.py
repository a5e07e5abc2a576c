"""The paper's runs as files that share what they have in common: the folder `recipes/`."""

from __future__ import annotations

from basis_rl.verl.command.evaluation import (
    evaluated_steps,
    evaluation_lines,
    preparation_of_benchmarks,
)
from basis_rl.verl.command.policy import run_notes, title_of
from basis_rl.verl.command.settings import ROLLOUTS, Choice
from basis_rl.verl.command.settings_files import model_lines, settings_lines
from basis_rl.verl.command.shared import Settings, baseline_of, settings_of, without
from basis_rl.verl.command.stages import (
    CHECK,
    STRICT,
    TRAIN,
    cache_settings,
    checkpoint_note,
    opening,
    prepare_lines,
)
from basis_rl.verl.command.text import array, comment, quoted
from basis_rl.verl.command.value import (
    BASELINE,
    CHECKPOINTS,
    FOLDER,
    MODEL,
    OBJECTIVE,
    OFFLINE,
    RECORDED,
    TITLE,
    UP_TO,
    WHY_RECORDED,
    checkpoint_lines,
    figure_lines,
    recorded_lines,
    restated,
    until_each_checkpoint,
)
from basis_rl.verl.paper.data import DAPO, GREEDY, MATH, SAMPLED
from basis_rl.verl.paper.models import MODELS
from basis_rl.verl.paper.setting import Group, Setting
from basis_rl.verl.paper.times import what_the_cache_costs

# Objective, baseline and preset of each file of a model: the paper's tables, and this package's.
_TABLES_1_AND_3 = [
    (objective, baseline, "paper")
    for objective in ("grpo", "gpg", "gspo")
    for baseline in ("basis-unb", "vanilla", "reinforce++", "grpo-8")
]
_OURS = [
    ("grpo", "robust", "paper"),
    ("grpo", "online", "paper"),
    ("grpo", "basis-unb", "paper-literal"),
]
_TABLE_4 = [
    ("grpo", baseline, "paper") for baseline in ("basis-unb", "basis-vop", "basis-rvg", "grpo-8")
]
_RUNS = {"qwen3-4b": [*_TABLES_1_AND_3, *_OURS], "qwen2.5-math-7b": _TABLE_4}
_DEFAULTS = {"objective": "grpo", "baseline": "basis-unb", "preset": "paper"}


def runs() -> dict[str, Choice]:
    """File of each run of policy optimization."""
    choices = [Choice(model, *names) for model, found in _RUNS.items() for names in found]
    return {f"{choice.model}/{choice.name}.sh": choice for choice in choices}


def printed_by(choice: Choice) -> str:
    """Command that prints a run as one script."""
    words = ["basis-rl", "verl", "command", "--model", choice.model]
    for name, default in _DEFAULTS.items():
        value = getattr(choice, name)
        if value != default:
            words += [f"--{name}", value]
    return quoted(words)


def recipe_files() -> dict[str, str]:
    """All files of `recipes/` with their text."""
    found = {model: _shared(model) for model in MODELS}
    first, *others = found.values()
    of_all = first.shared_with(others)
    files = {
        "settings.sh": settings_lines(of_all),
        "data.sh": _data(),
        "pass-rates.sh": _pass_rates(),
        "train.sh": _train(),
        "evaluate.sh": _evaluate(),
    }
    for model, shared in found.items():
        files[f"{model}/settings.sh"] = model_lines(model, shared.without(of_all))
    for name, choice in runs().items():
        files[name] = _run(choice, found[choice.model])
    files["section-5.1/grpo-math.sh"] = _value(found[MODEL])
    return {name: "\n".join(lines) + "\n" for name, lines in files.items()}


def _shared(model: str) -> Settings:
    first, *others = [settings_of(each) for each in runs().values() if each.model == model]
    return first.shared_with(others)


def _begin(title: str, *notes: str, command: str | None = None) -> list[str]:
    return [*opening(title, notes, command), STRICT]


def _taken(choice: Choice) -> str:
    rollouts = "one_rollout" if choice.of_baseline.rollouts == 1 else "eight_rollouts"
    return f'training+=("${{{choice.objective}[@]}}" "${{{rollouts}[@]}}")'


def _data() -> list[str]:
    return [
        *_begin("Prompts of a model's runs, and the benchmarks: bash recipes/data.sh qwen3-4b"),
        _source('"${1:-}"', here=True),
        "",
        *prepare_lines(DAPO),
        *preparation_of_benchmarks(),
    ]


def _pass_rates() -> list[str]:
    first, last = cache_settings("$train", "Appendix D: each training prompt")
    return [
        *_begin(
            "Pass rates of the reference policy, once for all runs of a model:",
            "bash recipes/pass-rates.sh qwen3-4b",
            "More options of basis-rl cache build may follow: --n 8",
            what_the_cache_costs(),
        ),
        _source('"${1:-}"', here=True),
        'needs "$train" data.sh',
        "",
        *array("cache", [Group("", (*first, *last))]),
        'basis-rl cache build "${cache[@]}" "${offline[@]}" "${rollouts[@]}" \\',
        '  --out "$pass_rates" "${@:2}"',
    ]


def _train() -> list[str]:
    return [
        *comment(
            "Last part of a run: check, and training, which goes on from the last checkpoint."
        ),
        CHECK,
        'mkdir -p "$run"',
        *TRAIN,
    ]


def _evaluate() -> list[str]:
    benchmarks = " ".join([*SAMPLED, *GREEDY])
    batch = Setting("data.train_batch_size", ROLLOUTS, "not used: nothing is trained")
    usage = "bash recipes/evaluate.sh qwen3-4b grpo-basis-unb 50 100 150"
    return [
        *_begin("Evaluation of a run's checkpoints, named by their steps:", usage),
        _source('"${1:-}" "${2:-}"', here=True),
        f'test $# -ge 3 || fail "give model, run and steps: {usage}"',
        f"for name in {benchmarks}; do",
        '  needs "$folder/benchmarks/$name.parquet" data.sh',
        "done",
        'for step in "${@:3}"; do',
        '  saved="$run/global_step_$step"',
        '  test -d "$saved" || fail "$saved is missing: run $run_name.sh up to that step first"',
        "done",
        "",
        *evaluation_lines('"${@:3}"', batch),
    ]


def _run(choice: Choice, shared: Settings) -> list[str]:
    own = settings_of(choice).without(shared)
    checkpoints = len(evaluated_steps(choice.total_steps))
    return [
        *_begin(
            title_of(choice),
            *run_notes(choice),
            " ".join(line.removeprefix("# ") for line in checkpoint_note(choice, checkpoints)),
            "More overrides of verl may follow: trainer.save_freq=10. The run as one script:",
            command=printed_by(choice),
        ),
        _source(f"{choice.model} {choice.name}"),
        'needs "$train" data.sh',
        *(['needs "$pass_rates" pass-rates.sh'] if choice.of_baseline.pass_rates else []),
        "",
        _taken(choice),
        *array("training+", [baseline_of(choice), *own.common, *own.training]),
        _TRAIN,
    ]


_TRAIN = 'source "$recipes/train.sh" "$@"'


def _source(words: str, *, here: bool = False) -> str:
    folder = "" if here else "../"
    return f'source "$(dirname "${{BASH_SOURCE[0]}}")/{folder}settings.sh" {words}'


def _value(shared: Settings) -> list[str]:
    choice = Choice(MODEL, OBJECTIVE, BASELINE, steps=max(CHECKPOINTS.values()))
    everything = settings_of(choice)
    own = [
        *restated([baseline_of(choice)]),
        *without(restated(everything.common), shared.common),
        *without(restated(everything.training), shared.training),
    ]
    first, last = cache_settings(RECORDED, WHY_RECORDED)
    return [
        *_begin(
            TITLE,
            "The paper gives no time. Settings that are not here are those of Section 5.2 "
            "(../settings.sh), which is assumed. The run as one script:",
            command=f"basis-rl verl command --study {FOLDER}",
        ),
        f'FOLDER="${{FOLDER:-$PWD/runs/{FOLDER}}}"',
        _source(f"{MODEL} {choice.name}"),
        "",
        _taken(choice),
        *array("training+", own),
        "",
        *prepare_lines(MATH),
        *recorded_lines(),
        "",
        *array("cache", [Group("", (*first, OFFLINE, *last))]),
        'basis-rl cache build "${cache[@]}" "${rollouts[@]}" --out "$pass_rates"',
        "",
        *checkpoint_lines(choice),
        *until_each_checkpoint(f"{_TRAIN} {UP_TO}"),
        "",
        *figure_lines(others=' "${rollouts[@]}"'),
    ]
