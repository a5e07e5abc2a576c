"""Simulated records of rewards, with the true value of every visit."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from basis_rl.batch import FloatArray, IntArray
from basis_rl.errors import nearest
from basis_rl.lab.record import RecordError, RewardRecord
from basis_rl.lab.simulated_parts import (
    TAILS,
    continuous_cache,
    counted_cache,
    drifts,
    initial_scores,
    noise,
    shifts,
)
from basis_rl.values import sigmoid


@dataclass(frozen=True)
class Simulated:
    """A record, and what no real record shows.

    Attributes
    ----------
    record : RewardRecord
    values : float64 array, shape (V,)
        True value of each visit: the expected reward of the prompt under the policy of then.
    variances : float64 array, shape (V,)
        Variance of one reward of the visit.
    """

    record: RewardRecord
    values: FloatArray
    variances: FloatArray


_WHOLE = {"prompts": 1, "visits": 1, "rollouts": 1, "batch_size": 1, "sources": 1}
_WHOLE |= {"cache": 0, "seed": 0}
_REAL = dict.fromkeys(("tilt", "reversal", "source_tilt"), (-math.inf, math.inf))
_REAL |= {"drift": (0.0, math.inf), "noise": (0.0, math.inf)}
_REAL |= {"forgetting": (0.0, 1.0), "jumps": (0.0, 1.0)}


@dataclass(frozen=True)
class Scenario:
    r"""How prompts, policy and rewards of a simulated record behave.

    Prompt i's score at its k-th visit, after the share u of the visits, is
    ``x_ik = m_i + s(u) + sum_{j <= k} d_ij``; its value is ``sigmoid(x)`` for rewards of 0 and 1,
    and x itself for continuous ones.

    Attributes
    ----------
    prompts, visits, rollouts, cache : int
        P prompts, each visited ``visits`` times with ``rollouts`` rewards a visit, and ``cache``
        rewards of the reference policy, whose scores are the m_i; cache 0 gives no table.
    batch_size : int
        Prompts in a training step; each prompt comes once an epoch, in an order of its own.
    pass_rates : str or array, shape (P,)
        "beta" (Beta(0.8, 0.8)), "u-shaped" (a quarter never solved, a quarter always, the rest
        Beta(0.5, 0.5)), "alike" (all 0.4), "bimodal" (half 0.1, half 0.9), "hopeless" (nine of ten
        at 0.001, the rest Beta(1, 1)), or the values themselves.
    tilt : float
        What the common score s gains from the first visit to the last, evenly.
    reversal : float
        What it loses around the middle of the record, within a twentieth of it.
    forgetting : float
        Share of the prompts that take part in the reversal, 0 to 1.
    drift : float
        Standard deviation of each prompt's own change d_ij between visits.
    jumps : float
        Probability of a jump of a prompt between visits, of a Student t with 2 degrees of freedom,
        at most 6.
    sources : int
        Prompts are dealt out to that many; source k's common score gains ``source_tilt`` times
        -1 to 1, evenly spaced, beside ``tilt``.
    rewards : {"binary", "continuous"}
    tails : {"normal", "student", "lognormal"}
        Of a continuous reward's noise, which has mean 0 and standard deviation ``noise``: Student
        t with 3 degrees of freedom; lognormal with log-deviation 1.
    seed : int

    Raises
    ------
    RecordError
        If a number is out of its range or a name unknown.
    """

    prompts: int = 512
    visits: int = 30
    rollouts: int = 8
    cache: int = 32
    batch_size: int = 64
    pass_rates: str | npt.ArrayLike = "beta"
    tilt: float = 0.0
    reversal: float = 0.0
    forgetting: float = 1.0
    drift: float = 0.0
    jumps: float = 0.0
    sources: int = 1
    source_tilt: float = 1.0
    rewards: str = "binary"
    tails: str = "normal"
    noise: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in _WHOLE.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise RecordError(f"{name} is {value!r}: give a whole number, {least} or more")
        for name, (low, high) in _REAL.items():
            value = getattr(self, name)
            if not (low <= value <= high and math.isfinite(value)):
                span = "a finite number" if low < 0 else "0 or more"
                raise RecordError(
                    f"{name} is {value}: give {'a share from 0 to 1' if high == 1 else span}"
                )
        if self.rewards not in ("binary", "continuous"):
            raise RecordError(f"rewards is {self.rewards!r}: give 'binary' or 'continuous'")
        if self.tails not in TAILS:
            raise RecordError(f"tails is {self.tails!r}: give one of {', '.join(TAILS)}")

    @property
    def is_binary(self) -> bool:
        """Whether rewards are 0 and 1."""
        return self.rewards == "binary"


# What the tests, the documentation and `basis-rl lab simulate` call by name.
SCENARIOS: dict[str, dict[str, Any]] = {
    "no-drift": {},
    "common-shift": {"tilt": 2.0},
    "strong-drift": {"tilt": 1.0, "drift": 0.5},
    "reversal": {"tilt": 2.0, "reversal": 3.0, "drift": 0.1},
    "forgetting": {"tilt": 2.0, "reversal": 3.0, "forgetting": 0.3, "drift": 0.1},
    "jumps": {"tilt": 1.0, "jumps": 0.05},
    "two-sources": {"sources": 2, "source_tilt": 1.5, "tilt": 0.5, "drift": 0.1},
    "u-shaped": {"pass_rates": "u-shaped", "tilt": 1.0, "drift": 0.1},
    "bimodal": {"pass_rates": "bimodal", "tilt": 1.0, "drift": 0.1},
    "continuous": {"rewards": "continuous", "tilt": 2.0, "drift": 0.2},
    "heavy-tails": {"rewards": "continuous", "tails": "student", "tilt": 2.0, "drift": 0.2},
    "all-alike": {"pass_rates": "alike", "tilt": 1.0},
    "mostly-hopeless": {"pass_rates": "hopeless", "tilt": 0.5},
}


def simulate(**settings: Any) -> Simulated:
    """A record of a policy in training, as `Scenario` describes it; the same for the same seed.

    Raises
    ------
    RecordError
        If a setting is unknown or out of its range.
    """
    known = [field.name for field in fields(Scenario)]
    for name in settings:
        if name not in known:
            raise RecordError(f"the simulator has no setting {name!r}{nearest(name, known)}")
    setting = Scenario(**settings)
    rng, of_cache = np.random.default_rng(setting.seed).spawn(2)
    start = initial_scores(setting.pass_rates, setting.prompts, rng, binary=setting.is_binary)
    source = np.arange(setting.prompts) % setting.sources
    keys = [f"prompt-{i}" for i in range(setting.prompts)]
    names = [f"source-{k}" for k in source.tolist()] if setting.sources > 1 else None
    if setting.is_binary:
        table = counted_cache(keys, sigmoid(start), setting.cache, names, of_cache)
    else:
        spread = (setting.tails, setting.noise)
        table = continuous_cache(keys, start, setting.cache, names, spread, of_cache)

    epoch = np.repeat(np.arange(setting.visits), setting.prompts)
    prompt = rng.permuted(np.tile(np.arange(setting.prompts), (setting.visits, 1)), axis=1).ravel()
    scores = start[prompt] + _moves(setting, source, rng)[prompt, epoch]
    values = sigmoid(scores) if setting.is_binary else scores
    rewards, variances = _rewards(setting, values, rng)
    record = RewardRecord(
        keys,
        prompt,
        _steps(setting),
        np.arange(len(prompt) + 1) * setting.rollouts,
        rewards,
        sources=names,
        pass_rates=table,
        name="simulated",
    )
    return Simulated(record, values, variances)


def scenario(name: str, **settings: Any) -> Simulated:
    """A record under one of `SCENARIOS`, with single settings replaced.

    Raises
    ------
    RecordError
        If the name or a setting is unknown.
    """
    if name not in SCENARIOS:
        raise RecordError(f"no scenario is named {name!r}{nearest(name, [*SCENARIOS])}")
    return simulate(**{**SCENARIOS[name], **settings})


def true_error(simulated: Simulated, visits: IntArray, baselines: FloatArray) -> float:
    """Mean squared distance of baselines, shape (N,), to the true values of ``visits``, (N,)."""
    return float(np.mean((baselines - simulated.values[visits]) ** 2))


def _moves(setting: Scenario, source: IntArray, rng: np.random.Generator) -> FloatArray:
    """How far each prompt's score is from its start at each visit; shape (P, visits)."""
    times = (np.arange(setting.visits) + 0.5) / setting.visits
    forgets = rng.permutation(setting.prompts) < round(setting.forgetting * setting.prompts)
    tilts = np.full(setting.sources, setting.tilt)
    if setting.sources > 1:
        tilts = tilts + setting.source_tilt * np.linspace(-1.0, 1.0, setting.sources)
    common = shifts(times, tilts[source], setting.reversal * forgets.astype(np.float64))
    return common + drifts(setting.prompts, setting.visits, setting.drift, setting.jumps, rng)


def _rewards(
    setting: Scenario, values: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Rewards of all visits in a row, and the variance of one reward of each visit."""
    shape = (len(values), setting.rollouts)
    if setting.is_binary:
        rewards = (rng.random(shape) < values[:, None]).astype(np.float64)
        return rewards.ravel(), values * (1.0 - values)
    rewards = values[:, None] + setting.noise * noise(setting.tails, shape, rng)
    return rewards.ravel(), np.full(len(values), setting.noise**2)


def _steps(setting: Scenario) -> IntArray:
    """Step of each visit: batches do not reach over the end of an epoch."""
    within = np.arange(setting.prompts) // setting.batch_size
    per_epoch = int(within[-1]) + 1
    return (np.arange(setting.visits)[:, None] * per_epoch + within).ravel()
