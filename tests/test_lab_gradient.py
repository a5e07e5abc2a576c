"""The noise of gradients, against a bandit whose gradient and variance are known exactly."""

from __future__ import annotations

import copy
import csv
import dataclasses
import io
from collections.abc import Callable

import numpy as np
import pytest
from gradient_bandit import ACTIONS, Bandit

from basis_rl import estimators
from basis_rl.errors import ConfigError
from basis_rl.lab.gradient.advantages import (
    Advantages,
    KnownBaseline,
    advantages_of,
    others_mean,
)
from basis_rl.lab.gradient.batches import (
    DIFFERENT,
    GROUPS,
    Trained,
    check_sizes,
    draws,
    layouts_of,
    response,
)
from basis_rl.lab.gradient.noise import Figure, GradientNoise, noise_of, ratio
from basis_rl.lab.gradient.picture import noise_figure
from basis_rl.lab.gradient.pool import RolloutPool
from basis_rl.lab.gradient.products import products_of
from basis_rl.lab.gradient.table import about, base_of, csv_text, lines, shares

GROUP, BUDGET = 2, 8
EXACT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "zero": lambda r: r,
    "leave-one-out": lambda r: r - (r.sum() - r) / (len(r) - 1),
    "group-mean-no-std": lambda r: r - r.mean(),
    "group-mean": lambda r: (r - r.mean()) / (r.std(ddof=1) + 1e-6),
}


def measured(
    pool: RolloutPool, advantages: list[Advantages], *, count: int = 8, **options
) -> dict[tuple[str, str], GradientNoise]:
    products, reference = products_of(
        advantages, pool.gram(), pool.rewards, budget=BUDGET, group=GROUP, count=count, **options
    )
    noise = noise_of(products, reference, resamples=400)
    return {(one.name, one.layout.name): one for one in noise}


def contains(figure: Figure, value: float) -> bool:
    return figure.low <= value <= figure.high


def near(figure: Figure, value: float) -> bool:
    """Within twice the interval: four standard errors, for tests of many numbers at once."""
    low, middle, high = figure.low, figure.value, figure.high
    return 2 * low - middle <= value <= 2 * high - middle


@pytest.fixture(scope="module")
def bandit() -> Bandit:
    return Bandit()


@pytest.fixture(scope="module")
def found(bandit: Bandit) -> dict[tuple[str, str], GradientNoise]:
    pool = bandit.pool(320, 8)
    return measured(pool, advantages_of(pool, list(EXACT)))


def exact(bandit: Bandit, one: GradientNoise) -> dict[str, float]:
    layout = one.layout
    shown = layout.shown if one.name != "zero" else layout.trained
    parts = bandit.group_noise(shown, EXACT[one.name], layout.trained)
    return parts | {"variance": parts["variance"] / layout.prompts}


@pytest.mark.parametrize("layout", [DIFFERENT, GROUPS])
@pytest.mark.parametrize("name", list(EXACT))
def test_signal_to_noise_ratio_and_its_parts_are_the_exact_ones(bandit, found, name, layout):
    one = found[name, layout]
    true = exact(bandit, one)
    snr = true["signal"] / true["variance"] / one.layout.size
    figure = Figure.of(one.snr)
    assert near(figure, snr)
    assert figure.high < 1.6 * figure.low
    assert near(Figure.of(one.signal), true["signal"])
    assert near(Figure.of(one.variance), true["variance"])
    assert near(Figure.of(one.within * one.layout.prompts), true["within"])
    between = 1 - true["within"] / true["variance"] / one.layout.prompts
    assert one.between_share[0] == pytest.approx(between, abs=0.05)
    assert near(Figure.of(one.reference), (bandit.gradient**2).sum())


