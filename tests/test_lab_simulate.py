from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from basis_rl.cli.lab_simulate import simulate as command
from basis_rl.errors import ConfigError
from basis_rl.lab.read import read_record
from basis_rl.lab.record import RecordError
from basis_rl.lab.simulate import SCENARIOS, Scenario, scenario, simulate, true_error
from basis_rl.values import logit_of_counts, sigmoid


def by_prompt(simulated, settings):
    """True values, shape (P, visits)."""
    order = np.lexsort((np.arange(len(simulated.record)), simulated.record.prompt))
    return simulated.values[order].reshape(settings["prompts"], settings["visits"])


def log_odds(values):
    return logit_of_counts(values, 1.0 - values)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_rewards_have_the_stated_mean_and_variance(name):
    simulated = scenario(name, prompts=200, visits=20, rollouts=16, seed=1)
    record = simulated.record
    rewards = record.rewards.reshape(len(record), 16)
    count = rewards.size
    error = (rewards - simulated.values[:, None]).mean()
    assert abs(error) < 4 * np.sqrt(simulated.variances.mean() / count)
    within = rewards.var(axis=1, ddof=1).mean()
    # A Student t with 3 degrees of freedom has no fourth moment: its variances settle slowly.
    loose = 0.2 if SCENARIOS[name].get("tails") else 0.05
    assert within == pytest.approx(simulated.variances.mean(), rel=loose)
    assert record.is_binary == (SCENARIOS[name].get("rewards") != "continuous")


def test_visits_come_in_epochs_of_every_prompt_and_batches_end_with_them():
    record = simulate(prompts=10, visits=3, batch_size=4).record
    epochs = record.prompt.reshape(3, 10)
    np.testing.assert_array_equal(np.sort(epochs, axis=1), np.tile(np.arange(10), (3, 1)))
    assert not (epochs[0] == epochs[1]).all()
    assert np.bincount(record.step).tolist() == [4, 4, 2] * 3


def test_the_same_seed_gives_the_same_record_and_the_cache_changes_nothing_else():
    first, second = scenario("jumps", prompts=50), scenario("jumps", prompts=50)
    np.testing.assert_array_equal(first.record.rewards, second.record.rewards)
    np.testing.assert_array_equal(
        first.record.pass_rates.successes, second.record.pass_rates.successes
    )
    without = scenario("jumps", prompts=50, cache=0)
    assert without.record.pass_rates is None
    np.testing.assert_array_equal(first.record.rewards, without.record.rewards)
    other = scenario("jumps", prompts=50, seed=1)
    assert not np.array_equal(first.values, other.values)


def test_tilt_and_drift_are_the_stated_ones():
    settings = {"prompts": 400, "visits": 50}
    start = np.full(400, 0.3)
    values = by_prompt(simulate(pass_rates=start, tilt=1.0, **settings), settings)
    np.testing.assert_allclose(values, np.tile(values[0], (400, 1)))
    np.testing.assert_allclose(
        log_odds(values[0]) - log_odds(0.3), (np.arange(50) + 0.5) / 50, rtol=1e-9
    )
    moves = log_odds(by_prompt(simulate(pass_rates=start, drift=0.2, **settings), settings))
    steps = np.diff(moves, axis=1)
    assert steps.std() == pytest.approx(0.2, rel=0.02)
    assert abs(np.corrcoef(steps[:, :-1].ravel(), steps[:, 1:].ravel())[0, 1]) < 0.03
    assert moves[:, -1].std() == pytest.approx(0.2 * np.sqrt(50), rel=0.15)


def test_a_reversal_takes_from_the_named_share_of_prompts():
    settings = {"prompts": 100, "visits": 40}
    simulated = simulate(pass_rates="alike", reversal=3.0, forgetting=0.3, **settings)
    values = by_prompt(simulated, settings)
    forgot = values[:, -1] < values[:, 0] - 0.1
    assert forgot.sum() == 30
    np.testing.assert_allclose(values[~forgot], 0.4)
    np.testing.assert_allclose(values[forgot][:, -1], sigmoid(log_odds(0.4) - 3.0))


def test_jumps_are_rare_large_and_bounded():
    settings = {"prompts": 300, "visits": 30}
    values = by_prompt(simulate(pass_rates="alike", jumps=0.05, **settings), settings)
    steps = np.diff(log_odds(values), axis=1)
    assert (np.abs(steps) > 1e-9).mean() == pytest.approx(0.05, abs=0.01)
    assert 2.0 < np.abs(steps).max() < 6.0 + 1e-6


def test_sources_part():
    settings = {"prompts": 60, "visits": 30}
    simulated = simulate(pass_rates="alike", sources=3, source_tilt=2.0, **settings)
    gained = log_odds(by_prompt(simulated, settings)[:, -1]) - log_odds(0.4)
    names = np.array(simulated.record.sources)
    means = [gained[names == f"source-{k}"].mean() for k in range(3)]
    np.testing.assert_allclose(means, np.array([-2.0, 0.0, 2.0]) * 29.5 / 30, atol=1e-9)


@pytest.mark.parametrize(
    ("distribution", "check"),
    [
        ("beta", lambda v: abs(v.mean() - 0.5) < 0.03 and 0.25 < v.std() < 0.4),
        ("alike", lambda v: (np.abs(v - 0.4) < 1e-12).all()),
        ("bimodal", lambda v: abs((v < 0.5).mean() - 0.5) < 1e-9 and np.ptp(v) < 0.81),
        ("hopeless", lambda v: abs((v < 0.01).mean() - 0.9) < 0.01),
        ("u-shaped", lambda v: (v == 0).mean() == 0.25 and (v == 1).mean() == 0.25),
    ],
)
def test_distributions_of_pass_rates(distribution, check):
    assert check(simulate(prompts=1000, visits=1, rollouts=1, pass_rates=distribution).values)


