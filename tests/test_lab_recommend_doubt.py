"""What a recommendation says of a record that tells little, and the picture of one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from advice import advice, text_of

from basis_rl import PassRates, RewardBatch, estimators
from basis_rl.estimators.base import Estimator
from basis_rl.lab.contenders import contenders
from basis_rl.lab.recommend.choice import Option, choose
from basis_rl.lab.recommend.judge import WITHOUT, option_of
from basis_rl.lab.recommend.more import CacheSize, catch_up
from basis_rl.lab.recommend.noise import Shown
from basis_rl.lab.recommend.picture import GROUP_LABEL, bars_of, picture
from basis_rl.lab.recommend.words import paragraphs
from basis_rl.lab.simulate import scenario, simulate


@pytest.fixture(scope="module")
def whole():
    """Enough prompts and visits for a firm answer."""
    return advice(scenario("strong-drift", prompts=128, visits=8).record)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"prompts": 12, "visits": 1, "rollouts": 1}, "it has 12 prompts"),
        ({"prompts": 4, "visits": 40}, "it has 4 prompts"),
        ({"prompts": 1, "visits": 30}, "it has 1 prompt."),
        ({"prompts": 100, "visits": 1, "rollouts": 1}, "it has 100 visits"),
    ],
)
def test_a_record_that_cannot_tell_says_so_first(settings, why):
    found = advice(simulate(**settings).record)
    use = paragraphs(found)[1]
    assert use.startswith(f"This record cannot tell which baseline is best: {why}")
    assert f"{found.settings['name']}" in use
    text = text_of(found)
    for firm in ("Use basis", "It is worth that", "% sure that", "about as good", "cheapest"):
        assert firm not in text
    assert found.to_dict()["doubt"] == found.doubt != ""


def test_an_answer_that_is_hardly_sure_is_no_answer(whole):
    assert whole.doubt == ""
    assert paragraphs(whole)[1].startswith("Use basis-online")

    def at(sure):
        return dataclasses.replace(whole, choice=dataclasses.replace(whole.choice, sure=sure))

    assert "any answer would be 38% sure" in paragraphs(at(0.38))[1]
    assert paragraphs(at(0.65))[1].startswith("Use basis-online")


def test_single_rewards_do_not_tell_how_far_a_perfect_baseline_is():
    record = simulate(prompts=64, visits=6, rollouts=2).record
    found = advice(record)
    assert found.judge.as_logged
    text = text_of(found)
    assert "above that of a perfect baseline" not in text
    assert "Compared with it, noise per rollout is" in text
    assert "does not tell how far they are from a perfect one" in text


def test_no_less_noise_is_not_minus_nothing(whole):
    best = dataclasses.replace(whole.choice.ranked[1], behind=0.0)
    ranked = [best, whole.choice.chosen, *whole.choice.ranked[2:]]
    text = text_of(
        dataclasses.replace(whole, choice=dataclasses.replace(whole.choice, ranked=ranked))
    )
    assert f"{best.option.label} leaves no less noise, which is not worth" in text
    assert "-0.0%" not in text


def test_one_tolerance_for_baselines_caches_and_visits(whole):
    def size(rollouts, behind):
        return CacheSize(rollouts, "BASIS, online", 1.0, behind, behind, behind, 0.1, 1.0 + behind)

    caches = [size(0, 0.3), size(8, 0.016), size(16, 0.006), size(32, 0.0)]
    told = dataclasses.replace(whole, caches=caches)
    assert "16 are about as good as 32 (+0.6%" in text_of(told)
    wide = dataclasses.replace(whole.choice, tolerance=0.02)
    assert "8 are about as good as 32 (+1.6%" in text_of(dataclasses.replace(told, choice=wide))
    # Without a cache 1.5% behind at visits 0 to 4, and as good from visit 5 on.
    visit = np.repeat(np.arange(10), 8)
    noise = np.ones((2, 80))
    noise[1, visit < 5] += 0.03
    shown = Shown(["a", "b"], noise, np.arange(80) % 8, visit, visit, 0.1)
    options = [Option("a", "A", True, True), Option("b", "B", False, True)]
    assert catch_up(shown, options, tolerance=0.02) == 1
    assert catch_up(shown, options) == 4


def test_what_stands_still_is_recommended_with_the_reason(whole):
    noise = np.stack([np.full(64, 1.0), np.full(64, 1.002)])
    rows = np.arange(64)
    options = [
        Option("pvpo", "PVPO", True, False, follows=False),
        Option("basis-online", "BASIS, online", True, True),
    ]

    def told(factor):
        shown = Shown(["pvpo", "basis-online"], noise * [[1], [factor]], rows, rows, rows, 0.1)
        return text_of(dataclasses.replace(whole, choice=choose(shown, options)))

    text = told(1.0)
    assert "It stands still while the policy moves, which did no harm within this record" in text
    assert "BASIS, online, which follows the policy, has +0.2% noise and needs numbers kept" in text
    assert "nothing that follows the policy is within 1% of it" in told(1.1)
    assert "stands still" not in text_of(whole)


def test_the_picture_has_the_batch_mean_and_a_group_under_the_same_names(whole):
    bars = {bar.label: bar for bar in bars_of(whole)}
    labels = {each.option.label for each in whole.choice.ranked}
    assert set(bars) == labels | {GROUP_LABEL}
    assert set(whole.curves.labels) <= labels
    chosen, mean = whole.choice.chosen, whole.choice.find("batch-mean")
    assert bars[chosen.option.label].value == 1.0
    assert bars[mean.option.label].value == pytest.approx(mean.noise / chosen.noise)
    group = bars[GROUP_LABEL]
    assert group.value == pytest.approx(whole.curves.within * 8 / 7 / chosen.noise)
    assert group.low < group.value < group.high
    values = [bar.value for bar in bars_of(whole)]
    assert values == sorted(values)
    assert picture(whole).startswith(b"\x89PNG")


def test_the_batch_mean_is_in_the_picture_however_far_behind(whole, monkeypatch):
    monkeypatch.setattr("basis_rl.lab.recommend.picture.BASELINES", 2)
    bars = bars_of(whole)
    mean = whole.choice.find("batch-mean").option.label
    assert [bar.label for bar in bars if bar.added] == [GROUP_LABEL, mean]
    assert len(bars) == 4
    assert picture(whole).startswith(b"\x89PNG")


def test_single_rewards_have_no_group_to_compare_with():
    found = advice(simulate(prompts=64, visits=4, rollouts=1).record)
    assert GROUP_LABEL not in {bar.label for bar in bars_of(found)}
    assert picture(found).startswith(b"\x89PNG")


# What estimators are, as they say themselves.

REMEMBER = {"basis-online", "kae", "krpo-tracking", "spo", "spo-plus-plus", "spo-plus-plus-visits"}
STAND_STILL = {"pvpo", "a-star-po", "basis-initial", "basis-paper-literal"}
STAND_STILL |= {"basis-paper", "basis-paper-smoothed"}


def test_estimators_say_whether_they_remember_and_follow():
    record = scenario("no-drift", prompts=8, visits=3).record
    found = {each.name: option_of(each, record) for each in contenders()}
    assert {name for name, option in found.items() if option.remembers} == REMEMBER
    assert {name for name, option in found.items() if not option.follows} == STAND_STILL
    assert not option_of(contenders(["zero"])[0], record).uses_cache
    bare = dataclasses.replace(contenders(["spo"])[0], name="spo" + WITHOUT)
    assert option_of(bare, record).remembers
    assert not option_of(bare, record).uses_cache


def numbers_in(state):
    if isinstance(state, np.ndarray):
        return state.size
    if isinstance(state, dict):
        return sum(map(numbers_in, state.values()))
    if isinstance(state, list | tuple):
        return sum(map(numbers_in, state))
    return int(isinstance(state, int | float) and not isinstance(state, bool))


COLUMNS = {"values", "greedy_rewards", "lengths"}


@pytest.mark.parametrize(
    "name", sorted(each.name for each in contenders() if not each.needs & COLUMNS)
)
def test_what_remembers_has_a_state_that_grows_with_the_prompts(name):
    (contender,) = contenders([name])
    sizes = []
    for prompts in (16, 64):
        keys = [f"p{i}" for i in range(prompts)]
        estimator = contender.make(PassRates.from_counts(keys, np.arange(prompts) % 9, 8))
        rewards = (np.arange(2 * prompts) % 3 == 0).astype(float)
        estimator.estimate(RewardBatch(np.repeat(keys, 2).tolist(), rewards, step=0))
        sizes.append(numbers_in(estimator.state_dict()))
    assert estimator.remembers == (sizes[1] >= sizes[0] + 48)


def test_another_estimator_remembers_nothing_unless_it_says_so():
    assert not Estimator.remembers
    assert Estimator.follows
    assert estimators.Spo.remembers
