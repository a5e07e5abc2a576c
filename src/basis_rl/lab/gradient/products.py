r"""Inner products of batches' gradients, by prompts and pairs of prompts.

With ``G`` the gradient of a batch, ``G'`` that of the same prompts with other rollouts, and
``G''`` that of other prompts,

    E <G, G''> = |E G|^2,   E <G, G> - E <G, G'> = variance within prompts,
                            E <G, G'> - E <G, G''> = variance between prompts.

Disjoint parts of a random sample are independent, so neither the finite number of rollouts nor
that of prompts biases these. They are sums over prompts and over pairs of prompts, which are kept,
so that prompts can be weighted afterwards.

``E <G, G''>`` and the pairs of different prompts in ``E <G, G'>`` come from each rollout's mean
advantage over all drawn batches, which uses every pair of rollouts of two prompts. A batch that
holds both prompts is among them: where one rollout moves another's advantage by 1 / N, that is a
relative error of 1 / N^2 (exact for baselines that see their own prompt alone). Where scores do not
average to 0 (a mean over the tokens), what baselines of one batch have in common counts as noise
within prompts, even the part that comes from which prompts are in it.

Where an advantage moves with its own reward by a known slope s (`Response`), E G is s times the
gradient of the mean reward. Then ``E <G, G''>`` is taken from that, with all rollouts and a good
baseline, and the noise of a poor baseline does not enter the signal. There, and where no other
prompt's reward counts, the pairs of different prompts in <G, G> come from ``E <G, G''>`` too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from basis_rl.batch import FloatArray
from basis_rl.lab.gradient.advantages import Advantages, others_mean
from basis_rl.lab.gradient.batches import Draw, Layout, Trained, draws, layouts_of, response
from basis_rl.lab.record import RecordError

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Products:
    """Parts of inner products; each sums up to its expectation.

    Attributes
    ----------
    advantages : Advantages
    layout : Layout
    own : array, shape (P, P)
        Of <G, G>, by the prompts of the two factors.
    own_pairs : bool
        Whether ``own`` is to be used off the diagonal.
    fresh : array, shape (P,)
        Of <G, G'>, where both factors are of the same prompt.
    other : array, shape (P, P)
        Of <G, G''>, off the diagonal.
    reference : array, shape (P, P)
        Of <E G, E g>, off the diagonal.
    slope : float or None
        See `Response`.
    """

    advantages: Advantages
    layout: Layout
    own: FloatArray
    own_pairs: bool
    fresh: FloatArray
    other: FloatArray
    reference: FloatArray
    slope: float | None


def products_of(
    advantages: Sequence[Advantages],
    gram: FloatArray,
    rewards: FloatArray,
    *,
    budget: int,
    group: int,
    count: int = 200,
    seed: int = 0,
    known_slopes: bool = True,
    progress: Progress | None = None,
) -> tuple[list[Products], FloatArray]:
    """Products of every estimator in both layouts, all from the same draws.

    Parameters
    ----------
    advantages : sequence of Advantages
    gram : float64 array, shape (P K, P K)
        Inner products of the score gradients.
    rewards : float64 array, shape (P, K)
    budget, group : int
        Rollouts in a gradient; rollouts of a prompt in the layout "groups".
    count : int
        Draws: each cuts all prompts into batches. Rounded up to a multiple of K, so that every
        rollout is drawn equally often.
    seed : int
    known_slopes : bool
        Use the slopes of `Response`. False where a score gradient does not average to 0, as with
        a mean over the tokens.
    progress : callable, optional
        Called with the draws done and all draws.

    Returns
    -------
    products : list of Products
    reference : float64 array, shape (P, P)
        Parts of ``|E g|^2``, off the diagonal, with all rollouts and the mean of the others as
        the baseline.

    Raises
    ------
    RecordError
        If all rewards are the same.
    """
    P, K = rewards.shape
    if (rewards == rewards.flat[0]).all():
        raise RecordError(
            f"all {rewards.size} rewards are {rewards.flat[0]:g}: there is no gradient to look at; "
            "choose other prompts, or look at the verifier"
        )
    count = -(-count // K) * K
    sums = [
        _Sums(one, layout, P, K) for one in advantages for layout in layouts_of(one, budget, group)
    ]
    for number, draw in enumerate(draws(count, P, K, group, seed)):
        _add_draw(sums, draw, gram, K)
        if progress is not None:
            progress(number + 1, count)
    pulls = (rewards - others_mean(rewards)).ravel() / K
    towards = _by_prompts(gram, pulls, P)
    reference = _prompts_by(pulls, towards)
    found = []
    for one in sums:
        seen = response(one.advantages, one.layout, rewards)
        slope = seen.slope if known_slopes else None
        uses_pairs = seen.mixes and slope is None
        found.append(one.products(gram, towards, reference, slope, own_pairs=uses_pairs))
    return found, reference


class _Sums:
    """Sums of one estimator in one layout, over the draws."""

    def __init__(self, advantages: Advantages, layout: Layout, prompts: int, rollouts: int) -> None:
        self.advantages, self.layout = advantages, layout
        self._shape = prompts, rollouts
        self._own, self._fresh = np.zeros((prompts, prompts)), np.zeros(prompts)
        self._total, self._times = np.zeros((2, prompts * rollouts))
        self._batches = 0

    def add(self, trained: Trained, blocks: Sequence[FloatArray]) -> None:
        """Take in one draw; blocks are of first by first, second by second, first by second."""
        first, second = trained.coefficients(self.advantages, self.layout)
        alone = (_pairs(blocks[0], first) + _pairs(blocks[1], second)) / 2
        same = trained.batch[:, None] == trained.batch[None, :]
        self._own[np.ix_(trained.prompts, trained.prompts)] += np.where(same, alone, 0.0)
        self._fresh[trained.prompts] += _same_prompt(blocks[2], first, second)
        np.add.at(self._total, trained.rows.ravel(), np.stack([first, second]).ravel())
        np.add.at(self._times, trained.rows.ravel(), 1.0)
        self._batches += int(trained.batch[-1]) + 1

    def products(
        self,
        gram: FloatArray,
        towards: FloatArray,
        true: FloatArray,
        slope: float | None,
        *,
        own_pairs: bool,
    ) -> Products:
        """Means over the batches; a rollout stands for ``N / K`` of its prompt's."""
        P, K = self._shape
        own, fresh = self._own / self._batches, self._fresh / self._batches
        if slope is not None:
            other, reference = slope**2 * true, slope * true
        else:
            mean = self._total / self._times * (self.layout.size / K)
            other = _prompts_by(mean, _by_prompts(gram, mean, P))
            reference = _prompts_by(mean, towards)
        return Products(
            self.advantages, self.layout, own, own_pairs, fresh, other, reference, slope
        )


