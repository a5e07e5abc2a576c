from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from click.testing import CliRunner
from shared_data import shared_data

from basis_rl import PassRates
from basis_rl.cli.lab_recommend import recommend as command
from basis_rl.errors import ConfigError
from basis_rl.lab.read import read_record, write_record
from basis_rl.lab.recommend import recommend
from basis_rl.lab.recommend.as_logged import replay_as_logged
from basis_rl.lab.recommend.cache_sizes import thinned, with_cache_of_first_rollouts
from basis_rl.lab.recommend.choice import Option, choose
from basis_rl.lab.recommend.facts import facts_of, within_variance
from basis_rl.lab.recommend.judge import WITHOUT, usable
from basis_rl.lab.recommend.noise import Shown, resampled
from basis_rl.lab.recommend.words import paragraphs
from basis_rl.lab.record import RewardRecord
from basis_rl.lab.replay import replay
from basis_rl.lab.simulate import scenario, simulate, true_error

FEW = ("batch-mean", "pvpo", "basis-robust", "spo", "basis-online")


def few(names=FEW):
    return usable(1, continuous=False, names=names)


def small(name, **settings):
    return scenario(name, **{"prompts": 256, "visits": 10, **settings}).record


def advice(record, names=FEW, **options):
    return recommend(record, contenders=few(names), seeds=1, **options)


def text_of(found):
    return "\n".join(paragraphs(found))


def shown_of(noise, prompt=None, **changes):
    noise = np.asarray(noise, dtype=np.float64)
    rows = np.arange(noise.shape[1])
    prompt = rows if prompt is None else prompt
    names = [f"e{i}" for i in range(len(noise))]
    return Shown(names, noise, prompt, rows, np.zeros_like(rows), changes.get("within", 0.1))


# The right advice, by construction of the record.


def test_prompts_all_alike_need_no_pass_rates_and_no_memory():
    found = advice(small("all-alike"))
    assert found.estimator == "batch-mean"
    assert "Pass rates are not needed here" in text_of(found)
    assert found.facts.within / found.facts.variance > 0.95


def test_a_policy_that_stands_still_needs_pass_rates_but_no_memory():
    found = advice(small("no-drift"))
    chosen = found.choice.chosen.option
    assert (chosen.name, chosen.uses_cache, chosen.remembers) == ("basis-robust", True, False)
    by_size = {size.rollouts: size.behind for size in found.caches}
    assert list(by_size) == [0, 2, 4, 8, 16, 32]
    assert by_size[0] > by_size[2] > by_size[8] > by_size[16] > by_size[32] == 0.0
    assert found.catch_up is None


def test_prompts_that_drift_apart_need_memory():
    found = advice(small("strong-drift", visits=20))
    chosen = found.choice.chosen
    assert chosen.option.remembers
    assert found.choice.sure > 0.9
    robust = found.choice.find("basis-robust")
    assert robust.behind_low > 0.1  # surely and by far
    wider = advice(small("strong-drift", visits=20), tolerance=0.02)
    assert wider.catch_up is not None
    assert wider.catch_up <= 10
    assert f"From a prompt's visit {wider.catch_up} on" in text_of(wider)


def test_mostly_hopeless_prompts_call_for_other_prompts():
    found = advice(small("mostly-hopeless"))
    assert 0.7 < found.facts.never < 0.95
    assert any("Other prompts" in warning for warning in found.warnings)
    assert found.choice.find("batch-mean").behind_low > 0.2


def test_a_reversal_needs_a_baseline_that_follows_the_policy():
    found = advice(small("reversal"))
    assert found.choice.chosen.option.follows
    assert found.choice.find("pvpo").behind_low > 0.05


def test_a_larger_batch_is_worth_it_where_the_batch_is_all_that_is_known():
    found = advice(small("all-alike"), names=["batch-mean"], batch_size=16)
    behind = {size.prompts: size.behind for size in found.batches}
    # The mean of B rewards has a variance of 1/B of one reward's, which is nearly all the noise.
    assert behind[4] == pytest.approx((1 + 1 / 4) / (1 + 1 / 16) - 1, abs=0.03)
    assert behind[64] == pytest.approx((1 + 1 / 64) / (1 + 1 / 16) - 1, abs=0.03)
    assert "learns from the rest of the batch" in text_of(found)


