"""Sampling a pool: rollouts of each prompt, their rewards, and their score gradients."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from basis_rl.batch import FloatArray
from basis_rl.errors import ConfigError
from basis_rl.lab.gradient.pool import PoolFolder, RolloutPool
from basis_rl.lab.gradient.scores import (
    CompletionTokens,
    PolicyEngine,
    ScoreGradients,
    check_sampling,
)
from basis_rl.rollouts.engine import Request
from basis_rl.rollouts.settings import SamplingSettings
from basis_rl.verifiers.base import NamedVerifier

if TYPE_CHECKING:
    from basis_rl.prompts import Prompt

Progress = Callable[[int, int], None]  # prompts done, prompts


@dataclass(frozen=True)
class PoolSettings:
    """How many rollouts are sampled, and how they are sketched.

    Attributes
    ----------
    rollouts : int
        Of each prompt, with gradients.
    offline, epochs : int
        Of each prompt without gradients: for the pass rates, and for estimators that remember.
    width : int
        Numbers of a sketch.
    parameters : str, optional
        Names of the parameters that count, see `ScoreGradients`.
    seed : int
        Of the rollouts and the sketch.

    Raises
    ------
    ConfigError
        If a number is out of range.
    """

    rollouts: int = 16
    offline: int = 32
    epochs: int = 4
    width: int = 4096
    parameters: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("rollouts", 2), ("offline", 0), ("epochs", 0), ("seed", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} is {getattr(self, name)}: use at least {least}")


def choose_prompts(prompts: Sequence[Prompt], count: int, seed: int) -> list[Prompt]:
    """Some prompts of a data set, at random; all of them where it has no more.

    More prompts are the same ones first.
    """
    chosen = list(prompts)
    random.Random(seed).shuffle(chosen)
    return chosen[:count]


def cost_of(prompts: int, settings: PoolSettings) -> str:
    """What sampling and comparing will take, in words: rollouts, disk, memory."""
    K = settings.rollouts
    each = K + settings.offline + settings.epochs
    disk = prompts * K * settings.width * 4
    # Inner products of all pairs with a copy or two, and the sketches in float64.
    memory = 3 * 8 * (prompts * K) ** 2 + 2 * disk
    return (
        f"{prompts} prompts x {each} rollouts, {prompts * K:,} of them with gradients: "
        f"{disk / 1e6:,.0f} MB on the disk, {memory / 1e9:.1f} GB of memory to compare"
    )


def sample_pool(
    folder: PoolFolder,
    engine: PolicyEngine,
    verifier: NamedVerifier,
    settings: PoolSettings,
    sampling: SamplingSettings,
    *,
    progress: Progress | None = None,
) -> RolloutPool:
    """Sample, judge and differentiate; what the folder has already is not done again.

    Parameters
    ----------
    folder : PoolFolder
        Names the prompts.
    engine : PolicyEngine
        The policy. Its number type is that of the gradients: float32 is recommended.
    verifier : NamedVerifier
    settings : PoolSettings
    sampling : SamplingSettings
        Without top-p and top-k.
    progress : callable, optional
        Called with the prompts done and all prompts.

    Raises
    ------
    ConfigError
        If the sampling has no score gradient, or a prompt cannot be sampled or judged.
    """
    check_sampling(sampling)
    prompts = folder.prompts
    for prompt in prompts:
        verifier.check(prompt.columns)
    engine.check([prompt.prompt for prompt in prompts], sampling)
    scores = ScoreGradients(
        engine.network,
        width=settings.width,
        seed=settings.seed,
        temperature=sampling.temperature,
        parameters=settings.parameters,
    )
    for number, prompt in enumerate(prompts):
        if not folder.has(number):
            completions, rewards = _rollouts(prompt, engine, verifier, settings, sampling)
            ids = engine.prompt_ids(prompt.prompt, sampling)
            folder.write(number, **_part(completions, rewards, scores, ids, settings))
        if progress is not None:
            progress(number + 1, len(prompts))
    return folder.read()


def _rollouts(
    prompt: Prompt,
    engine: PolicyEngine,
    verifier: NamedVerifier,
    settings: PoolSettings,
    sampling: SamplingSettings,
) -> tuple[list[CompletionTokens], FloatArray]:
    """All completions of a prompt in the order of their numbers, and their rewards."""
    total = settings.rollouts + settings.offline + settings.epochs
    request = Request(prompt.key, prompt.prompt, 0, total)
    found: dict[int, CompletionTokens] = {}
    for finished in engine.stream([request], sampling, seed=settings.seed):
        for part in finished:
            for number, completion in enumerate(part.completions, start=part.first):
                assert isinstance(completion, CompletionTokens)
                found[number] = completion
    completions = [found[number] for number in range(total)]
    verdicts = verifier.submit([c.text for c in completions], prompt.columns).result()
    rewards = [np.nan if v.reward is None else v.reward for v in verdicts]
    return completions, np.array(rewards, dtype=np.float64)


def _part(
    completions: Sequence[CompletionTokens],
    rewards: FloatArray,
    scores: ScoreGradients,
    prompt: Sequence[int],
    settings: PoolSettings,
) -> dict[str, npt.NDArray[Any]]:
    K, n = settings.rollouts, settings.offline
    sketched = completions[:K]
    known: dict[tuple[int, ...], tuple[npt.NDArray[np.float32], float]] = {}
    with scores:
        for completion in sketched:
            if completion.ids not in known:  # short answers come more than once
                known[completion.ids] = scores(prompt, completion.ids)
    return {
        "rewards": rewards[:K],
        "lengths": np.array([c.tokens for c in sketched], dtype=np.float64),
        "sketches": np.stack([known[c.ids][0] for c in sketched]),
        "squared_norms": np.array([known[c.ids][1] for c in sketched]),
        "offline": rewards[K : K + n],
        "earlier": rewards[K + n :],
    }
