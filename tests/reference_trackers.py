"""Trackers as their papers print them: one prompt and one rollout at a time, full histories."""

from __future__ import annotations

import math
from collections import defaultdict


def population(batches: list[list[tuple[str, float]]], key: str) -> float | None:
    """Mean reward of the other prompts at a prompt's first batch, the last of ``batches``.

    Every earlier batch weighs 0.9 of the next, and has all its rows.
    """
    total = count = 0.0
    for age, batch in enumerate(reversed(batches)):
        for other, reward in batch:
            if age > 0 or other != key:
                total += 0.9**age * reward
                count += 0.9**age
    return total / count if count > 0 else None


class Reference:
    """Shared book-keeping; ``priors`` is the table, key to (successes, n)."""

    neutral = 0.5

    def __init__(self, priors: dict[str, tuple[int, int]] | None = None) -> None:
        self.priors = priors
        self.batches: list[list[tuple[str, float]]] = []

    def mean(self, key: str) -> tuple[float, bool]:
        """Start of a prompt, and whether the table knows it."""
        if self.priors is None:
            value = population(self.batches, key)
            return (self.neutral if value is None else value), False
        if key in self.priors:
            successes, n = self.priors[key]
            return (successes + 0.5) / (n + 1), True
        return sum(s / n for s, n in self.priors.values()) / len(self.priors), False

    def estimate(self, keys: list[str], rewards: list[float], **columns: list) -> list[float]:
        self.batches.append(list(zip(keys, rewards, strict=True)))
        for key in keys:
            self.meet(key)
        baselines = [self.baseline(key, i, keys, rewards) for i, key in enumerate(keys)]
        for key in dict.fromkeys(keys):
            rows = [i for i, other in enumerate(keys) if other == key]
            picked = {name: [column[i] for i in rows] for name, column in columns.items()}
            self.update(key, [rewards[i] for i in rows], **picked)
        return baselines

    def meet(self, key: str) -> None: ...

    def baseline(self, key, i, keys, rewards) -> float: ...

    def update(self, key, rewards, **columns) -> None: ...


class Spo(Reference):
    def __init__(self, priors=None, rho: float = 0.875) -> None:
        super().__init__(priors)
        self.rho = rho
        self.state: dict[str, tuple[float, float]] = {}

    def meet(self, key: str) -> None:
        if key not in self.state:
            mean, known = self.mean(key)
            weight = 8.0 if known else 1.0
            self.state[key] = (weight * mean, weight * (1 - mean))

    def baseline(self, key, i, keys, rewards) -> float:
        a, b = self.state[key]
        return a / (a + b)

    def update(self, key, rewards, divergences=None) -> None:
        rho = self.rho
        if divergences is not None:
            D = sum(divergences) / len(divergences)
            rho = min(max(2.0 ** (-D / 0.06), 0.875), 0.96)
        a, b = self.state[key]
        a, b = rho * a, rho * b
        for r in rewards:
            a, b = a + r, b + 1 - r
        self.state[key] = (a, b)


class SpoPlusPlus(Reference):
    """Equation 3 as a sum over the whole history, at time ``now``."""

    def __init__(self, priors=None, rho: float = 0.875) -> None:
        super().__init__(priors)
        self.rho = rho
        self.first: int | None = None
        self.now = 0
        # Time, successes, failures; the start is the first of them.
        self.evidence: dict[str, list[tuple[float, float, float]]] = {}

    def at(self, now: int, times: list[int]) -> None:
        self.now = now
        self.first = min(times) if self.first is None else self.first

    def meet(self, key: str) -> None:
        if key not in self.evidence:
            mean, known = self.mean(key)
            weight = 8.0 if known else 1.0
            time = self.first if known else self.now
            self.evidence[key] = [(time, weight * mean, weight * (1 - mean))]

    def baseline(self, key, i, keys, rewards) -> float:
        newest = max(time for time, _, _ in self.evidence[key])
        a = sum(self.rho ** (newest - time) * good for time, good, _ in self.evidence[key])
        b = sum(self.rho ** (newest - time) * bad for time, _, bad in self.evidence[key])
        return a / (a + b)

    def update(self, key, rewards, times) -> None:
        self.evidence[key] += [(t, r, 1 - r) for t, r in zip(times, rewards, strict=True)]