def _add_draw(sums: Sequence[_Sums], draw: Draw, gram: FloatArray, rollouts: int) -> None:
    """The inner products are looked up once for all estimators with the same trained rollouts."""
    known: dict[tuple[str, int], list[FloatArray]] = {}
    for one in sums:
        trained = Trained.of(draw, one.layout, rollouts)
        name = one.layout.name, one.layout.trained
        if name not in known:
            first, second = trained.rows
            flat = first.ravel(), second.ravel()
            known[name] = [
                gram[np.ix_(flat[0], flat[0])],
                gram[np.ix_(flat[1], flat[1])],
                gram[first[:, :, None], second[:, None, :]],
            ]
        one.add(trained, known[name])


def _pairs(block: FloatArray, a: FloatArray) -> FloatArray:
    """``sum_{t, u} a[i, t] block[it, ju] a[j, u]``, shape (Q, Q)."""
    Q, trained = a.shape
    if trained == 1:
        return np.asarray(block * a * a.T)
    return _prompts_by(a.ravel(), _by_prompts(block, a.ravel(), Q))


def _same_prompt(block: FloatArray, a: FloatArray, b: FloatArray) -> FloatArray:
    """``sum_{t, u} a[i, t] block[i, t, u] b[i, u]``, shape (Q,)."""
    return np.asarray(np.einsum("it,itu,iu->i", a, block, b))


def _by_prompts(products: FloatArray, a: FloatArray, prompts: int) -> FloatArray:
    """Each row's products with every prompt's sum ``sum_u a[j, u] s_ju``, shape (rows, prompts)."""
    return np.asarray((products * a).reshape(len(products), prompts, -1).sum(-1))


def _prompts_by(a: FloatArray, rows: FloatArray) -> FloatArray:
    """Sum over each prompt's rollouts of ``a[i, t] rows[it]``, shape (prompts, columns)."""
    columns = rows.shape[1]
    return np.asarray((a[:, None] * rows).reshape(columns, -1, columns).sum(1))