def test_ratios_of_estimators_are_much_surer_than_their_values(bandit, found):
    left, right = found["leave-one-out", GROUPS], found["zero", GROUPS]
    gain = Figure.of(ratio(left.snr, right.snr))
    true = [exact(bandit, one) for one in (left, right)]
    expected = true[0]["signal"] / true[0]["variance"] * true[1]["variance"] / true[1]["signal"]
    assert near(gain, expected)
    assert gain.high / gain.low < Figure.of(left.snr).high / Figure.of(left.snr).low


def test_intervals_contain_the_exact_ratio_about_as_often_as_they_say(bandit):
    inside = []
    for seed in range(40):
        pool = bandit.pool(48, 4, seed=seed)
        noise = measured(pool, advantages_of(pool, ["zero", "leave-one-out"]), count=4)
        for one in noise.values():
            true = exact(bandit, one)
            snr = true["signal"] / true["variance"] / one.layout.size
            inside.append(contains(Figure.of(one.snr), snr))
    assert np.mean(inside) > 0.85


@pytest.mark.parametrize("layout", [DIFFERENT, GROUPS])
@pytest.mark.parametrize("name", list(EXACT))
def test_means_over_tokens_have_their_own_signal_and_noise(bandit, name, layout):
    """Divided by its length, a score does not average to 0: the signal depends on the baseline."""
    pool = bandit.pool(320, 8, seed=3)
    advantages = advantages_of(pool, [name])
    products, reference = products_of(
        advantages,
        pool.gram("token-mean"),
        pool.rewards,
        budget=BUDGET,
        group=GROUP,
        count=8,
        known_slopes=False,
    )
    noise = noise_of(products, reference, resamples=400)
    (one,) = (each for each in noise if each.layout.name == layout)
    shorter = copy.copy(bandit)
    shorter.scores = bandit.scores / (1.0 + np.arange(ACTIONS))[None, :, None]
    true = exact(shorter, one)
    assert near(Figure.of(one.signal), true["signal"])
    assert near(Figure.of(one.variance), true["variance"])
    assert near(Figure.of(one.within * one.layout.prompts), true["within"])


def test_a_signal_that_is_not_seen_is_said_so_and_no_noise_is_made_of_it(bandit):
    pool = bandit.pool(16, 4, seed=1)
    noise = list(measured(pool, advantages_of(pool, ["zero", "group-mean"])).values())
    hidden = [dataclasses.replace(one, reference=-np.abs(one.reference)) for one in noise]
    assert all(np.isnan(part).all() for one in hidden for part in (one.noise, one.cosine))
    text = "\n".join(lines(hidden))
    assert "cannot be told from 0" in text
    assert "? to ?" not in text
    found = "\n".join(lines(list(measured(bandit.pool(320, 8), every_of(bandit)).values())))
    assert "cannot be told from 0" not in found


def every_of(bandit: Bandit) -> list[Advantages]:
    return advantages_of(bandit.pool(320, 8), ["zero", "group-mean"])


def test_the_constant_baseline_of_least_noise_is_named(bandit):
    pool = bandit.pool(64, 8)
    (said,) = (line for line in about(pool, "sum") if "constant baseline" in line)
    grid = np.linspace(0.0, 1.0, 1001)
    left = [((pool.rewards - b) ** 2 * pool.norms()).sum() for b in grid]
    assert float(said.split()[-1]) == pytest.approx(grid[np.argmin(left)], abs=1e-3)


class Shrunk(Advantages):
    """A part of another estimator's advantages."""

    def __init__(self, other: Advantages, factor: float) -> None:
        self.name, self.label = f"shrunk {other.name}", "shrunk"
        self.needs_groups = other.needs_groups
        self._other, self._factor = other, factor

    def __call__(self, rows, rewards=None):
        return self._factor * self._other(rows, rewards)


