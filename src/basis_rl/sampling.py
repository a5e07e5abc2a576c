"""Choosing prompts by how much their rewards are expected to spread, and weights that undo it.

Only NumPy: the trainers' adapters ask `PromptSampler` for rows, and multiply advantages by weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from basis_rl.batch import FloatArray, IntArray
from basis_rl.errors import BasisError, ConfigError, StateError, nearest
from basis_rl.systematic import inclusion_probabilities, systematic

FLOOR = 0.05  # SPO's, arXiv 2509.13232
OPTIONS = ("floor", "clip", "self_normalised")  # what a user may set
# (keys, sources) -> expected standard deviation of a reward of each prompt
Spread = Callable[[Sequence[str], Sequence[str] | None], FloatArray]


@dataclass(frozen=True)
class Draw:
    """Prompts of one batch.

    Attributes
    ----------
    rows : int64 array, shape (n,)
        Distinct rows of the data.
    weights : float64 array, shape (n,)
        Importance weight of each; 1 under uniform sampling.
    metrics : dict of str to float
        ``effective_share``: effective number of prompts over n, (Σw)² / (n Σw²);
        ``floor_share``: share of all prompts whose expected spread is below the floor;
        ``weight_max``; ``clipped_share``: share of the drawn prompts whose weight was cut.
    """

    rows: IntArray
    weights: FloatArray
    metrics: dict[str, float]


class PromptSampler:
    """Draws prompts with probability in proportion to ``spread + floor``, none twice in a batch.

    A prompt's probability to be in a batch of n of N prompts is ``π_i = min(1, c (s_i + floor))``
    with Σ π_i = n, and its weight ``(n / N) / π_i``. Systematic sampling in a random order has
    exactly these probabilities, so ``(1/n) Σ w_i x_i`` over the batch has the expectation
    ``(1/N) Σ x_i`` over the data (Horvitz and Thompson).

    Parameters
    ----------
    keys : sequence of str, length N
        Prompts of the data, one a row.
    spread : callable
        Expected standard deviation of a reward of each prompt now, shape (N,), given keys and
        sources: an estimator's ``expected_spread``. NaN stands for not known, and counts as the
        mean of the others.
    sources : sequence of str, length N, optional
    floor : float
        Added to every spread, so that no prompt is forgotten; positive.
    clip : float, optional
        Largest weight; cutting makes the mean biased, and less noisy.
    self_normalised : bool
        Divide the weights by their mean over the batch: a ratio, biased by O(1/n), that does not
        change the step's size from batch to batch.
    seed : int

    Notes
    -----
    The draw of batch number k depends on the seed, k, and what the estimator knows when it is
    drawn. Batches that were drawn and not trained on yet are in the state, so that a resumed run
    has the prompts of an unbroken one.

    Raises
    ------
    ConfigError
        If a value is out of range, there are no prompts, or ``spread`` cannot be called.
    """

    name: ClassVar[str] = "spread"

    def __init__(
        self,
        keys: Sequence[str],
        spread: Spread,
        *,
        sources: Sequence[str] | None = None,
        floor: float = FLOOR,
        clip: float | None = None,
        self_normalised: bool = False,
        seed: int = 0,
    ) -> None:
        if not keys:
            raise ConfigError("the prompt sampler has no prompts: pass at least one key")
        if not callable(spread):
            raise ConfigError(
                f"spread of the prompt sampler is a {type(spread).__name__}: pass a function, e.g. "
                "the estimator's expected_spread"
            )
        check_options(floor=floor, clip=clip, self_normalised=self_normalised)
        self.keys, self.sources = list(keys), None if sources is None else list(sources)
        self.floor, self.clip, self.self_normalised = floor, clip, self_normalised
        self.seed = seed
        self._spread = spread
        self._done = 0  # batches that were trained on
        self._drawn: dict[int, Draw] = {}

    @property
    def done(self) -> int:
        """Batches that were trained on: the number of the next one, after a restart too."""
        return self._done

    def draw(self, number: int, size: int) -> Draw | None:
        """Prompts of batch ``number`` (0, 1, …); the same again until it is `used`.

        Returns
        -------
        Draw or None
            None for a batch that was trained on before the last one; from `done` on, never.

        Raises
        ------
        ConfigError
            If there are fewer prompts than ``size``, or the batch was drawn with another one.
        BasisError
            If the estimator gives a spread that is negative or infinite.
        """
        if number not in self._drawn:
            if number < self._done:
                return None
            self._drawn[number] = self._new(number, size)
        draw = self._drawn[number]
        if len(draw.rows) != size:
            raise ConfigError(
                f"batch {number} was drawn with {len(draw.rows)} prompts, and {size} are asked "
                "for: resume with the same batch size and rollouts per prompt"
            )
        return draw

    def used(self, keys: Sequence[str]) -> tuple[FloatArray, dict[str, float]]:
        """Say which batch is trained on now.

        Parameters
        ----------
        keys : sequence of str, shape (B,)
            Prompt of each rollout of the batch.

        Returns
        -------
        weights : float64 array, shape (B,)
            Of a prompt that was drawn from several rows of the data, the mean of theirs.
        metrics : dict of str to float
            Of the draw.

        Raises
        ------
        BasisError
            If no batch of these prompts was drawn.
        """
        wanted = set(keys)
        # The one in use comes last: it is sampled again only after a restart.
        for number in sorted(self._drawn, key=lambda number: (number < self._done, number)):
            draw = self._drawn[number]
            if {self.keys[row] for row in draw.rows.tolist()} == wanted:
                self._done = number + 1
                self._drawn = {n: d for n, d in self._drawn.items() if n >= number}
                return self._weights_of(draw, keys), draw.metrics
        raise BasisError(
            f"the prompt sampler drew no batch of these {len(wanted)} prompts (first: "
            f"{next(iter(wanted))!r}): something replaces the sampler or the data; leave "
            "prompt_sampler out, or keep both as they are"
        )

    def _weights_of(self, draw: Draw, keys: Sequence[str]) -> FloatArray:
        # Rows of one key cannot be told apart, and their rollouts are alike: the sum is the same.
        weights: dict[str, list[float]] = {}
        for row, weight in zip(draw.rows.tolist(), draw.weights.tolist(), strict=True):
            weights.setdefault(self.keys[row], []).append(weight)
        mean = {key: sum(given) / len(given) for key, given in weights.items()}
        return np.array([mean[key] for key in keys])

    def probabilities(self, size: int) -> FloatArray:
        """Probability of each prompt to be in the next batch of ``size``, shape (N,)."""
        return inclusion_probabilities(self._spreads() + self.floor, size)

    def state_dict(self) -> dict[str, Any]:
        """Batches drawn and not done with; JSON types and arrays."""
        return {
            "sampler": self.name,
            "seed": self.seed,
            "prompts": len(self.keys),
            "done": self._done,
            "drawn": {
                str(number): {"rows": d.rows, "weights": d.weights, "metrics": d.metrics}
                for number, d in self._drawn.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave.

        Raises
        ------
        StateError
            If it is of another seed or number of prompts, or damaged.
        """
        mine = {"sampler": self.name, "seed": self.seed, "prompts": len(self.keys)}
        for name, value in mine.items():
            if state.get(name) != value:
                raise StateError(
                    f"the saved prompt sampler has {name}={state.get(name)!r} and this run "
                    f"{value!r}: resume with the same seed and data"
                )
        try:
            drawn = {
                int(number): Draw(
                    np.array(d["rows"], dtype=np.int64),
                    np.array(d["weights"], dtype=np.float64),
                    dict(d["metrics"]),
                )
                for number, d in state["drawn"].items()
            }
            done = int(state["done"])
            fits = all(
                d.rows.shape == d.weights.shape
                and d.rows.min(initial=0) >= 0
                and d.rows.max(initial=0) < len(self.keys)
                for d in drawn.values()
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StateError(
                f"the saved prompt sampler is damaged ({error!r}): resume from an earlier "
                "checkpoint"
            ) from error
        if not fits:
            raise StateError(
                "the saved prompt sampler names rows that the data do not have: resume with the "
                "same data"
            )
        self._done, self._drawn = done, drawn

    def _new(self, number: int, size: int) -> Draw:
        spreads = self._spreads()
        probabilities = inclusion_probabilities(spreads + self.floor, size)
        rows = systematic(probabilities, np.random.default_rng([self.seed, number]))
        weights = size / len(self.keys) / probabilities[rows]
        clipped = 0.0
        if self.clip is not None:
            clipped = float((weights > self.clip).mean())
            weights = np.minimum(weights, self.clip)
        if self.self_normalised:
            weights = weights / weights.mean()
        metrics = {
            "effective_share": float(weights.sum() ** 2 / (size * (weights**2).sum())),
            "floor_share": float((spreads < self.floor).mean()),
            "weight_max": float(weights.max()),
            "clipped_share": clipped,
        }
        return Draw(rows, weights, metrics)

    def _spreads(self) -> FloatArray:
        spreads = np.asarray(self._spread(self.keys, self.sources), dtype=np.float64)
        if spreads.shape != (len(self.keys),):
            raise BasisError(
                f"the estimator's expected_spread has shape {spreads.shape} for "
                f"{len(self.keys)} prompts: return one number per key"
            )
        unknown = np.isnan(spreads)
        if unknown.any():  # before the first batch, without a table
            spreads = np.where(unknown, 0.5 if unknown.all() else np.nanmean(spreads), spreads)
        good = np.isfinite(spreads) & (spreads >= 0)
        if not good.all():
            row = int(good.argmin())
            raise BasisError(
                f"the estimator expects a spread of {spreads[row]} for prompt {self.keys[row]!r}: "
                "a standard deviation is finite and at least 0"
            )
        return spreads


def check_options(**options: Any) -> None:
    """Refuse options that the prompt sampler does not have, and values out of range.

    Raises
    ------
    ConfigError
    """
    for name in options:
        if name not in OPTIONS:
            raise ConfigError(
                f"the prompt sampler has no option {name!r}{nearest(name, list(OPTIONS))}"
            )
    floor, clip = options.get("floor", FLOOR), options.get("clip")
    if not (_is_number(floor) and 0 < floor < math.inf):
        raise ConfigError(f"floor of the prompt sampler is {floor!r}: use a finite number above 0")
    if clip is not None and not (_is_number(clip) and 1 <= clip < math.inf):
        raise ConfigError(
            f"clip of the prompt sampler is {clip!r}: use a finite number of at least 1, or None"
        )
    ratio = options.get("self_normalised", False)
    if not isinstance(ratio, bool):
        raise ConfigError(f"self_normalised of the prompt sampler is {ratio!r}: use True or False")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
