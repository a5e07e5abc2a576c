"""Sampling completions of prompts."""

from __future__ import annotations

from basis_rl.rollouts.create import open_engine
from basis_rl.rollouts.engine import Completion, Engine, Request, Rollouts, completion_seed
from basis_rl.rollouts.settings import SamplingSettings
from basis_rl.rollouts.transformers_engine import TransformersEngine

__all__ = [
    "Completion",
    "Engine",
    "Request",
    "Rollouts",
    "SamplingSettings",
    "TransformersEngine",
    "completion_seed",
    "open_engine",
]
