from __future__ import annotations

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from basis_rl import Basis, PassRates, RewardBatch
from basis_rl.calibrate import BetaChoice, best_index
from basis_rl.levels import Levels
from basis_rl.values import beta_grid, logit_of_counts

BETAS = [0.05, 0.2, 0.5, 1.0, 5.0]
rows_of_counts = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 1)), min_size=1, max_size=10)


def estimate(counts, rewards, n=8, **options):
    keys = [str(i) for i in range(len(counts))]
    basis = Basis(PassRates.from_counts(keys, counts, n), **options)
    return basis.estimate(RewardBatch(keys, rewards))


@pytest.mark.parametrize("preset", ["paper", "paper-literal"])
@pytest.mark.parametrize("variant", ["unb", "vop", "rvg", "initial"])
@settings(max_examples=60, deadline=None)
@given(rows=rows_of_counts)
def test_counting_pairs_equals_algorithm_1_with_double_loops(preset, variant, rows):
    counts, rewards = zip(*rows, strict=True)
    result = estimate(counts, rewards, preset=preset, variant=variant, betas=BETAS)
    expected, beta = reference.basis(
        [k / 8 for k in counts],
        rewards,
        BETAS,
        variant=variant,
        literal=preset == "paper-literal",
    )
    if result.metrics["beta"] != beta:  # two betas with the same loss but for rounding
        forced = [result.metrics["beta"]]
        losses = [reference_loss(counts, rewards, b, variant, preset) for b in (beta, forced[0])]
        assert losses[0] == pytest.approx(losses[1], rel=1e-9, abs=1e-12)
        expected, _ = reference.basis([k / 8 for k in counts], rewards, forced, variant=variant)
    np.testing.assert_allclose(result.baselines, expected, rtol=1e-9, atol=1e-12)


def reference_loss(counts, rewards, beta, variant, preset):
    p = [k / 8 for k in counts]
    b, _ = reference.basis(p, rewards, [beta], variant=variant)
    V = [reference.tilted_value(x, beta) for x in p]
    rows = [i for i in range(len(p)) if preset != "paper-literal" or 1e-6 < V[i] < 1 - 1e-6]
    return np.mean([(rewards[i] - b[i]) ** 2 for i in rows])


def test_different_n_agrees_with_the_direct_evaluation():
    rng = np.random.default_rng(0)
    n = rng.integers(20, 3000, 1500)
    keys = [str(i) for i in range(1500)]
    table = PassRates.from_counts(keys, rng.binomial(n, rng.beta(0.5, 0.5, 1500)), n)
    basis = Basis(table, preset="paper")
    assert not basis._form.levels.exact  # no two pass rates are alike
    for batch in range(3):
        rows = rng.choice(1500, 60, replace=False)
        rewards = (rng.random(60) < table.successes[rows] / n[rows]).astype(float)
        result = basis.estimate(RewardBatch([keys[i] for i in rows], rewards))
        p = (table.successes / table.n)[rows]
        expected, beta = reference.basis(p, rewards, beta_grid())
        assert result.metrics["beta"] == pytest.approx(beta, rel=0.15), batch
        at_same_beta, _ = reference.basis(p, rewards, [result.metrics["beta"]])
        np.testing.assert_allclose(result.baselines, at_same_beta, rtol=1e-9, atol=1e-12)
        assert np.mean((rewards - result.baselines) ** 2) <= 1.01 * np.mean(
            (rewards - np.array(expected)) ** 2
        )


def test_equation_5_as_printed_collapses_and_the_whole_batch_does_not():
    # At beta = 0.1 only the prompt at 1 of 16,384 is active; alone it has b = V near 0.5 there,
    # and two of them that both fail have loss 0.
    counts, rewards = [1, 1] + [8192] * 20, [0, 0] + [1, 0] * 10
    literal = estimate(
        counts, rewards, n=16384, preset="paper-literal", epsilon=1e-3, betas=[0.1, 5]
    )
    paper = estimate(counts, rewards, n=16384, preset="paper", epsilon=1e-3, betas=[0.1, 5])
    assert literal.metrics["beta"] == 0.1
    np.testing.assert_array_equal(literal.baselines, 0.0)
    assert literal.metrics["active_fraction"] == pytest.approx(2 / 22)
    assert paper.metrics["beta"] == 5
    assert paper.baselines[2:].min() > 0.4


def test_among_equal_losses_the_largest_beta_wins():
    assert best_index(np.array([1.0, 0.5, 0.7, 0.5])) == 3
    result = estimate([2, 4, 6], [0, 0, 0], preset="paper")
    assert result.metrics["beta"] == 5.0