@pytest.mark.parametrize("known_slopes", [True, False])
def test_smaller_advantages_gain_nothing(bandit, known_slopes):
    pool = bandit.pool(32, 4)
    zero, paper = advantages_of(pool, ["zero", "group-mean"])
    noise = measured(
        pool,
        [zero, Shrunk(zero, 0.3), paper, Shrunk(paper, 0.3)],
        count=4,
        known_slopes=known_slopes,
    )
    for name in ("zero", "group-mean"):
        for layout in (DIFFERENT, GROUPS):
            whole, part = noise[name, layout], noise[f"shrunk {name}", layout]
            np.testing.assert_allclose(part.snr, whole.snr, rtol=1e-9)
            np.testing.assert_allclose(part.noise, whole.noise, rtol=1e-9)
            np.testing.assert_allclose(part.scale, 0.3 * whole.scale, rtol=1e-9)
            np.testing.assert_allclose(part.variance, 0.09 * whole.variance, rtol=1e-9)
            np.testing.assert_allclose(part.batch_cosine, whole.batch_cosine, rtol=1e-9)


def test_a_constant_shift_of_the_baselines_adds_noise_and_moves_nothing(bandit):
    pool = bandit.pool(320, 8, seed=2)
    values = others_mean(pool.rewards)
    every = [KnownBaseline(str(by), "", pool, values + by) for by in (0.0, 0.5)]
    for one in every:
        seen = response(one, layouts_of(one, 8, 2)[0], pool.rewards)
        assert (seen.slope, seen.mixes) == (1.0, False)
    # Without what is known of them: the mean gradient is measured.
    noise = measured(pool, every, known_slopes=False)
    for layout in (DIFFERENT, GROUPS):
        plain, shifted = noise["0.0", layout], noise["0.5", layout]
        assert contains(Figure.of(shifted.scale), 1.0)
        assert shifted.cosine[0] == pytest.approx(1.0, abs=0.03)
        assert plain.scale[0] == pytest.approx(1.0, abs=1e-6)
        assert shifted.variance[0] > 1.5 * plain.variance[0]


def test_known_slopes_make_the_signal_surer_and_leave_it_where_it_was(bandit, found):
    pool = bandit.pool(320, 8)
    free = measured(pool, advantages_of(pool, ["zero"]), known_slopes=False)["zero", DIFFERENT]
    known = found["zero", DIFFERENT]
    assert contains(Figure.of(free.scale), known.scale[0])
    widths = [Figure.of(one.signal).high - Figure.of(one.signal).low for one in (known, free)]
    assert widths[0] < widths[1]


def test_slope_of_an_advantage_in_its_own_reward(bandit):
    pool = bandit.pool(40, 4, offline=8, earlier=2)
    names = ["zero", "batch-mean", "leave-one-out", "group-mean-no-std", "group-mean", "basis"]
    slopes, mixing = {}, set()
    for one in advantages_of(pool, [*names, "basis-paper", "value"], batch_size=BUDGET):
        seen = [response(one, layout, pool.rewards) for layout in layouts_of(one, BUDGET, GROUP)]
        slopes[one.name] = [part.slope for part in seen]
        mixing |= {one.name for part in seen if part.mixes}
    for name in ("zero", "leave-one-out", "basis", "value"):
        assert slopes[name] == pytest.approx([1.0, 1.0])
    assert slopes["batch-mean"] == pytest.approx([1 - 1 / BUDGET] * 2)
    assert slopes["group-mean-no-std"] == pytest.approx([1 - 1 / GROUP] * 2)
    assert slopes["basis-paper"] == [None, None]  # beta sees the own reward
    assert mixing == {"batch-mean", "basis", "basis-paper"}
    bigger = bandit.pool(40, 8)
    (grpo,) = advantages_of(bigger, ["group-mean"])
    assert response(grpo, layouts_of(grpo, 8, 4)[1], bigger.rewards).slope is None


