"""How far a build is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class BuildProgress:
    """A build at one moment.

    Attributes
    ----------
    prompts_done, prompts : int
        Prompts with a verdict on all that is wanted of them, and all.
    completions, completions_wanted : int
        Sampled so far, and wanted by now (an adaptive build may want more later).
    sampled_here, tokens_here : int
        Completions and tokens of this session.
    seconds : float
        Since sampling started in this session.
    build_seconds : float
        Of the build in all sessions.
    mean : float
        Mean reward so far, NaN without one.
    queue : int
        Completions that wait for their verdict.
    judged : int
        Completions that have been judged.
    """

    prompts_done: int
    prompts: int
    completions: int
    completions_wanted: int
    sampled_here: int
    tokens_here: int
    seconds: float
    build_seconds: float
    mean: float
    queue: int
    judged: int = 0

    @property
    def tokens_per_second(self) -> float:
        """Of this session; NaN before the first."""
        return self.tokens_here / self.seconds if self.tokens_here else math.nan

    @property
    def seconds_left(self) -> float:
        """At the speed of this session; NaN before the first completion."""
        if not self.sampled_here:
            return math.nan
        left = self.completions_wanted - self.completions
        return left * self.seconds / self.sampled_here


Progress = Callable[[BuildProgress], None]
