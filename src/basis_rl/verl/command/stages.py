"""Parts that the scripts have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from basis_rl.errors import ConfigError, nearest
from basis_rl.verl.command.settings import METRICS_FILE, Choice
from basis_rl.verl.command.text import array, assignments, comment, heading
from basis_rl.verl.paper.data import TrainingSet
from basis_rl.verl.paper.setting import Group, Setting

STRICT = "set -euo pipefail"
STAGES = ("prepare", "cache", "check", "train", "evaluate")
MAIN = "python -m verl.trainer.main_ppo"
CHECK = 'basis-rl verl check "${common[@]}" "${training[@]}" "$@"'
# verl's file logger begins its file anew at each start.
METRICS = f"\"{METRICS_FILE}='$run/metrics-$(date +%s).jsonl'\""
TRAIN = (f'{MAIN} "${{common[@]}}" "${{training[@]}}" \\', f'  {METRICS} "$@"')
SOURCES = (
    "Beside each setting stands the place of the paper (arXiv 2605.27293) that says it; "
    '"assumed" is what the paper does not say.'
)
_AS_ONLINE = "assumed: as online (Appendix D)"
_SIZED = "assumed: sized for the GPUs"
_LONGER = "assumed: room for prompts that verl leaves out, as too long"


@dataclass(frozen=True)
class Places:
    """Files of the user's, and where to write.

    Attributes
    ----------
    out : str
        Folder of all runs.
    train : str, optional
        Training prompts that ``basis-rl verl prepare`` has written; else the script does.
    pass_rates : str, optional
        Pass rates that there are; else the script builds them.
    """

    out: str = "runs"
    train: str | None = None
    pass_rates: str | None = None


def check_stages(stages: Sequence[str]) -> tuple[str, ...]:
    """Stages in the order of the script; ``all`` is all of them.

    Raises
    ------
    ConfigError
        If one is unknown.
    """
    for stage in stages:
        if stage not in (*STAGES, "all"):
            raise ConfigError(f"--what {stage} is not known{nearest(stage, [*STAGES, 'all'])}")
    chosen = STAGES if "all" in stages else stages
    return tuple(stage for stage in STAGES if stage in chosen)


def opening(title: str, notes: Sequence[str], command: str | None = None) -> list[str]:
    """First lines of a file: what it is, and the command that prints it."""
    lines = ["#!/usr/bin/env bash", *comment(title)]
    for note in notes:
        lines += comment(note)
    return lines if command is None else [*lines, "#", f"#   {command}"]


def head(title: str, notes: Sequence[str], command: str | None) -> list[str]:
    """First lines of a script."""
    # A subshell: where the script is pasted, a failure does not end the terminal.
    return [*opening(title, (SOURCES, *notes), command), "(", STRICT, ""]


def finished(
    lines: Sequence[str],
    stages: Sequence[str],
    headings: Mapping[str, str],
    parts: Mapping[str, Callable[[], list[str]]],
) -> str:
    """A script: its first lines, and its stages under numbered headings."""
    text = list(lines)
    for number, stage in enumerate(stages, 1):
        text += [*heading(number, headings[stage]), *parts[stage]()]
    return "\n".join([*text, ")"]) + "\n"


def machines_note(choice: Choice) -> str:
    """What the script is sized for."""
    gpu = f"{choice.gpu}, " if choice.memory is None else ""
    machines = "" if choice.nodes == 1 else f" on each of {choice.nodes} machines"
    note = f"Sized for {choice.gpus} GPUs ({gpu}{choice.gpu_memory:g} GB){machines}."
    if choice.nodes == 1:
        return note
    return (
        f"{note} Ray runs on all of them first (recipes/README.md), and the folders are on a file "
        "system that all of them see."
    )


def variables_lines(choice: Choice, places: Places, folder: str, *, pass_rates: bool) -> list[str]:
    """Variables of a script; the environment may set them (MODEL, FOLDER, …)."""
    values = [
        ("model", choice.of_model.hub),
        ("folder", f"{_absolute(places.out).rstrip('/')}/{folder}"),
        ("train", _given(places.train, "train.parquet")),
    ]
    if pass_rates:
        values.append(("pass_rates", _given(places.pass_rates, "pass-rates.parquet")))
    return [*assignments(values), f'run="$folder/{choice.name}"']


def _given(file: str | None, default: str) -> str:
    return f"$folder/{default}" if file is None else _absolute(file)


def _absolute(path: str) -> str:
    """A path that holds wherever verl's processes run.

    Raises
    ------
    ConfigError
        If it is empty, is elsewhere, or cannot stand in quotes of bash and of verl's configuration.
    """
    if not path or "://" in path:
        raise ConfigError(
            f"{path!r} is no path of a file system: give one that all machines of the run see"
        )
    # A variable may stand at the start: $SCRATCH/runs.
    if re.search(r"""["'`{}\\\r\n]|(?<!^)\$|^\$(?!\w+(/|$))""", path):
        raise ConfigError(
            f"{path!r} cannot stand in a script: give a path without quotes, braces, backslashes "
            "and dollar signs (but for a variable at its start)"
        )
    if path.startswith(("/", "$")):
        return path
    return f"$HOME{path[1:]}" if path == "~" or path.startswith("~/") else f"$PWD/{path}"


