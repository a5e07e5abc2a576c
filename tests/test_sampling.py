from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basis_rl.batch import FloatArray, RewardBatch
from basis_rl.errors import BasisError, ConfigError, StateError
from basis_rl.estimators import create
from basis_rl.sampling import PromptSampler
from basis_rl.state_files import read_state, write_state
from basis_rl.systematic import inclusion_probabilities, systematic

SPREADS = np.array([0.5, 0.5, 0.45, 0.3, 0.1, 0.02, 0.0, 0.0, 0.4, 0.0])
KEYS = [f"p{i}" for i in range(len(SPREADS))]


def known(keys: Sequence[str], sources: Sequence[str] | None = None) -> FloatArray:
    return SPREADS[[int(key[1:]) for key in keys]]


def sampler(**options: Any) -> PromptSampler:
    return PromptSampler(KEYS, known, **options)


@given(
    st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30).flatmap(
        lambda sizes: st.tuples(st.just(sizes), st.integers(1, len(sizes)))
    )
)
def test_probabilities_sum_to_the_batch_and_grow_with_the_size(
    case: tuple[list[float], int],
) -> None:
    sizes, count = np.array(case[0]), case[1]
    chances = inclusion_probabilities(sizes, count)
    assert chances.sum() == pytest.approx(count)
    assert (chances > 0).all()
    assert chances.max() <= 1.0
    below = chances < 1.0
    if below.any():
        # In proportion where not capped, and those capped would be above 1.
        factor = chances[below] / sizes[below]
        assert factor == pytest.approx(factor[0])
        assert (sizes[~below] * factor[0] >= 1 - 1e-9).all()


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, len(SPREADS)))
def test_a_draw_has_as_many_different_rows_as_asked_for(seed: int, count: int) -> None:
    chances = inclusion_probabilities(SPREADS + 0.05, count)
    rows = systematic(chances, np.random.default_rng(seed))
    assert len(rows) == len(set(rows.tolist())) == count
    assert set(np.flatnonzero(chances == 1.0)) <= set(rows.tolist())


@pytest.mark.parametrize("count", [1, 3, 8, 10])
def test_rows_are_drawn_with_their_probabilities(count: int) -> None:
    chances = inclusion_probabilities(SPREADS + 0.05, count)
    rng = np.random.default_rng(0)
    draws = 20_000
    seen = np.zeros(len(SPREADS))
    for _ in range(draws):
        seen[systematic(chances, rng)] += 1
    error = np.sqrt(chances * (1 - chances) / draws)
    assert (np.abs(seen / draws - chances) <= 4.5 * error + 1e-12).all()


@pytest.mark.parametrize("size", [1, 4, 9])
def test_the_weighted_mean_of_a_batch_has_the_mean_of_the_data(size: int) -> None:
    values = np.random.default_rng(1).normal(size=(len(KEYS), 3))
    it = sampler(seed=5)
    means = []
    for number in range(6000):
        draw = it.draw(number, size)
        assert draw is not None
        means.append((draw.weights[:, None] * values[draw.rows]).mean(axis=0))
        it._drawn.clear()
    error = np.std(means, axis=0) / np.sqrt(len(means))
    assert (np.abs(np.mean(means, axis=0) - values.mean(axis=0)) <= 4.5 * error).all()


def test_where_the_spread_is_known_a_batch_says_more_than_a_uniform_one() -> None:
    # Values of the size of the spreads, as gradients have: the reason for the sampler.
    rng = np.random.default_rng(2)
    values = SPREADS * rng.choice([-1.0, 1.0], len(KEYS))
    it = sampler()
    ours = []
    for number in range(3000):
        draw = it.draw(number, 3)
        assert draw is not None
        ours.append((draw.weights * values[draw.rows]).mean())
    uniform = [values[rng.permutation(len(KEYS))[:3]].mean() for _ in range(3000)]
    assert np.var(ours) < 0.9 * np.var(uniform)


