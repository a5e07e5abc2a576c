"""A reward function of verl as a verifier: `module:function`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from basis_rl.errors import ConfigError
from basis_rl.prompts.columns import columns_there_are
from basis_rl.verifiers.base import Columns
from basis_rl.verifiers.function import load_function, source_version

_SIGNATURE = {"solution_str", "ground_truth"}
_NEEDED = ("data_source", "ground_truth")


class VerlFunction:
    """Calls ``function(data_source, solution_str, ground_truth, extra_info)``, as verl does.

    Of a row it takes these columns; rows in verl's layout have them. Of a dict that the function
    returns, the ``score`` is the reward; a coroutine is awaited.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.function = load_function(name)
        self.version = source_version(self.function)

    def __call__(self, completion: str, columns: Columns) -> float | None:
        """Reward of one completion, None for no verdict."""
        self.check(columns)
        extra = columns.get("extra_info")
        result = self.function(
            data_source=columns["data_source"],
            solution_str=completion,
            ground_truth=columns["ground_truth"],
            extra_info=dict(extra) if isinstance(extra, Mapping) else {},
        )
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        reward: float | None = result["score"] if isinstance(result, Mapping) else result
        return reward

    def __reduce__(self) -> tuple[type[VerlFunction], tuple[str]]:
        return VerlFunction, (self.name,)  # another process imports it by its name

    def needed(self, columns: Columns) -> Columns:
        """Columns that the function takes."""
        return {name: columns[name] for name in (*_NEEDED, "extra_info") if name in columns}

    def check(self, columns: Columns) -> None:
        """Refuse a row without what verl gives to a reward function."""
        for name in _NEEDED:
            if name not in columns:
                raise ConfigError(
                    f"verifier {self.name!r} is called as verl calls it, with {name}: rows in "
                    "verl's layout have it, which `basis-rl verl prepare --answer-column …` makes"
                    f"{columns_there_are(columns, name)}"
                )


def is_verl_function(function: Callable[..., Any]) -> bool:
    """Whether a function takes what verl gives to a reward function."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return set(parameters) >= _SIGNATURE
