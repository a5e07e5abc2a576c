"""`BasisOnline` on 0/1 rewards with a table, by loops: every row really left out, dense integrals.

Slow and close to docs/online.md; the tests compare the fast code with it.
"""

from __future__ import annotations

import numpy as np

GRID = np.linspace(-12.0, 12.0, 2401)  # in standard deviations


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def expect(mean, variance, function):
    """Expectation of a function of a normal variable."""
    weights = np.exp(-0.5 * GRID**2)
    return float(weights @ function(mean + variance**0.5 * GRID) / weights.sum())


def posterior(mean, variance, successes, n):
    """Probability of these rewards, and the logit's mean and variance after them."""

    def likelihood(x):
        return np.exp(-successes * np.logaddexp(0, -x) - (n - successes) * np.logaddexp(0, x))

    total = expect(mean, variance, likelihood)
    after = expect(mean, variance, lambda x: x * likelihood(x)) / total
    spread = expect(mean, variance, lambda x: (x - after) ** 2 * likelihood(x)) / total
    return total, after, spread


def value_after(mean, variance, successes, n):
    """Expected value after these rewards."""

    def likelihood(x):
        return np.exp(-successes * np.logaddexp(0, -x) - (n - successes) * np.logaddexp(0, x))

    both = expect(mean, variance, lambda x: sigmoid(x) * likelihood(x))
    return both / expect(mean, variance, likelihood)


class ReferenceOnline:
    """The same steps as `BasisOnline`, prompt by prompt.

    ``start`` has each prompt's mean and variance; the other arguments are the constants of the
    estimator.
    """

    def __init__(self, start, *, prompt_pace, prompt_switching, scatter, first_weights, common_pace,
                 common_switching, walk, start_covariance, trend_memory, sources=()):  # fmt: skip
        self.q = np.asarray(prompt_pace) ** 2
        self.switching = prompt_switching
        self.weights = np.array(first_weights)
        self.state = {key: [(m, v + more) for more in scatter] for key, (m, v) in start.items()}
        self.seen = dict.fromkeys(start, 0)
        self.pace = np.asarray(common_pace) ** 2
        self.common_switching = common_switching
        self.common_weights = np.full(len(self.pace), 1 / len(self.pace))
        self.walk, self.sources = np.diag(walk), list(sources)
        self.x = [np.zeros(len(walk)) for _ in self.pace]
        self.covariance = [np.array(start_covariance, dtype=float) for _ in self.pace]
        self.trend_memory = trend_memory
        self.now = -1

    def phi(self, mean, source):
        own = [float(source == name) for name in self.sources]
        return np.array([1.0, np.tanh(mean / 3.0), 0.0, *own])

    def estimate(self, keys, rewards, sources=None):
        self.now += 1
        if self.now > 0:
            onwards = np.eye(len(self.walk))
            onwards[0, 2], onwards[2, 2] = 1.0, self.trend_memory
            self.x = [onwards @ x for x in self.x]
            self.covariance = [
                onwards @ C @ onwards.T + q * self.walk
                for C, q in zip(self.covariance, self.pace, strict=True)
            ]
        centre = sum(w * x for w, x in zip(self.common_weights, self.x, strict=True))
        prompts = {}
        for row, key in enumerate(keys):
            prompts.setdefault(key, []).append(row)
        views = {}
        for key, rows in prompts.items():
            steps = self.now - self.seen[key]
            filters = [
                (m, v + q * steps) for (m, v), q in zip(self.state[key], self.q, strict=True)
            ]
            middle = sum(w * m for w, (m, _) in zip(self.weights, filters, strict=True))
            spread = sum(
                w * (v + (m - middle) ** 2) for w, (m, v) in zip(self.weights, filters, strict=True)
            )
            phi = self.phi(middle, None if sources is None else sources[rows[0]])
            views[key] = filters, middle, spread, phi

        def fitted(left_out):
            """Mean and covariance of x under each filter, without some rows."""
            b, H = np.zeros_like(centre), np.zeros((len(centre), len(centre)))
            for key, rows in prompts.items():
                kept = [rewards[row] for row in rows if row not in left_out]
                _, middle, spread, phi = views[key]
                at = middle + phi @ centre
                value = expect(at, spread, sigmoid)
                slope = expect(at, spread, lambda x: sigmoid(x) * (1 - sigmoid(x)))
                between = value * (1 - value) - slope
                scale = slope / (slope + len(kept) * between)
                b += scale * (sum(kept) - len(kept) * value) * phi
                H += len(kept) * slope * scale * np.outer(phi, phi)
            found = []
            for x, C in zip(self.x, self.covariance, strict=True):
                after = np.linalg.inv(np.linalg.inv(C) + H)
                found.append((after @ (b - H @ (x - centre)), after, b, H))
            return found

        def offset(phi, found):
            parts = [
                (phi @ x + np.clip(phi @ step, -1, 1), phi @ C @ phi)
                for x, (step, C, _, _) in zip(self.x, found, strict=True)
            ]
            mean = sum(w * o for w, (o, _) in zip(self.common_weights, parts, strict=True))
            spread = sum(
                w * (v + (o - mean) ** 2)
                for w, (o, v) in zip(self.common_weights, parts, strict=True)
            )
            return mean, spread

        baselines = np.empty(len(keys))
        single = all(len(rows) == 1 for rows in prompts.values())
        for key, rows in prompts.items():
            filters, middle, spread, phi = views[key]
            for row in rows:
                o, unsure = offset(phi, fitted([row]))
                others = [rewards[other] for other in rows if other != row]
                mixture = zip(self.weights, filters, strict=True)
                if not single:
                    mixture = [(1.0, (middle, spread))]
                baselines[row] = sum(
                    w * value_after(m + o, v + unsure, sum(others), len(others))
                    for w, (m, v) in mixture
                )
        log_likelihood = np.zeros(len(self.q))
        for key, rows in prompts.items():
            filters, _, _, phi = views[key]
            o, unsure = offset(phi, fitted(rows))
            for k, (m, v) in enumerate(filters):
                chance, mean, spread = posterior(
                    m + o, v + unsure, sum(rewards[row] for row in rows), len(rows)
                )
                log_likelihood[k] += np.log(chance)
                share = v / (v + unsure)
                filters[k] = m + share * (mean - o - m), v - share**2 * (v + unsure - spread)
            self.state[key], self.seen[key] = filters, self.now
        self.weights = mixed(self.weights, log_likelihood, self.switching)
        self._advance(fitted([]), centre)
        return baselines

    def _advance(self, found, centre):
        evidence = []
        for x, C, (step, after, b, H) in zip(self.x, self.covariance, found, strict=True):
            moved = x - centre
            at_own = b - H @ moved
            at = at_own @ moved + 0.5 * moved @ H @ moved
            evidence.append(
                at + 0.5 * at_own @ step - 0.5 * np.log(np.linalg.det(np.eye(len(x)) + H @ C))
            )
            assert np.allclose(after @ at_own, step)
        self.common_weights = mixed(self.common_weights, evidence, self.common_switching)
        self.x = [
            x + np.clip(step, -1, 1) for x, (step, _, _, _) in zip(self.x, found, strict=True)
        ]
        self.covariance = [after for _, after, _, _ in found]


def mixed(weights, log_likelihood, switching):
    """Bayes' rule, and a share dealt out anew."""
    evidence = np.array(log_likelihood)
    new = weights * np.exp(evidence - evidence.max())
    return (1 - switching) * new / new.sum() + switching / len(new)