def test_equal_spreads_are_uniform_sampling() -> None:
    it = PromptSampler(KEYS, lambda keys, _: np.full(len(keys), 0.3))
    draw = it.draw(0, 4)
    assert draw is not None
    assert draw.weights == pytest.approx(1.0)
    assert draw.metrics["effective_share"] == pytest.approx(1.0)


def test_metrics_weights_and_the_floor_by_hand() -> None:
    it = PromptSampler(["a", "b", "c"], lambda *_: np.array([0.5, 0.2, 0.0]), floor=0.1)
    assert it.probabilities(1) == pytest.approx([0.6, 0.3, 0.1])
    draw = it.draw(0, 2)
    assert draw is not None
    # c = 2 would give 1.2: the first is certain, and the others share what is left.
    wanted = (2 / 3) / np.array([1.0, 0.75, 0.25])
    assert draw.weights == pytest.approx(wanted[draw.rows])
    assert draw.metrics["floor_share"] == pytest.approx(1 / 3)
    assert draw.metrics["weight_max"] == pytest.approx(wanted[draw.rows].max())
    w = draw.weights
    assert draw.metrics["effective_share"] == pytest.approx(w.sum() ** 2 / (2 * (w**2).sum()))


def test_clipping_and_self_normalisation() -> None:
    plain = sampler(seed=3).draw(0, 5)
    cut = sampler(seed=3, clip=1.5).draw(0, 5)
    ratio = sampler(seed=3, self_normalised=True).draw(0, 5)
    assert plain is not None
    assert cut is not None
    assert ratio is not None
    assert (plain.rows == cut.rows).all()
    assert cut.weights == pytest.approx(np.minimum(plain.weights, 1.5))
    assert cut.metrics["clipped_share"] == pytest.approx((plain.weights > 1.5).mean())
    assert ratio.weights == pytest.approx(plain.weights / plain.weights.mean())


def test_a_draw_depends_on_seed_and_number_alone() -> None:
    draws = {}
    for seed, number in itertools.product((0, 1), (0, 1)):
        draw = sampler(seed=seed).draw(number, 4)
        assert draw is not None
        again = sampler(seed=seed).draw(number, 4)
        assert again is not None
        assert (again.rows == draw.rows).all()
        draws[seed, number] = tuple(draw.rows.tolist())
    assert len(set(draws.values())) == 4