def test_products_are_those_of_the_batches_gradients(bandit):
    """Against gradients that are added up one by one."""
    pool = bandit.pool(16, 4)
    every = advantages_of(pool, ["batch-mean", "leave-one-out"])
    products, _ = products_of(every, pool.gram(), pool.rewards, budget=4, group=2, count=4)
    S = pool.sketches.reshape(-1, pool.sketches.shape[-1]).astype(float)
    for one in products:
        own, fresh = [], []
        for draw in draws(4, 16, 4, 2, seed=0):
            n = one.layout.prompts
            for start in range(0, 16 // n * n, n):
                parts = np.zeros((2, n, S.shape[-1]))
                for half in range(2):
                    chosen = draw.order[start : start + n]
                    picked = draw.rollouts[half, chosen, : one.layout.shown]
                    rows = chosen[:, None] * 4 + picked
                    A = one.advantages(rows.ravel()).reshape(rows.shape)
                    for i in range(n):
                        for t in range(one.layout.trained):
                            parts[half, i] += A[i, t] * S[rows[i, t]] / one.layout.size
                own += [(parts[0].sum(0) ** 2).sum(), (parts[1].sum(0) ** 2).sum()]
                fresh.append((parts[0] * parts[1]).sum())
        assert one.own.sum() == pytest.approx(np.mean(own))
        assert one.fresh.sum() == pytest.approx(np.mean(fresh))


def test_draws_use_every_rollout_equally_often_and_none_twice():
    times = np.zeros((6, 5), dtype=int)
    for draw in draws(10, 6, 5, 2, seed=0):
        assert sorted(draw.order) == list(range(6))
        for prompt in range(6):
            picked = draw.rollouts[:, prompt].ravel()
            assert len(set(picked)) == 4
            times[prompt, picked] += 1
    assert (times == 8).all()


def test_group_estimators_see_more_than_is_trained_on_where_prompts_differ(bandit):
    pool = bandit.pool(16, 4)
    zero, loo = advantages_of(pool, ["zero", "leave-one-out"])
    assert [(x.shown, x.trained) for x in layouts_of(zero, 8, 2)] == [(1, 1), (2, 2)]
    assert [(x.shown, x.trained) for x in layouts_of(loo, 8, 2)] == [(2, 1), (2, 2)]
    layout = layouts_of(loo, 8, 2)[0]
    trained = Trained.of(next(draws(1, 16, 4, 2, seed=0)), layout, 4)
    assert trained.rows.shape == (2, 16, 1)
    assert trained.batch.tolist() == [0] * 8 + [1] * 8
    first, second = trained.shown[0, :, 0], trained.shown[0, :, 1]
    rewards = pool.rewards.ravel()
    expected = (rewards[first] - rewards[second]) / 8
    np.testing.assert_allclose(trained.coefficients(loo, layout)[0, :, 0], expected)


def test_an_estimator_with_a_memory_starts_each_batch_from_the_same_state(bandit):
    pool = bandit.pool(40, 4, offline=8, earlier=3)
    names = ["basis", "basis-online", "spo"]
    for one in advantages_of(pool, names, batch_size=BUDGET):
        rows = np.arange(0, 32, 4)
        first = one(rows)
        one(rows + 32)
        np.testing.assert_array_equal(one(rows), first)
    fresh = bandit.pool(40, 4, offline=8, earlier=0)
    (spo,) = advantages_of(fresh, ["spo"])
    (warm,) = advantages_of(pool, ["spo"], batch_size=BUDGET)
    assert not np.allclose(spo(rows), warm(rows))


def test_every_registered_estimator_that_needs_rewards_alone_can_be_compared(bandit):
    pool = bandit.pool(16, 8, offline=8, earlier=2)
    names = [name for name in estimators.names() if name not in ("critic", "remax")]
    noise = measured(pool, advantages_of(pool, names, batch_size=BUDGET))
    assert len(noise) == 2 * len(names)
    assert all(np.isfinite(one.variance[0]) and one.variance[0] > 0 for one in noise.values())


def test_a_completions_mean_over_tokens_divides_by_its_length(bandit):
    pool = bandit.pool(8, 4)
    S = pool.sketches.reshape(32, -1).astype(float) / pool.lengths.reshape(-1, 1)
    np.testing.assert_allclose(pool.gram("token-mean"), S @ S.T, atol=1e-6)
    assert set(pool.lengths.ravel()) <= set(range(1, ACTIONS + 1))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((127, 16, 64, 8), "budget of at most 56, or 128 prompts"),
        ((128, 15, 64, 8), "sample 16"),
        ((128, 16, 60, 8), "a multiple of 8"),
        ((128, 16, 64, 1), "2 or more rollouts"),
    ],
)
def test_pools_that_are_too_small_are_refused(sizes, message):
    check_sizes(128, 16, 64, 8)
    with pytest.raises(ConfigError, match=message):
        check_sizes(*sizes)


