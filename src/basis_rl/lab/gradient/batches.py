"""Batches drawn from a pool: which prompts, which rollouts of each, and which are trained on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from basis_rl.batch import FloatArray, IntArray
from basis_rl.errors import ConfigError
from basis_rl.lab.gradient.advantages import Advantages

_SAME = 1e-9  # slopes that differ less are the same


@dataclass(frozen=True)
class Layout:
    """How a batch spends its rollouts.

    Attributes
    ----------
    name : str
    prompts : int
        Different prompts of a batch.
    shown : int
        Rollouts of each prompt that the estimator sees.
    trained : int
        Those of them that enter the gradient; the rest are seen for nothing.
    """

    name: str
    prompts: int
    shown: int
    trained: int

    @property
    def size(self) -> int:
        """Rollouts in the gradient."""
        return self.prompts * self.trained


DIFFERENT, GROUPS = "different", "groups"


def layouts_of(advantages: Advantages, budget: int, group: int) -> list[Layout]:
    """The two layouts of a budget: all prompts different, and ``group`` rollouts of each.

    An estimator that needs groups sees ``group`` rollouts of each prompt in both; where all
    prompts are different, only the first of them is trained on, and the others cost nothing.

    Raises
    ------
    ConfigError
        If the budget is not a multiple of the group.
    """
    check_budget(budget, group)
    shown = group if advantages.needs_groups else 1
    return [
        Layout(DIFFERENT, budget, shown, 1),
        Layout(GROUPS, budget // group, group, group),
    ]


def check_budget(budget: int, group: int) -> None:
    """Refuse a budget that cannot be spent in both layouts.

    Raises
    ------
    ConfigError
        If the group is below 2 or the budget is not a multiple of it.
    """
    if group < 2:
        raise ConfigError(f"group is {group}: use 2 or more rollouts of a prompt, e.g. 8")
    if budget < group or budget % group:
        raise ConfigError(f"budget is {budget}: use a multiple of {group}, the group's rollouts")


def check_sizes(prompts: int, rollouts: int, budget: int, group: int) -> None:
    """Refuse a pool that is too small for two batches without a prompt or a rollout in common.

    Raises
    ------
    ConfigError
        Naming what is missing.
    """
    check_budget(budget, group)
    if prompts < 2 * budget:
        raise ConfigError(
            f"{prompts} prompts are too few for two batches of {budget} different ones: use a "
            f"budget of at most {prompts // 2 // group * group}, or {2 * budget} prompts"
        )
    if rollouts < 2 * group:
        raise ConfigError(
            f"{rollouts} rollouts of a prompt are too few for two groups of {group}: sample "
            f"{2 * group}"
        )


@dataclass(frozen=True)
class Draw:
    """A random order of the prompts, and two disjoint sets of rollouts of each.

    Attributes
    ----------
    order : int array, shape (P,)
        Batch c of a layout has the prompts ``order[c * n:(c + 1) * n]``.
    rollouts : int array, shape (2, P, most shown)
        Of each prompt, by its number: the rollouts of the first and of the second set.
    """

    order: IntArray
    rollouts: IntArray


def draws(count: int, prompts: int, rollouts: int, most: int, seed: int) -> Iterator[Draw]:
    """Draws in which a pool's rollouts come without replacement, and equally often.

    Every K draws, each prompt's rollouts are put into a new order, which then turns by one a draw.

    Parameters
    ----------
    count : int
    prompts, rollouts : int
        Of the pool, P and K.
    most : int
        Rollouts of a set.
    seed : int
    """
    random = np.random.default_rng(seed)
    places = np.arange(2 * most)
    for number in range(count):
        if number % rollouts == 0:
            turned = np.argsort(random.random((prompts, rollouts)), axis=1)
        picked = turned[:, (places + number) % rollouts]
        yield Draw(random.permutation(prompts), np.stack([picked[:, :most], picked[:, most:]]))


@dataclass(frozen=True)
class Trained:
    """What a draw's batches put into gradients, prompts in the order of the draw.

    Attributes
    ----------
    prompts : int array, shape (Q,)
        Batches times prompts of a batch.
    batch : int array, shape (Q,)
        Batch of each.
    rows : int array, shape (2, Q, trained)
        Rollouts of the pool, ``prompt * K + number``.
    """

    prompts: IntArray
    batch: IntArray
    rows: IntArray
    shown: IntArray

    @classmethod
    def of(cls, draw: Draw, layout: Layout, rollouts: int) -> Trained:
        """Cut a draw into batches; prompts that do not fill one are left out."""
        batches = len(draw.order) // layout.prompts
        prompts = draw.order[: batches * layout.prompts]
        shown = prompts[None, :, None] * rollouts + draw.rollouts[:, prompts, : layout.shown]
        batch = np.repeat(np.arange(batches), layout.prompts)
        return cls(prompts, batch, shown[:, :, : layout.trained], shown)

    def coefficients(self, advantages: Advantages, layout: Layout) -> FloatArray:
        """``A / N`` of every trained rollout, shape (2, Q, trained)."""
        found = np.empty(self.rows.shape)
        n = layout.prompts
        for half in range(2):
            for start in range(0, len(self.prompts), n):
                rows = self.shown[half, start : start + n]
                values = advantages(rows.ravel()).reshape(rows.shape)
                found[half, start : start + n] = values[:, : layout.trained]
        return found / layout.size


@dataclass(frozen=True)
class Response:
    r"""How advantages move when one reward of the batch is changed.

    Attributes
    ----------
    slope : float or None
        Of an advantage in its own reward, if that is the same for every row. Where
        ``A_i = s r_i + h`` with an h that does not depend on row i's own rollout, ``E[h g_i]`` is
        0 and ``E G`` is s times the gradient of the mean reward: 1 for a baseline that leaves the
        own reward out, ``1 - 1 / G`` for a group's mean.
    mixes : bool
        Whether advantages of other prompts move too.
    """

    slope: float | None
    mixes: bool


def response(advantages: Advantages, layout: Layout, rewards: FloatArray) -> Response:
    """Change every reward of two batches in turn, and look at what moves.

    Parameters
    ----------
    advantages : Advantages
    layout : Layout
    rewards : float64 array, shape (P, K)
    """
    P, K = rewards.shape
    low, high = rewards.min(), rewards.max()
    slopes, mixed = [], 0.0
    for draw in draws(2 if low < high else 0, P, K, layout.shown, seed=1):
        rows = Trained.of(draw, layout, K).shown[0, : layout.prompts].ravel()
        given = rewards.ravel()[rows]
        before = advantages(rows)
        for i in range(len(rows)):
            changed = given.copy()
            changed[i] = low if given[i] > (low + high) / 2 else high
            moved = advantages(rows, changed) - before
            slopes.append(moved[i] / (changed[i] - given[i]))
            mixed = max(mixed, np.abs(moved[rows // K != rows[i] // K]).max(initial=0.0))
    if not slopes:
        return Response(None, True)
    middle = float(np.median(slopes))
    is_same = np.ptp(slopes) <= _SAME * max(abs(middle), 1.0)
    return Response(middle if is_same else None, bool(mixed > _SAME))
