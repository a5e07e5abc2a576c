"""What a recommendation says, and what it must not say."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from advice import advice, text_of

from basis_rl.lab.recommend.choice import Option, choose
from basis_rl.lab.recommend.noise import Shown
from basis_rl.lab.recommend.warn import warnings_of
from basis_rl.lab.simulate import scenario, simulate


def shown_of(noise, prompt):
    rows = np.arange(noise.shape[1])
    return Shown([f"e{i}" for i in range(len(noise))], noise, prompt, rows, 0 * rows, 0.1)


OPTIONS = [Option("e0", "Plain", False, False), Option("e1", "Kept", False, True)]


def test_nothing_is_called_sure_of_a_handful_of_prompts():
    record = simulate(prompts=1, visits=30).record
    found = advice(record)
    assert np.isnan(found.choice.sure)
    assert found.to_dict()["choice"]["sure"] is None
    text = text_of(found)
    assert "1 prompt," in text
    assert " sure that" not in text
    assert "nobody can say how sure" in text
    noise = np.stack([np.ones(64), np.full(64, 1.5)])
    assert choose(shown_of(noise, np.arange(64) % 7), OPTIONS).sure != 1.0
    assert choose(shown_of(noise, np.arange(64) % 8), OPTIONS).sure == 1.0


def test_a_close_call_names_the_other_and_its_interval():
    rng = np.random.default_rng(0)
    base = rng.random(400) + 10.0
    noise = np.stack([base, base * 1.001 + rng.normal(0.0, 2.2, 400)])
    choice = choose(shown_of(noise, np.arange(400)), OPTIONS)
    assert choice.sure < 0.9 < choice.close
    assert choice.best is choice.chosen
    record = scenario("no-drift", prompts=32, visits=8).record
    found = advice(record, names=["batch-mean", "basis-robust"])
    notes = warnings_of(found.facts, choice, found.judge, _judged(found), cache_made=False)
    (said,) = (note for note in notes if "close call" in note)
    assert "Kept would leave +" in said
    assert "-0.0%" not in said


def _judged(found):
    return Shown(["e0"], np.ones((1, 8)), np.arange(8), np.arange(8), np.zeros(8, int), 0.1)


def test_constant_rewards_do_not_accuse_the_pass_rates():
    record = simulate(prompts=40, visits=4, pass_rates=np.ones(40)).record
    found = advice(record)
    assert any("nothing to learn" in warning for warning in found.warnings)
    assert not any("another policy" in warning for warning in found.warnings)


def test_few_visits_without_a_table_still_compare_all():
    found = advice(simulate(prompts=64, visits=2, cache=0).record)
    assert found.cache_made
    assert found.facts.cache == 4
    assert found.choice.find("basis-robust") is not None
    assert any("`basis-rl cache build`" in warning for warning in found.warnings)


def test_without_a_table_the_cheapest_is_named():
    record = simulate(prompts=40, visits=8, cache=0, drift=0.5).record
    found = advice(record, names=["batch-mean", "basis-robust", "basis-online"])
    cheapest = min(found.caches, key=lambda size: size.total)
    assert cheapest.rollouts == 0
    assert f"cheapest, with {cheapest.label.split(' without')[0]};" in text_of(found)


def test_few_steps_are_named():
    found = advice(scenario("common-shift", prompts=128, visits=2).record)
    assert any("4 steps" in warning for warning in found.warnings)
    found = advice(scenario("common-shift", prompts=128, visits=4).record)
    assert not any("steps: what" in warning for warning in found.warnings)


def test_two_values_other_than_0_and_1_are_named():
    record = scenario("no-drift", prompts=64, visits=6).record
    signed = dataclasses.replace(record, rewards=2 * record.rewards - 1, pass_rates=None)
    found = advice(signed, names=["batch-mean", "basis-robust"])
    assert found.facts.two_values == (-1.0, 1.0)
    assert "--map -1=0 --map 1=1" in text_of(found)
    for other in (record, scenario("continuous", prompts=64, visits=6).record):
        assert advice(other, names=["batch-mean"]).facts.two_values is None


def test_an_error_that_cannot_be_told_from_none_is_no_number_of_rollouts():
    record = scenario("all-alike", prompts=64, visits=4).record
    found = advice(record, names=["batch-mean", "basis-robust"])
    errors = {"mse": 0.003, "mse_low": -0.002, "mse_high": 0.01, "rollouts": 40.0, "excess": 0.02}

    def told(**changes):
        chosen = dataclasses.replace(found.choice.chosen, **errors | changes)
        choice = dataclasses.replace(found.choice, chosen=chosen)
        return text_of(dataclasses.replace(found, choice=choice))

    assert "error 0.0030, 0.0000 to 0.0100" in told()
    assert "other rollouts of the same prompt" not in told()
    assert "the mean of 40 other rollouts of the same prompt" in told(mse_low=0.001)


@pytest.mark.parametrize("seed", range(3))
def test_no_text_has_a_number_that_is_none(seed):
    for name in ("no-drift", "reversal", "mostly-hopeless"):
        found = advice(scenario(name, prompts=32, visits=5, seed=seed).record)
        for word in ("nan", "inf ", "None"):
            assert word not in text_of(found)