@pytest.mark.parametrize("calibration", ["previous-batch", "previous-batch-active-set"])
def test_previous_batch_uses_the_beta_of_the_batch_before(calibration):
    rng = np.random.default_rng(3)
    keys = [str(i) for i in range(40)]
    table = PassRates.from_counts(keys, rng.integers(1, 8, 40), 8)
    over = "paper-literal" if calibration.endswith("set") else "paper"
    same, delayed = Basis(table, preset=over), Basis(table, preset="paper", calibration=calibration)
    batches = [RewardBatch(keys, (rng.random(40) < q).astype(float)) for q in (0.3, 0.9, 0.6)]
    chosen = [same.estimate(b).metrics["beta"] for b in batches]
    used = [delayed.estimate(b).metrics["beta"] for b in batches]
    assert used == [5.0, chosen[0], chosen[1]]
    assert len(set(used)) == 3
    resumed = Basis(table, preset="paper", calibration=calibration)
    resumed.load_state_dict(delayed.state_dict())
    assert resumed.estimate(batches[0]).metrics["beta"] == chosen[2]


def test_beta_choice_refuses_a_damaged_state():
    choice = BetaChoice(beta_grid(), from_previous_batch=True)
    for bad in (-1.0, "0.3", [1.0], True, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="next_tau"):
            choice.load({"next_tau": bad})


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=2, max_size=40))
def test_levels_on_a_grid_are_within_half_a_step(rows):
    k, failures = (np.array(x) for x in zip(*rows, strict=True))
    failures = np.where(k + failures == 0, 1, failures)
    logits = logit_of_counts(k, failures)
    levels = Levels.of(logits, most_exact=1, grid=5)
    at = levels.logits[levels.nearest]
    finite = np.isfinite(logits)
    np.testing.assert_array_equal(at[~finite], logits[~finite])
    if levels.exact:
        np.testing.assert_array_equal(at, logits)
    else:
        step = np.ptp(logits[finite]) / 4
        assert np.abs(at[finite] - logits[finite]).max() <= step / 2 + 1e-9


def test_previous_batch_with_an_infinite_beta_resumes_at_it(recwarn):
    table = PassRates.from_counts(list("abc"), [2, 4, 6], 8)
    options = {"preset": "paper", "calibration": "previous-batch"}
    first = Basis(table, betas=[0.5, np.inf], **options)
    first.estimate(RewardBatch(list("abc"), [0, 0, 0]))
    assert first.state_dict()["next_tau"] == 0.0
    assert first.estimate(RewardBatch(list("abc"), [1, 1, 1])).metrics["beta"] == np.inf
    second = Basis(table, **options)
    second.load_state_dict(first.state_dict() | {"next_tau": 0.0})
    assert second.estimate(RewardBatch(list("abc"), [1, 1, 1])).metrics["beta"] == 5.0
    assert not recwarn.list


@pytest.mark.parametrize("many_n", [False, True])
@pytest.mark.parametrize("preset", ["paper", "paper-literal"])
def test_calibration_loss_is_the_loss_of_the_baselines(many_n, preset, monkeypatch):
    if many_n:
        monkeypatch.setattr("basis_rl.levels.MOST_EXACT_LEVELS", 1)
    rng = np.random.default_rng(4)
    counts, rewards = rng.integers(0, 9, 30), rng.integers(0, 2, 30)
    result = estimate(counts, rewards, preset=preset, betas=[0.3, 1.0])
    V = [reference.tilted_value(k / 8, result.metrics["beta"]) for k in counts]
    active = np.array([1e-6 < v < 1 - 1e-6 for v in V])
    counted = active if preset == "paper-literal" else np.ones(30, bool)
    squares = (rewards - result.baselines) ** 2
    assert result.metrics["calibration_loss"] == pytest.approx(squares[counted].mean())
    assert result.metrics["active_fraction"] == pytest.approx(active.mean())
    assert 0 < active.mean() < 1


@pytest.mark.parametrize("many_n", [False, True])
@pytest.mark.parametrize("variant", ["unb", "vop", "rvg"])
def test_epsilon_decides_who_is_active(many_n, variant, monkeypatch):
    if many_n:
        monkeypatch.setattr("basis_rl.levels.MOST_EXACT_LEVELS", 1)
    counts, rewards = [1, 3, 5, 7], [1, 0, 1, 1]
    options = {"preset": "paper", "variant": variant, "betas": [np.inf], "epsilon": 0.2}
    keys = [str(i) for i in range(4)]
    basis = Basis(PassRates.from_counts(keys, counts, 8), **options)
    batch = RewardBatch(keys, rewards)
    active = [False, True, True, False]
    expected = reference.refined(variant, [k / 8 for k in counts], rewards, active)
    np.testing.assert_allclose(basis.estimate(batch).baselines, expected, rtol=1e-12)
    np.testing.assert_allclose(basis.weights(batch) @ rewards, expected, rtol=1e-12)