def test_a_resumed_sampler_goes_on_with_what_was_drawn(tmp_path: Any) -> None:
    spread = [SPREADS]
    whole = PromptSampler(KEYS, lambda *_: spread[0])
    first = [whole.draw(number, 3) for number in range(3)]
    assert all(first)
    weights, metrics = whole.used([KEYS[row] for row in first[0].rows.repeat(2)])  # type: ignore[union-attr]
    assert weights == pytest.approx(first[0].weights.repeat(2))  # type: ignore[union-attr]
    assert metrics == first[0].metrics  # type: ignore[union-attr]
    whole.used([KEYS[row] for row in first[1].rows])  # type: ignore[union-attr]
    write_state(whole.state_dict(), tmp_path / "state")
    spread[0] = SPREADS[::-1]  # the estimator has learned since
    rest = PromptSampler(KEYS, lambda *_: spread[0])
    rest.load_state_dict(read_state(tmp_path / "state"))
    assert rest.draw(0, 3) is None
    # Number 1 is in use: its rollouts may be sampled again.
    for number in (1, 2):
        kept = rest.draw(number, 3)
        assert kept is not None
        assert (kept.rows == first[number].rows).all()  # type: ignore[union-attr]
        assert (kept.weights == first[number].weights).all()  # type: ignore[union-attr]
    new, other = rest.draw(3, 3), whole.draw(3, 3)
    assert new is not None
    assert other is not None
    assert (new.rows == other.rows).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 9}, ["seed=9", "same seed"]),
        ({"prompts": 3}, ["prompts=3", "same seed and data"]),
        ({"drawn": 5}, ["damaged"]),
        ({"drawn": {"0": {"rows": [99], "weights": [1.0], "metrics": {}}}}, ["rows"]),
    ],
)
def test_another_state_is_refused(change: dict[str, Any], words: list[str]) -> None:
    it = sampler()
    with pytest.raises(StateError) as caught:
        it.load_state_dict(it.state_dict() | change)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"floor": 0}, "floor"),
        ({"floor": float("nan")}, "floor"),
        ({"floor": "a"}, "floor"),
        ({"clip": 0.5}, "at least 1"),
        ({"self_normalised": 1}, "self_normalised"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        sampler(**options)


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ConfigError, match="11 different prompts of 10"):
        sampler().draw(0, 11)
    with pytest.raises(ConfigError, match="no prompts"):
        PromptSampler([], known)
    with pytest.raises(ConfigError, match=r"is a Zero: .*expected_spread"):
        PromptSampler(KEYS, create("zero"))  # type: ignore[arg-type]
    for bad, word in ((np.full(10, np.inf), "inf"), (-SPREADS, "-0.5"), (np.ones(3), "shape")):
        with pytest.raises(BasisError, match=word):
            PromptSampler(KEYS, lambda *_, bad=bad: bad).draw(0, 2)
    it = sampler()
    it.draw(0, 2)
    with pytest.raises(BasisError, match="drew no batch of these 1 prompts"):
        it.used(["p3"])


def test_the_loop_of_the_docs_goes_on_after_a_restart() -> None:
    page = (Path(__file__).parents[1] / "docs" / "sampler.md").read_text()
    block = page[page.index("sampler = PromptSampler(") :].split("```")[0]
    start, loop = block.split("for number", 1)
    shown = next(line for line in loop.splitlines() if "batch = ..." in line)
    loop = "for number" + loop.replace(shown, "    batch = rollouts_of(number, rows)")
    loop = loop.replace("size=64", "size=4")
    keys, drawn = [f"p{i}" for i in range(20)], []

    def rollouts_of(number: int, rows: np.ndarray) -> RewardBatch:
        drawn.append((number, rows.tolist()))
        rewards = np.random.default_rng(number).integers(0, 2, len(rows))
        return RewardBatch([keys[row] for row in rows], rewards, step=number)

    def run(steps: int, state: dict[str, Any] | None) -> dict[str, Any]:
        names = {"PromptSampler": PromptSampler, "keys": keys, "rollouts_of": rollouts_of}
        names |= {"estimator": create("basis-online"), "steps": steps}
        exec(start, names)
        parts = ("sampler", "estimator")
        if state is not None:
            for part in parts:
                names[part].load_state_dict(state[part])  # type: ignore[attr-defined]
        exec(loop, names)
        return {part: names[part].state_dict() for part in parts}  # type: ignore[attr-defined]

    run(6, None)
    whole = list(drawn)
    drawn.clear()
    run(6, run(3, None))
    assert drawn == whole
    assert [number for number, _ in drawn] == list(range(6))


def test_prompts_in_the_data_twice_keep_their_weight() -> None:
    spread = {"a": 0.4, "b": 0.1}
    it = PromptSampler(["a", "a", "b"], lambda keys, _: np.array([spread[key] for key in keys]))
    draw = it.draw(0, 3)
    assert draw is not None
    weights, _ = it.used(["a", "b", "a"])
    assert weights == pytest.approx(1.0)


