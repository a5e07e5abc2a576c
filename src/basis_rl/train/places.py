"""Errors of the Python interface in the words of a configuration file."""

from __future__ import annotations

from typing import Any

from basis_rl.errors import BasisError, ConfigError

# What errors of the Python interface call by its name there; longer texts before their parts.
_IN_YAML = {
    "estimator='group-mean' with estimator_options={'std': True}": (
        "estimator: {name: group-mean, std: true}"
    ),
    "estimator_options={'missing': 'prior'}": "estimator.missing: prior",
    "estimator_options missing=": "estimator.missing=",
    "estimator_options": "estimator",
    "pass pass_rates=": "set pass_rates to its file",
    "allow_mismatch=": "pass_rates.allow: ",
    "prompt_key_column": "data.key_column",
    "prompt_source_column": "data.source_column",
    "min_coverage": "pass_rates.min_coverage",
    "objective=None": "objective: null",
    "None keeps TRL's own": "null keeps TRL's own",
    "or None": "or null",
    "is None": "is null",
}


def with_place(place: str, call: Any, *arguments: Any, **options: Any) -> Any:
    """Call, with the configuration's key in front of what it refuses."""
    try:
        return call(*arguments, **options)
    except BasisError as error:
        message = str(error)
        for python, key in _IN_YAML.items():
            message = message.replace(python, key)
        raise ConfigError(f"{place}: {message}") from error
