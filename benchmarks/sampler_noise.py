"""Noise of a policy gradient per rollout with the prompt sampler, in simulation.

    python benchmarks/sampler_noise.py

Prompts have pass rates that drift as a policy improves. Each step draws a batch of prompts, samples
one rollout each, and an estimator gives baselines. A rollout's gradient is its advantage times a
score: ``(r - V)`` along the prompt's own direction, and noise of a fixed length for the tokens that
decide nothing. Printed is the variance (the mean squared distance of the batch's weighted gradient
from the mean gradient of all prompts), over that of uniform sampling without replacement.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from basis_rl import PassRates, RewardBatch
from basis_rl.batch import FloatArray, IntArray
from basis_rl.estimators import create
from basis_rl.sampling import PromptSampler

DIRECTIONS = 64
POPULATIONS = {"even (Beta 1, 1)": (1.0, 1.0), "bimodal (Beta .2, .2)": (0.2, 0.2),
               "hard (Beta .3, 1.5)": (0.3, 1.5), "middling (Beta 5, 5)": (5.0, 5.0)}  # fmt: skip
SAMPLERS: dict[str, dict[str, object]] = {
    "spread of the true values": {"known": True},
    "spread": {},
    "spread, floor .2": {"floor": 0.2},
    "spread, clip 3": {"clip": 3.0},
    "spread, self-normalised": {"self_normalised": True},
}


@dataclass(frozen=True)
class World:
    """Pass rates of all prompts at every step, and directions of their gradients."""

    values: FloatArray  # (steps, prompts)
    directions: FloatArray  # (prompts, DIRECTIONS)
    cached: PassRates

    @classmethod
    def make(cls, shape: tuple[float, float], prompts: int, steps: int, seed: int) -> World:
        """Logits move up together, and each prompt by itself."""
        rng = np.random.default_rng(seed)
        start = rng.beta(*shape, prompts).clip(1e-3, 1 - 1e-3)
        own = rng.normal(0, 0.05, (steps, prompts)).cumsum(axis=0)
        logits = np.log(start / (1 - start)) + own + np.linspace(0, 1, steps)[:, None]
        directions = rng.normal(size=(prompts, DIRECTIONS))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        keys = [str(i) for i in range(prompts)]
        cached = PassRates.from_counts(keys, rng.binomial(8, start), 8)
        return cls(1 / (1 + np.exp(-logits)), directions, cached)


def errors(
    world: World, options: dict[str, object] | None, batch: int, noise: float, seed: int
) -> tuple[float, float]:
    """Mean squared error of the batch's gradient, and the mean effective share of a batch."""
    rng = np.random.default_rng(seed)
    keys = list(world.cached.keys)
    estimator = create("basis-online", world.cached)
    sampler = None
    if options is not None:
        given_options = {name: value for name, value in options.items() if name != "known"}
        spread = estimator.expected_spread  # type: ignore[attr-defined]
        if "known" in options:
            now = iter(world.values)
            spread = lambda *_: deviation(next(now))  # noqa: E731
        sampler = PromptSampler(keys, spread, seed=seed, **given_options)  # type: ignore[arg-type]
    epochs = uniform(len(keys), batch, rng)
    squared, shares = [], []
    for step, values in enumerate(world.values):
        if sampler is None:
            rows, weights = next(epochs), np.ones(batch)
        else:
            draw = sampler.draw(step, batch)
            assert draw is not None
            rows = draw.rows
            weights, metrics = sampler.used([keys[row] for row in rows])
            shares.append(metrics["effective_share"])
        rewards = (rng.random(batch) < values[rows]).astype(float)
        given = RewardBatch([keys[row] for row in rows], rewards, step=step)
        advantages = estimator.estimate(given).advantages
        scores = (rewards - values[rows])[:, None] * world.directions[rows]
        scores += noise / np.sqrt(DIRECTIONS) * rng.normal(size=scores.shape)
        mine = ((weights * advantages)[:, None] * scores).mean(axis=0)
        true = ((values * (1 - values))[:, None] * world.directions).mean(axis=0)
        squared.append(float(((mine - true) ** 2).sum()))
    return float(np.mean(squared)), float(np.mean(shares)) if shares else 1.0


def deviation(values: FloatArray) -> FloatArray:
    """Standard deviation of 0/1 rewards."""
    return np.sqrt(values * (1 - values))


def uniform(prompts: int, batch: int, rng: np.random.Generator) -> Iterator[IntArray]:
    """Batches of a shuffled epoch, again and again."""
    while True:
        order = rng.permutation(prompts)
        for first in range(0, prompts - batch + 1, batch):
            yield order[first : first + batch]


def main() -> None:
    """Print a line for every population and sampler."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=512)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--noise", type=float, default=1.0, help="Length of a score's noise.")
    args = parser.parse_args()
    print(f"{'prompts':24}{'sampler':28}{'variance / uniform':>22}{'effective share':>18}")
    for name, shape in POPULATIONS.items():
        worlds = [World.make(shape, args.prompts, args.steps, s) for s in range(args.seeds)]
        plain = [errors(w, None, args.batch, args.noise, s)[0] for s, w in enumerate(worlds)]
        for label, options in SAMPLERS.items():
            pairs = [errors(w, options, args.batch, args.noise, s) for s, w in enumerate(worlds)]
            ratios = np.array([ours for ours, _ in pairs]) / np.array(plain)
            error = 1.96 * ratios.std(ddof=1) / np.sqrt(len(ratios))
            share = np.mean([share for _, share in pairs])
            print(
                f"{name:24}{label:28}{ratios.mean():13.3f} ± {error:.3f}{share:18.3f}", flush=True
            )


if __name__ == "__main__":
    main()