def test_the_cache_is_of_the_reference_policy():
    rates = np.linspace(0.05, 0.95, 500)
    table = simulate(prompts=500, visits=2, pass_rates=rates, tilt=8.0, cache=64).record.pass_rates
    assert (table.n == 64).all()
    z = (table.successes - 64 * rates) / np.sqrt(64 * rates * (1 - rates))
    assert abs(z.mean()) < 0.2
    assert 0.9 < z.std() < 1.1


@pytest.mark.parametrize("tails", ["normal", "student", "lognormal"])
def test_continuous_rewards_have_their_tails(tails):
    simulated = simulate(
        prompts=500, visits=10, rollouts=8, rewards="continuous", tails=tails, noise=2.0
    )
    record = simulated.record
    residual = (record.rewards - np.repeat(simulated.values, 8)) / 2.0
    assert abs(residual.mean()) < 0.03
    kurtosis = (residual**4).mean() / residual.var() ** 2
    assert kurtosis < 3.3 if tails == "normal" else kurtosis > 8
    skew = (residual**3).mean()
    assert skew > 2 if tails == "lognormal" else abs(np.median(residual)) < 0.03
    assert record.pass_rates.kind == "rewards"
    assert (record.pass_rates.n == 32).all()


def test_true_error_is_against_the_true_values():
    simulated = scenario("no-drift", prompts=20)
    visits = np.array([3, 5, 7])
    assert true_error(simulated, visits, simulated.values[visits]) == 0.0
    assert true_error(simulated, visits, simulated.values[visits] + 0.1) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"prompt": 5}, "no setting 'prompt'"),
        ({"prompts": 0}, "prompts is 0"),
        ({"cache": -1}, "cache is -1"),
        ({"jumps": 2.0}, "jumps is 2.0"),
        ({"drift": float("nan")}, "drift is nan"),
        ({"pass_rates": "flat"}, "pass_rates is 'flat'"),
        ({"pass_rates": [0.5]}, "for 512 prompts"),
        ({"pass_rates": [0.5, 1.5], "prompts": 2}, r"pass_rates\[1\] is 1.5: it must be from 0"),
        (
            {"pass_rates": [np.nan, 1.5], "prompts": 2, "rewards": "continuous"},
            r"pass_rates\[0\] is nan: it must be finite",
        ),
        ({"tilt": float("nan")}, "tilt is nan: give a finite number"),
        ({"source_tilt": float("inf"), "sources": 2}, "source_tilt is inf"),
        ({"noise": float("inf"), "rewards": "continuous"}, "noise is inf"),
        ({"prompts": 2.5}, "prompts is 2.5: give a whole number"),
        ({"rewards": "real"}, "rewards is 'real'"),
        ({"tails": "cauchy"}, "tails is 'cauchy'"),
    ],
)
def test_bad_settings_are_named(settings, words):
    with pytest.raises(RecordError, match=words):
        simulate(**settings)


def test_an_unknown_scenario_is_named():
    with pytest.raises(RecordError, match="no scenario is named 'drift'"):
        scenario("drift")
    assert Scenario().is_binary


def test_the_command_writes_a_record_with_its_pass_rates(tmp_path):
    path = tmp_path / "jumps.parquet"
    options = ["jumps", "--prompts", "20", "--visits", "3", "--cache", "4", "--out", str(path)]
    result = CliRunner().invoke(command, options, catch_exceptions=False)
    assert result.exit_code == 0
    assert "60 visits, 480 rewards" in result.stderr
    read = read_record(path)
    wanted = scenario("jumps", prompts=20, visits=3, cache=4).record
    np.testing.assert_array_equal(read.rewards, wanted.rewards)
    np.testing.assert_array_equal(read.step, wanted.step)
    np.testing.assert_array_equal(read.pass_rates.successes, wanted.pass_rates.successes)
    listed = CliRunner().invoke(command, ["--list"]).stdout
    assert all(name in listed for name in SCENARIOS)


def test_a_file_of_another_kind_is_refused_and_the_record_is_called_as_its_file(tmp_path):
    small = ["all-alike", "--prompts", "4", "--visits", "2"]
    for name in ("x.csv", "x"):
        result = CliRunner().invoke(command, [*small, "--out", str(tmp_path / name)])
        assert isinstance(result.exception, ConfigError)
        assert "ends with .parquet" in str(result.exception)
        assert not (tmp_path / name).exists()
    path = tmp_path / "mine.parquet"
    assert CliRunner().invoke(command, [*small, "--out", str(path)]).exit_code == 0
    assert read_record(path).name == "mine"


def test_a_misspelt_scenario_or_setting_is_put_right():
    with pytest.raises(RecordError, match="did you mean 'strong-drift'"):
        scenario("strong-drif")
    with pytest.raises(RecordError, match="did you mean 'prompts'"):
        simulate(prompt=3)


def test_a_record_is_shown_in_one_short_line():
    record = simulate(prompts=1000, visits=2).record
    shown = repr(record)
    assert shown == (
        "RewardRecord('simulated': 1,000 prompts, 2,000 visits, 16,000 rewards, steps 0 to 31)"
    )
    one = simulate(prompts=1, visits=1, rollouts=1).record
    assert "1 prompt, 1 visit, 1 reward, steps 0 to 0" in repr(one)
