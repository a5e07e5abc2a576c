"""A softmax bandit on shared weights, whose policy gradient and its variance are known exactly."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from basis_rl.lab.gradient.pool import RolloutPool

KINDS, ACTIONS, FEATURES = 5, 3, 4


class Bandit:
    """A prompt is of one of five equally likely kinds; logits are weights times its features."""

    def __init__(self, seed: int = 0, *, spread: float = 1.0) -> None:
        random = np.random.default_rng(seed)
        features = random.normal(size=(KINDS, FEATURES)) * spread + 1.0
        logits = random.normal(size=(KINDS, ACTIONS))
        self.probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        # Action 0 is mostly right, the others seldom.
        self.rewards = (random.random((KINDS, ACTIONS)) < [0.9, 0.3, 0.3]).astype(float)
        self.rewards[:, 0], self.rewards[:, 1] = 1.0, 0.0
        unit = np.eye(ACTIONS)[None] - self.probabilities[:, None, :]
        self.scores = np.einsum("kab,kf->kabf", unit, features).reshape(KINDS, ACTIONS, -1)

    @property
    def values(self) -> np.ndarray:
        return (self.probabilities * self.rewards).sum(1)

    @property
    def gradient(self) -> np.ndarray:
        """Of the mean reward."""
        return np.einsum("ka,ka,kad->d", self.probabilities, self.rewards, self.scores) / KINDS

    def pool(self, prompts: int, rollouts: int, seed: int = 0, **counts: int) -> RolloutPool:
        random = np.random.default_rng([seed, 1])
        kinds = random.integers(KINDS, size=prompts)
        drawn = {
            name: self._actions(kinds, number, random)
            for name, number in {"rollouts": rollouts, "offline": 0, "earlier": 0, **counts}.items()
        }
        rewards = {name: self.rewards[kinds[:, None], a] for name, a in drawn.items()}
        sketches = self.scores[kinds[:, None], drawn["rollouts"]].astype(np.float32)
        return RolloutPool(
            [f"p{i}" for i in range(prompts)],
            rewards["rollouts"],
            1.0 + drawn["rollouts"],
            sketches,
            (sketches.astype(float) ** 2).sum(-1),
            rewards["offline"],
            rewards["earlier"],
        )

    def _actions(self, kinds: np.ndarray, number: int, random: np.random.Generator) -> np.ndarray:
        edges = self.probabilities.cumsum(1)[kinds][:, None, :-1]
        return (random.random((len(kinds), number))[..., None] > edges).sum(-1)

    def group_noise(
        self, group: int, advantages: Callable[[np.ndarray], np.ndarray], trained: int | None = None
    ) -> dict[str, float]:
        """Exact signal, variance and its part within prompts of one prompt's gradient.

        By enumeration of what ``group`` rollouts can do; advantages of a prompt depend on its own
        rewards alone. A batch of n prompts has the same signal and 1 / n of the variance.
        """
        count = trained or group
        means, square = np.zeros((KINDS, self.scores.shape[-1])), 0.0
        for kind in range(KINDS):
            for actions in itertools.product(range(ACTIONS), repeat=group):
                chosen = list(actions)
                p = self.probabilities[kind, chosen].prod()
                A = advantages(self.rewards[kind, chosen])[:count]
                g = (A[:, None] * self.scores[kind, chosen[:count]]).sum(0) / count
                means[kind] += p * g
                square += p * (g**2).sum() / KINDS
        signal = (means.mean(0) ** 2).sum()
        within = square - (means**2).sum() / KINDS
        return {"signal": signal, "variance": square - signal, "within": within}