def test_continuous_rewards_with_heavy_tails_are_warned_of():
    record = small("heavy-tails")
    names = ["batch-mean", "basis-robust"]
    chosen = usable(1, continuous=True, names=names)
    found = recommend(record, contenders=chosen, seeds=1)
    assert any("heavy tails" in warning for warning in found.warnings)
    normal = recommend(small("continuous"), contenders=chosen, seeds=1)
    assert not any("heavy tails" in warning for warning in normal.warnings)
    assert normal.estimator == "basis-robust"


def test_several_rollouts_a_prompt_are_given_to_the_estimators():
    record = small("strong-drift", visits=8)
    chosen = usable(4, continuous=False, names=["batch-mean", "leave-one-out", "basis-robust"])
    found = recommend(record, contenders=chosen, rollouts=4, seeds=1)
    group = found.choice.find("leave-one-out")
    # The mean of the three others: a third of one reward's variance.
    assert group.excess == pytest.approx(1 / 3, abs=0.05)
    assert found.caches[-1].cost == pytest.approx(32 * 256 / (4 * len(record)))


@pytest.mark.parametrize(
    "name", ["common-shift", "forgetting", "jumps", "two-sources", "u-shaped", "bimodal"]
)
def test_what_is_recommended_is_truly_as_good_as_the_best(name):
    simulated = scenario(name, prompts=256, visits=12)
    found = recommend(simulated.record, contenders=few(), seeds=1)
    replayed = replay(simulated.record, few(), seeds=1)
    value = simulated.values[replayed.visit]
    variance = simulated.variances[replayed.visit]
    noise = (variance + (replayed.baselines - value) ** 2).mean(axis=1)
    chosen = noise[replayed.names.index(found.estimator)]
    assert chosen <= noise.min() * 1.015
    told = found.choice.find(found.estimator)
    assert told.mse_low < chosen - variance.mean() < told.mse_high