def test_unknown_and_repeated_estimators_are_refused(bandit):
    pool = bandit.pool(8, 4)
    with pytest.raises(ConfigError, match="did you mean 'leave-one-out'"):
        advantages_of(pool, ["leave-one-oout"])
    with pytest.raises(ConfigError, match="named twice"):
        advantages_of(pool, ["zero", "zero"])
    with pytest.raises(ConfigError, match="needs values, which are not sampled"):
        advantages_of(pool, ["critic"])
    with pytest.raises(ConfigError, match="needs pass rates"):
        advantages_of(pool, ["basis"])
    assert "basis" not in [one.name for one in advantages_of(pool)]


def test_table_and_csv_have_every_estimator_in_both_layouts(found):
    noise = list(found.values())
    rows = list(csv.DictReader(io.StringIO(csv_text(noise))))
    assert [(row["estimator"], row["layout"]) for row in rows] == list(found)
    for row, one in zip(rows, noise, strict=True):
        assert float(row["snr_per_rollout"]) == pytest.approx(one.snr[0], rel=1e-5)
        assert float(row["snr_per_rollout_low"]) < float(row["snr_per_rollout_high"])
        both = float(row["variance_within"]) + float(row["variance_between"])
        assert both == pytest.approx(float(row["variance"]), rel=1e-4)
    base = base_of(noise)
    assert (base.name, base.layout.name) == ("group-mean", GROUPS)
    assert {row["relative_snr"] for row in rows if row["estimator"] == base.name} > {"1"}
    text = "\n".join(lines(noise))
    assert "8 prompts x 1" in text
    assert "4 prompts x 2" in text
    (line,) = (line for line in text.splitlines() if "thought experiment" in line)
    assert line.startswith("* a thought experiment: 2 rollouts of each prompt are seen")
    for one in noise:
        cells = next(row for row in text.splitlines() if row.startswith(one.label))
        assert (")*" in cells) == (one.name != "zero")
    (said,) = shares(noise)[1:]  # zero alone needs no groups
    total, baseline, prompts = (
        float(part.split(" (")[0].split()[-1]) for part in said.split(")")[:3]
    )
    assert total == pytest.approx(baseline * prompts, rel=0.02)


def test_what_costs_more_than_it_is_counted_is_hollow_in_the_picture(found):
    def hollow(noise):
        (axes,) = noise_figure(noise).axes
        white = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
        return sum(len(line.get_xdata()) for line in white), axes.get_xlabel()

    noise = list(found.values())
    groups = [one for one in noise if one.name != "zero"]
    count, label = hollow(noise)
    assert count == len(groups) / 2
    assert "hollow: one of 2 rollouts" in label
    count, label = hollow([one for one in noise if one.name == "zero"])
    assert (count, "hollow" in label) == (0, False)
    assert "thought" not in "\n".join(lines([one for one in noise if one.name == "zero"]))


def test_an_interval_that_cannot_be_told_is_said_so():
    assert Figure.of(np.array([1.0, *[np.nan] * 5, *[1.0] * 95])).low != 1.0
    assert Figure.of(np.linspace(0, 1, 1001)).high == pytest.approx(0.975, abs=0.01)
    np.testing.assert_array_equal(
        ratio(np.array([1.0, -1.0, 1.0]), np.array([2.0, 1.0, 0.0])), [0.5, np.nan, np.nan]
    )
