"""Engines by name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from basis_rl.errors import ConfigError, nearest
from basis_rl.rollouts.engine import Engine

# name -> (module, class); each class has `open(model, *, revision, dtype, **options)`.
ENGINES = {
    "transformers": ("basis_rl.rollouts.transformers_engine", "TransformersEngine"),
    "vllm": ("basis_rl.rollouts.vllm_engine", "VllmEngine"),
    "openai": ("basis_rl.rollouts.openai_engine", "OpenAIEngine"),
    "ray": ("basis_rl.rollouts.ray_engine", "RayEngine"),
}


def engine_class(name: str) -> type[Engine]:
    """Class of an engine, without what it samples with (torch, vLLM, …).

    Raises
    ------
    ConfigError
        If there is no engine of that name.
    """
    if name not in ENGINES:
        raise ConfigError(f"no engine is named {name!r}{nearest(name, sorted(ENGINES))}")
    module, attribute = ENGINES[name]
    found: type[Engine] = getattr(importlib.import_module(module), attribute)
    return found


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse options that an engine would not take, before anything is loaded.

    Raises
    ------
    ConfigError
        If one is unknown, missing, or of a wrong type or size.
    """
    engine_class(name).check_options(options)


def open_engine(
    name: str,
    model: str,
    *,
    revision: str | None = None,
    dtype: str = "auto",
    options: Mapping[str, Any] | None = None,
) -> Engine:
    """Load a model into an engine, or connect to its server.

    Parameters
    ----------
    name : str
        transformers, vllm, openai or ray.
    model : str
        Folder or hub id; for a server the name that it serves.
    revision : str, optional
    dtype : str
        auto, bfloat16, float16 or float32.
    options : mapping, optional
        The engine's own; see its ``open``.

    Raises
    ------
    ConfigError
        If the engine or an option is unknown, its package is missing, or the model cannot be had.
    """
    options = dict(options or {})
    check_options(name, options)
    return engine_class(name).open(model, revision=revision, dtype=dtype, **options)