def test_the_record_tells_the_batch_size():
    record = small("no-drift")
    assert advice(record, names=["batch-mean"]).judge.batch_size == 64
    assert advice(small("no-drift", batch_size=16), names=["batch-mean"]).judge.batch_size == 16
    epochs = dataclasses.replace(record, step=record.step // 4)
    assert advice(epochs, names=["batch-mean"]).judge.batch_size == 64


@pytest.mark.slow
def test_on_the_trace_memory_pays_and_a_small_cache_is_enough():
    record = read_record(shared_data("traces/qwen25math15b_grpo_trace.jsonl"))
    found = advice(record)
    assert found.estimator == "basis-online"
    assert found.choice.sure > 0.99
    assert found.choice.chosen.rollouts > 16
    assert found.choice.find("spo").behind_low > 0.01
    by_size = {size.rollouts: size.behind for size in found.caches}
    assert by_size[8] < 0.03 < by_size[0]
    assert found.catch_up is not None


# One rollout a visit.


def test_a_record_with_one_rollout_a_visit_ranks_baselines_as_their_true_errors_do():
    simulated = scenario("strong-drift", prompts=256, visits=20, rollouts=1)
    record = simulated.record
    contenders = few(("batch-mean", "basis-paper", "pvpo", "basis-robust", "basis-online"))
    shown = replay_as_logged(record, contenders)
    truth = []
    for contender in contenders:
        estimator, errors = contender.make(record.pass_rates), np.empty(len(record))
        for rows in np.split(np.arange(len(record)), np.flatnonzero(np.diff(record.step)) + 1):
            batch = one_batch(record, rows)
            errors[rows] = estimator.estimate(batch).baselines
        truth.append(true_error(simulated, np.arange(len(record)), errors))
    truth = np.array(truth)
    # Differences between baselines, for the rewards' own noise is the same in all.
    estimated = shown.means - shown.means[-1]
    deviation = (shown.drawn - shown.drawn[:, -1:]).std(axis=0)
    wrong = np.abs(estimated - (truth - truth[-1])) / np.maximum(deviation, 1e-12)
    assert (wrong[:-1] < 4).all()
    assert shown.names[int(np.argmin(shown.means))] == "basis-online"
    assert np.argsort(truth)[0] == len(truth) - 1


def one_batch(record, rows):
    from basis_rl import RewardBatch

    return RewardBatch([record.keys[i] for i in record.prompt[rows]], record.rewards[rows])


def test_a_baseline_that_holds_its_own_reward_is_not_favoured():
    # All values 0.4, batches of 4: the batch's mean has its own reward in it by a quarter.
    record = simulate(
        prompts=512, visits=20, rollouts=1, pass_rates="alike", batch_size=4, cache=0
    ).record
    shown = replay_as_logged(record, few(["batch-mean"]))
    assert shown.means[0] == pytest.approx(0.24 * (1 + 1 / 4), rel=0.03)
    assert np.isnan(shown.within)  # a single reward does not tell
    assert within_variance(record) == pytest.approx(0.24, rel=0.03)


@pytest.mark.parametrize(
    ("name", "names", "right"),
    [
        ("no-drift", ("batch-mean", "basis-robust"), "basis-robust"),
        ("strong-drift", ("basis-robust", "basis-online"), "basis-online"),
    ],
)
def test_advice_from_one_rollout_a_visit_is_that_from_many(name, names, right):
    many = advice(small(name, prompts=128, visits=16), names=names)
    one = advice(small(name, prompts=128, visits=16, rollouts=1), names=names)
    assert (many.judge.as_logged, one.judge.as_logged) == (False, True)
    assert one.estimator == many.estimator == right
    assert any("the very reward" in warning for warning in one.warnings)
    assert "above that of a perfect baseline" in text_of(many)
    assert "perfect baseline" not in text_of(one)


@pytest.mark.parametrize("drift", [0.0, 1.0])
def test_the_variance_of_one_reward_does_not_count_what_changes_between_visits(drift):
    simulated = simulate(drift=drift, rollouts=1, prompts=4000)
    true = simulated.variances.mean()
    assert within_variance(simulated.record) == pytest.approx(true, rel=0.02)


# Warnings.


def test_pass_rates_of_other_prompts_are_noticed():
    record = small("no-drift")
    table = record.pass_rates
    mixed = np.random.default_rng(0).permutation(table.successes)
    wrong = dataclasses.replace(
        record, pass_rates=PassRates.from_counts(list(table.keys), mixed, table.n)
    )
    warning = "seem to be of another policy"
    found = advice(wrong, names=["batch-mean", "basis-robust"])
    assert any(warning in each for each in found.warnings)
    for right in (record, small("all-alike")):
        found = advice(right, names=["batch-mean", "basis-robust"])
        assert not any(warning in each for each in found.warnings)


def test_prompts_that_the_table_does_not_know_are_counted():
    record = small("no-drift", prompts=64)
    table = record.pass_rates
    part = PassRates.from_counts(table.keys[:16], table.successes[:16], table.n[:16])
    found = advice(
        dataclasses.replace(record, pass_rates=part), names=["batch-mean", "basis-robust"]
    )
    assert (found.facts.cache, found.facts.coverage) == (32, 0.25)
    assert any("know 25% of the prompts" in warning for warning in found.warnings)
    assert found.caches[-1].cost == pytest.approx(32 * 16 / len(record))


def test_one_policy_and_one_visit_cannot_judge_memory():
    record = simulate(prompts=128, visits=1, rollouts=64, cache=0, batch_size=128).record
    found = advice(record, names=["batch-mean", "basis-robust"])
    assert found.cache_made
    assert found.facts.cache == 32
    text = " ".join(found.warnings)
    assert "a single policy" in text
    assert "come once each" in text
    assert "first rollouts were taken" in text
    assert found.estimator == "basis-robust"


def test_rewards_that_do_not_differ_are_named():
    record = simulate(prompts=64, visits=4, pass_rates=np.zeros(64)).record
    found = advice(record, names=["batch-mean", "basis-robust"])
    assert any("nothing to learn" in warning for warning in found.warnings)
    assert json.dumps(found.to_dict())
    assert text_of(found)


def test_a_small_record_is_said_to_be_small():
    record = small("no-drift", prompts=24, visits=4, rollouts=1)
    found = advice(record, names=["pvpo", "basis-robust"], tolerance=0.0)
    assert found.choice.sure < 0.9
    assert any("too small to be sure" in warning for warning in found.warnings)


# Choosing.

OPTIONS = [
    Option("e0", "needs both", uses_cache=True, remembers=True),
    Option("e1", "needs a table", uses_cache=True, remembers=False),
    Option("e2", "fixed", uses_cache=True, remembers=False, follows=False),
    Option("e3", "needs nothing", uses_cache=False, remembers=False),
]


@pytest.mark.parametrize(
    ("noise", "chosen"),
    [
        ((1.0, 1.005, 1.003, 1.2), "e1"),  # a tie goes to the simpler, then to what follows
        ((1.0, 1.02, 1.003, 1.2), "e2"),
        ((1.0, 1.02, 1.02, 1.2), "e0"),
        ((1.0, 1.005, 1.003, 1.009), "e3"),
    ],
)
def test_ties_go_to_the_simpler(noise, chosen):
    shown = shown_of(np.tile(np.array(noise)[:, None], 50))
    found = choose(shown, OPTIONS)
    assert found.chosen.option.name == chosen
    assert found.best.option.name == "e0"
    assert found.sure == 1.0
    assert found.chosen.behind == 0.0
    assert found.find("e3").behind == pytest.approx(noise[3] / noise[int(chosen[1])] - 1)


def test_sure_is_the_share_of_draws_in_which_the_choice_holds():
    rng = np.random.default_rng(0)
    base = rng.random(400)
    noise = np.stack([base + 10, base + 10 + rng.normal(0.0, 3.0, 400)])
    found = choose(shown_of(noise), [OPTIONS[3], OPTIONS[3]], tolerance=0.0)
    mean, error = (noise[1] - noise[0]).mean(), 3.0 / 20
    from statistics import NormalDist

    expected = NormalDist().cdf(abs(mean) / error)
    assert found.sure == pytest.approx(expected, abs=0.06)


def test_a_choice_at_the_edge_of_the_tolerance_is_a_close_call():
    base = np.random.default_rng(0).random(400)
    noise = np.stack([base + 10, (base + 10) * np.linspace(1.0, 1.02, 400)])
    found = choose(shown_of(noise), [OPTIONS[0], OPTIONS[3]], tolerance=0.01)
    assert found.sure < 0.9 < found.close
    assert found.best_by == pytest.approx(0.01, abs=0.002)


def test_resampling_keeps_a_prompts_rows_together():
    prompt = np.repeat(np.arange(100), 10)
    of_prompt = np.random.default_rng(1).normal(size=100)
    drawn = resampled(of_prompt[prompt][None], prompt)
    assert drawn.std() == pytest.approx(of_prompt.std() / 10, rel=0.1)


def test_few_steps_are_resampled_too():
    rng = np.random.default_rng(2)
    prompt, step = np.tile(np.arange(100), 10), np.repeat(np.arange(10), 100)
    of_step, of_prompt = rng.normal(size=10), rng.normal(size=100)
    for values, deviation in (
        (of_step[step], of_step.std() / np.sqrt(10)),
        (of_prompt[prompt], of_prompt.std() / 10),
    ):
        shown = Shown(["e0"], values[None], prompt, step, step, 0.1)
        assert shown.drawn.std() == pytest.approx(deviation, rel=0.2)
    many = Shown(["e0"], of_step[step][None], prompt, np.arange(1000), step, 0.1)
    assert many.drawn.std() < 1e-12


# Caches.


def test_a_thinned_table_has_a_random_part_of_the_rollouts():
    table = PassRates.from_counts([str(i) for i in range(2000)], np.full(2000, 20), 40)
    smaller = thinned(table, 10)
    assert (smaller.n == 10).all()
    assert smaller.successes.mean() == pytest.approx(5.0, abs=0.1)
    # Without replacement: n p (1-p) (N-n)/(N-1).
    assert smaller.successes.var() == pytest.approx(2.5 * 30 / 39, rel=0.1)
    assert thinned(table, 0) is None
    real = PassRates.from_rewards(["a", "b"], [[0.1, 0.2, 0.3], [0.5]])
    part = thinned(real, 2)
    assert part.n.tolist() == [2, 1]
    assert set(part.reward_values.tolist()) < {0.1, 0.2, 0.3, 0.5}


def test_a_cache_of_first_visits_takes_them_out():
    record = simulate(prompts=20, visits=12, rollouts=8, cache=0, sources=2).record
    split = with_cache_of_first_rollouts(record, 24)
    assert (split.pass_rates.n == 24).all()
    assert len(split) == len(record) - 3 * 20
    assert split.pass_rates.successes.sum() + split.rewards.sum() == record.rewards.sum()
    for key, successes in zip(split.pass_rates.keys, split.pass_rates.successes, strict=True):
        visits = np.flatnonzero(record.prompt == record.keys.index(key))[:3]
        assert successes == sum(record.of_visit(v).sum() for v in visits)
    single = simulate(prompts=20, visits=3, rollouts=1, cache=0).record
    assert with_cache_of_first_rollouts(single, 24) is single  # a quarter of 3 visits is none


def test_a_cache_of_few_visits_is_a_part_of_the_first():
    record = simulate(prompts=20, visits=3, rollouts=8, cache=0).record
    split = with_cache_of_first_rollouts(record, 24)
    assert (split.pass_rates.n == 4).all()
    assert split.counts.tolist() == [4] * 20 + [8] * 40
    assert split.pass_rates.successes.sum() + split.rewards.sum() == record.rewards.sum()


def test_a_cache_of_a_single_visit_takes_at_most_half_of_it():
    record = simulate(prompts=20, visits=1, rollouts=10, cache=0).record
    split = with_cache_of_first_rollouts(record, 32)
    assert (split.pass_rates.n == 5).all()
    assert (split.counts == 5).all()


def test_facts_count_visits_and_constant_prompts():
    record = RewardRecord(
        ["a", "b", "unused"],
        np.array([0, 1, 0]),
        np.array([0, 0, 3]),
        np.array([0, 8, 16, 24]),
        np.r_[np.zeros(8), np.ones(7), 0.0, np.zeros(8)],
    )
    facts = facts_of(record)
    assert (facts.prompts, facts.visits, facts.rollouts, facts.steps) == (2, 3, 24, 2)
    assert facts.never == pytest.approx(16 / 24)
    assert facts.always == 0.0
    assert facts.within == pytest.approx((7 / 8 * 1 / 8 * 8 / 7) / 3)
    assert facts.cache == 0.0


# The command.


def test_the_command_prints_paragraphs_and_writes_a_picture(tmp_path):
    path = tmp_path / "record.parquet"
    write_record(small("no-drift", prompts=64, visits=6), path)
    options = [str(path), "--seeds", "1", "--estimators", "batch-mean,basis-robust,basis-online"]
    out = tmp_path / "advice"
    result = CliRunner().invoke(command, [*options, "--out", str(out)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "Use basis-robust" in result.output
    assert (out / "recommendation.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((out / "recommendation.json").read_text())
    assert found["estimator"] == "basis-robust"
    again = CliRunner().invoke(command, [*options, "--json"], catch_exceptions=False)
    assert json.loads(again.stdout)["choice"]["sure"] == found["choice"]["sure"]


@pytest.mark.parametrize(
    ("option", "value"),
    [("tolerance", -1.0), ("batch_size", 1), ("rollouts", 0), ("cache_rollouts", -1), ("seeds", 0)],
)
def test_numbers_out_of_range_are_refused(option, value):
    with pytest.raises(ConfigError, match=f"{option} is {value}"):
        recommend(small("no-drift"), **{option: value})


def test_baselines_of_groups_alone_cannot_be_compared_at_one_rollout():
    with pytest.raises(ConfigError, match="needs no group"):
        usable(1, continuous=False, names=["group-mean-8"])


def test_baselines_without_pass_rates_are_named_so():
    found = advice(small("no-drift"), names=["basis-robust", "basis-online"])
    assert {each.option.name for each in found.choice.ranked} == {
        "basis-robust",
        "basis-online",
        "basis-online" + WITHOUT,
    }
