"""How a model's completions are sampled: options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from basis_rl.cli.data_options import unescaped

if TYPE_CHECKING:
    from basis_rl.rollouts.settings import SamplingSettings

Function = TypeVar("Function", bound=Callable[..., Any])
_OPTIONS = [
    click.option("--temperature", default=1.0, show_default=True),
    click.option("--top-p", default=1.0, show_default=True),
    click.option("--top-k", default=0, show_default=True, help="0 keeps all tokens."),
    click.option("--max-tokens", default=256, show_default=True, help="Longest completion."),
    click.option("--stop", multiple=True, help=r"Text that ends a completion; \n is a line end."),
]


def sampling_options(command: Function) -> Function:
    """Add the options to a command; `settings_of` reads them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def settings_of(options: Mapping[str, Any]) -> SamplingSettings:
    """Settings that the options name.

    Raises
    ------
    ConfigError
        As `SamplingSettings`.
    """
    from basis_rl.rollouts.settings import SamplingSettings

    return SamplingSettings(
        temperature=options["temperature"],
        top_p=options["top_p"],
        top_k=options["top_k"],
        max_tokens=options["max_tokens"],
        stop=tuple(unescaped(text) for text in options["stop"]),
    )
