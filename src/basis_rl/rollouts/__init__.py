"""Sampling completions of prompts."""

from __future__ import annotations

from basis_rl.rollouts.settings import Sampler, SamplingSettings
from basis_rl.rollouts.transformers_sampler import TransformersSampler

__all__ = ["Sampler", "SamplingSettings", "TransformersSampler"]