def prepare_lines(prompts: TrainingSet) -> list[str]:
    """Lines that write the training prompts."""
    return [
        *array("prompts", [Group(f"{prompts.title} ({prompts.source})", prompts.settings)]),
        'test -f "$train" || basis-rl verl prepare "${prompts[@]}" --verifier math \\',
        '  --out "$(dirname "$train")" --name "$(basename "$train" .parquet)"',
    ]


def cache_lines(choice: Choice, data: str, offline: Setting, why: str) -> list[str]:
    """Lines that build the pass rates on the GPUs of the run.

    Parameters
    ----------
    data : str
        Prompts, as a variable of the script.
    offline : Setting
        Rollouts of a prompt.
    why : str
        Source of the choice of prompts.
    """
    first, last = cache_settings(data, why)
    settings = (*first, offline, *rollout_settings(choice), *last)
    return [
        *array("cache", [Group("", settings)]),
        'basis-rl cache build "${cache[@]}" --out "$pass_rates"',
    ]


def cache_settings(data: str, why: str) -> tuple[tuple[Setting, ...], tuple[Setting, ...]]:
    """Options of the pass rates beside those of their rollouts: before and after them."""
    first = (
        Setting("--model", "$model", "Section 4: the initial policy", expands=True),
        Setting("--data", data, why, expands=True),
    )
    return first, (Setting("--seed", 0, "assumed"),)


def rollout_settings(choice: Choice) -> tuple[Setting, ...]:
    """How rollouts are sampled and judged outside verl: as in training, on the same GPUs."""
    return (
        Setting("--temperature", 1.0, _AS_ONLINE),
        Setting("--top-p", 1.0, _AS_ONLINE),
        Setting("--top-k", 0, f"{_AS_ONLINE}; 0 here is verl's -1"),
        Setting("--max-tokens", choice.of_model.max_response.value, _AS_ONLINE),
        Setting("--verifier", "math", "Appendix D: the same verifier as online"),
        *_engine(choice),
    )


def _engine(choice: Choice) -> tuple[Setting, ...]:
    """All GPUs sample with vLLM: in this process for one, in Ray's workers for several."""
    size, total = choice.sizing().tensor_parallel, choice.gpus * choice.nodes
    length = choice.of_model.offline_sequence
    if total == 1:
        return (
            Setting("--engine", "vllm", _SIZED),
            Setting("--engine-option", f"max_model_len={length}", _LONGER),
        )
    split = "" if size == 1 else f", tensor_parallel_size: {size}"
    words = [
        Setting("--engine", "ray", _SIZED),
        Setting("--engine-option", "engine=vllm", _SIZED),
        Setting("--engine-option", f"workers={total // size}", _SIZED),
        Setting("--engine-option", f"engine_options={{max_model_len: {length}{split}}}", _LONGER),
    ]
    if size > 1:
        words.append(Setting("--engine-option", f"gpus_per_worker={size}", _SIZED))
    return tuple(words)


def checkpoint_note(choice: Choice, checkpoints: int) -> list[str]:
    """How much room the checkpoints take."""
    size = 12 * choice.of_model.parameters / 1e9  # float32 weights and Adam's two moments
    return comment(
        f"A checkpoint takes about {size:.0f} GB (weights and optimizer in float32), "
        f"{checkpoints} of them {size * checkpoints:.0f} GB."
    )