class Kae(Reference):
    neutral = 0.0

    def __init__(self, priors=None, window: float = 10, bandwidth=None, clock="visits") -> None:
        super().__init__(priors)
        self.window, self.bandwidth, self.clock = window, bandwidth, clock
        self.step = 0
        self.start: dict[str, float] = {}
        self.visits: dict[str, int] = defaultdict(int)
        self.past: dict[str, list[tuple[int, float]]] = {}

    def meet(self, key: str) -> None:
        if key not in self.past:
            self.start[key], known = self.mean(key)
            self.past[key] = []
            if known:
                successes, n = self.priors[key]
                self.past[key] = [(0, successes / n)] * n

    def baseline(self, key, i, keys, rewards) -> float:
        now = self.visits[key] + 1 if self.clock == "visits" else self.step
        window = self.window if self.bandwidth is None else self.bandwidth * now
        pairs = [(max(0.0, 1 - (now - t) / window), r) for t, r in self.past[key]]
        pairs += [(1.0, rewards[j]) for j, other in enumerate(keys) if other == key and j != i]
        weight = math.fsum(w for w, _ in pairs)
        if weight > 0:
            return math.fsum(w * r for w, r in pairs) / weight
        if not self.past[key]:
            return self.start[key]
        latest = [r for t, r in self.past[key] if t == self.past[key][-1][0]]
        return sum(latest) / len(latest)

    def update(self, key, rewards) -> None:
        self.visits[key] += 1
        time = self.visits[key] if self.clock == "visits" else self.step
        self.past[key] += [(time, r) for r in rewards]


class KrpoTracking(Reference):
    """Scalar filter steps, one reward after the other, Q once per visit."""

    neutral = 0.0

    def __init__(self, priors=None, Q: float = 2.5e-4, R: float = 0.25, P: float = 1.0) -> None:
        super().__init__(priors)
        self.Q, self.R, self.P = Q, R, P
        self.state: dict[str, tuple[float, float]] = {}

    def meet(self, key: str) -> None:
        if key not in self.state:
            mean, known = self.mean(key)
            P = self.R / (self.priors[key][1] + 1) if known else self.P
            self.state[key] = (mean, P)

    def filtered(self, key: str, rewards: list[float]) -> tuple[float, float]:
        x, P = self.state[key]
        P += self.Q
        for r in rewards:
            gain = P / (P + self.R)
            x, P = x + gain * (r - x), (1 - gain) * P
        return x, P

    def baseline(self, key, i, keys, rewards) -> float:
        others = [r for j, r in enumerate(rewards) if keys[j] == key and j != i]
        return self.filtered(key, others)[0]

    def update(self, key, rewards) -> None:
        self.state[key] = self.filtered(key, rewards)


def krpo(keys: list[str], rewards: list[float]) -> tuple[list[float], list[float]]:
    """Baselines and advantages of KRPO's published loop."""
    filters: dict[str, tuple[float, float]] = {}
    baselines, advantages = [], []
    for key, r in zip(keys, rewards, strict=True):
        x, P = filters.get(key, (0.0, 1.0))
        predicted = P + 1e-5
        gain = predicted / (predicted + 1e-2)
        x, P = x + gain * (r - x), (1 - gain) * predicted
        filters[key] = (x, P)
        baselines.append(x)
        advantages.append((r - x) / (math.sqrt(P) + 1e-8))
    return baselines, advantages


def mean(numbers: list[float]) -> float:
    return math.fsum(numbers) / len(numbers)


def sample_variance(numbers: list[float]) -> float:
    centre = mean(numbers)
    return math.fsum((x - centre) ** 2 for x in numbers) / (len(numbers) - 1)


def james_stein(keys: list[str], rewards: list[float]) -> list[float]:
    """Every statistic anew for every row, from the other prompts."""
    groups: dict[str, list[float]] = defaultdict(list)
    for key, r in zip(keys, rewards, strict=True):
        groups[key].append(r)
    baselines = []
    for i, key in enumerate(keys):
        own = [r for j, r in enumerate(rewards) if keys[j] == key and j != i]
        others = [group for other, group in groups.items() if other != key]
        if not others:
            baselines.append(mean(own))
            continue
        means = [mean(group) for group in others]
        target = mean(means)
        if not own:
            baselines.append(target)
            continue
        variances = [sample_variance(g) / len(g) for g in others if len(g) > 1]
        v = mean(variances) if variances else 0.0
        s = mean([(m - target) ** 2 for m in means])
        shrink = (len(groups) - 1) / len(groups) * v / (v + s) if v + s > 0 else 0.0
        baselines.append((1 - shrink) * mean(own) + shrink * target)
    return baselines


class Ebpo:
    """All rewards and group means of the run in two lists."""

    def __init__(self) -> None:
        self.rewards: list[float] = []
        self.means: list[float] = []

    def estimate(self, keys: list[str], rewards: list[float]) -> list[float]:
        groups: dict[str, list[float]] = defaultdict(list)
        for key, r in zip(keys, rewards, strict=True):
            groups[key].append(r)
        self.rewards += rewards
        self.means += [mean(group) for group in groups.values()]
        s2 = sample_variance(self.rewards) if len(self.rewards) > 1 else 0.0
        t2 = sample_variance(self.means) if len(self.means) > 1 else 0.0
        baselines = []
        for key in keys:
            of_mean = s2 / len(groups[key])
            shrink = of_mean / (of_mean + t2) if of_mean + t2 > 0 else 1.0
            baselines.append((1 - shrink) * mean(groups[key]) + shrink * mean(self.rewards))
        return baselines