def test_rows_of_one_prompt_share_their_weights() -> None:
    # The same text in two sources, which the estimator expects to spread differently.
    def spread(keys: Sequence[str], sources: Sequence[str] | None) -> FloatArray:
        assert sources is not None
        return np.array([0.4 if source == "x" else 0.1 for source in sources])

    it = PromptSampler(["a", "a", "b", "c"], spread, sources=["x", "y", "x", "y"])
    rng = np.random.default_rng(0)
    sums = []
    for number in range(4000):
        draw = it.draw(number, 2)
        assert draw is not None
        keys = [it.keys[row] for row in draw.rows]
        weights, _ = it.used(keys)
        assert weights.sum() == pytest.approx(draw.weights.sum())
        gradients = np.array([{"a": 3.0, "b": 1.0, "c": -2.0}[key] for key in keys])
        sums.append((weights * (gradients + rng.normal(size=2))).mean())
    error = np.std(sums) / np.sqrt(len(sums))
    assert abs(np.mean(sums) - (3 + 3 + 1 - 2) / 4) <= 4.5 * error


def test_a_batch_of_another_size_than_drawn_is_refused() -> None:
    it = sampler()
    it.draw(0, 4)
    with pytest.raises(ConfigError, match="drawn with 4 prompts, and 5 are asked for: resume"):
        it.draw(0, 5)


def test_unknown_spreads_count_as_the_mean_of_the_others() -> None:
    it = PromptSampler(["a", "b", "c"], lambda *_: np.array([0.4, np.nan, 0.2]), floor=0.1)
    assert it.probabilities(1) == pytest.approx(np.array([0.5, 0.4, 0.3]) / 1.2)
    it = PromptSampler(KEYS, lambda *_: np.full(10, np.nan))
    assert it.probabilities(5) == pytest.approx(0.5)


class InOrder:
    """A generator that leaves the order alone and gives one number."""

    def __init__(self, start: float) -> None:
        self.start = start

    def permutation(self, values: Any) -> Any:
        return values

    def random(self) -> float:
        return self.start


@pytest.mark.parametrize("count", [1, 4, 9])
def test_in_any_one_order_the_probabilities_are_exact(count: int) -> None:
    chances = inclusion_probabilities(SPREADS + 0.05, count)
    seen = np.zeros(len(SPREADS))
    starts = (np.arange(4000) + 0.5) / 4000
    for start in starts:
        rng: Any = InOrder(float(start))
        seen[systematic(chances, rng)] += 1
    assert seen / len(starts) == pytest.approx(chances, abs=1e-3)


def test_batches_of_all_prompts_are_told_apart() -> None:
    it = PromptSampler(["a", "b"], lambda *_: np.array([0.4, 0.1]))
    it.draw(0, 2)
    for number in range(5):
        it.draw(number + 1, 2)  # one ahead, as a data loader does
        it.used(["a", "b"])
        state = it.state_dict()
        assert state["done"] == number + 1
        assert sorted(state["drawn"]) == [str(number), str(number + 1)]


@pytest.mark.parametrize("name", ["spo", "basis-online"])
def test_gradients_of_an_estimator_that_learns_keep_their_mean(name: str) -> None:
    # The sampler chooses by what the estimator made of earlier rewards; two rollouts a prompt.
    values = np.random.default_rng(0).beta(0.4, 0.4, 40)
    keys = [f"p{i}" for i in range(40)]
    weighted, plain = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        estimator: Any = create(name)
        it = PromptSampler(keys, estimator.expected_spread, seed=seed)
        for number in range(25):
            draw = it.draw(number, 8)
            assert draw is not None
            rows = draw.rows.repeat(2)
            rewards = (rng.random(16) < values[rows]).astype(float)
            batch = RewardBatch([keys[row] for row in rows], rewards, step=number)
            weights, _ = it.used(batch.keys)
            gradients = estimator.estimate(batch).advantages * (rewards - values[rows])
            weighted.append((weights * gradients).mean())
            plain.append(gradients.mean())
    wanted = (values * (1 - values)).mean()
    error = np.std(weighted) / np.sqrt(len(weighted))
    assert abs(np.mean(weighted) - wanted) <= 4 * error
    assert np.mean(plain) - wanted > 5 * error  # without weights
