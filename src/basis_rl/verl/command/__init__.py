"""Runs of the paper as shell scripts: what `basis-rl verl command` prints."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from basis_rl.errors import ConfigError, nearest
from basis_rl.verl.command.policy import policy_script
from basis_rl.verl.command.settings import Choice
from basis_rl.verl.command.stages import Places, check_stages
from basis_rl.verl.command.value import BASELINE, MODEL, OBJECTIVE, value_script
from basis_rl.verl.paper.gpus import PAPER_GPU
from basis_rl.verl.paper.models import MODELS

STUDIES = ("section-5.1", "section-5.2")


# Of the command line; all others are None unless they are given.
DEFAULTS: dict[str, Any] = {
    "study": "section-5.2",
    "gpus": 4,
    "nodes": 1,
    "out": "runs",
    "what": ("all",),
}


def script_of(options: Mapping[str, Any]) -> str:
    """Script that the options ask for.

    Parameters
    ----------
    options : mapping
        Of the command line, by their names there with underscores.

    Raises
    ------
    ConfigError
        If a name is unknown, options do not go together, or the run does not fit the GPUs.
    """
    study = options["study"]
    if study not in STUDIES:
        raise ConfigError(f"--study {study} is not known{nearest(study, list(STUDIES))}")
    if options["gpu"] is not None and options["gpu_memory"] is not None:
        raise ConfigError("--gpu and --gpu-memory both say the memory: leave one out")
    command = command_line(options)
    places = Places(options["out"], options["train"], options["pass_rates"])
    stages = check_stages(options["what"])
    if study == "section-5.1":
        return value_script(_value_choice(options), places, stages, command=command)
    if options["model"] is None:
        raise ConfigError(f"--model is missing: use {' or '.join(MODELS)}")
    choice = Choice(
        model=options["model"],
        objective=options["objective"] or "grpo",
        baseline=options["baseline"] or "basis-unb",
        preset=options["preset"] or "paper",
        offline=options["n"],
        **_of_machines(options),
    )
    _check_pass_rates(choice, places)
    return policy_script(choice, places, stages, command=command)


def command_line(options: Mapping[str, Any]) -> str:
    """The command that prints a script, without what is its default."""
    words = ["basis-rl", "verl", "command"]
    for name, value in options.items():
        if value is None or value == DEFAULTS.get(name):
            continue
        for each in value if isinstance(value, tuple) else (value,):
            words += [f"--{name.replace('_', '-')}", str(each)]
    return shlex.join(words)


def _of_machines(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "gpus": options["gpus"],
        "nodes": options["nodes"],
        "gpu": options["gpu"] or PAPER_GPU,
        "memory": options["gpu_memory"],
        "steps": options["steps"],
    }


def _check_pass_rates(choice: Choice, places: Places) -> None:
    if places.pass_rates is None:
        return
    if not choice.of_baseline.pass_rates:
        raise ConfigError(f"--pass-rates has no effect: {choice.baseline} uses none; leave it out")
    if choice.offline is not None:
        raise ConfigError("--n has no effect with --pass-rates, as none are built: leave it out")


def _value_choice(options: Mapping[str, Any]) -> Choice:
    """Section 5.1 has one model, objective and baseline."""
    fixed = {"model": MODEL, "objective": OBJECTIVE, "baseline": BASELINE}
    for name, value in fixed.items():
        if options[name] not in (None, value):
            raise ConfigError(
                f"--{name} {options[name]}: Section 5.1 has {value} alone; leave --{name} out"
            )
    for name, value in (("preset", options["preset"]), ("n", options["n"])):
        if value is not None:
            raise ConfigError(f"--{name} has no effect on Section 5.1: leave it out")
    return Choice(MODEL, OBJECTIVE, BASELINE, **_of_machines(options))
