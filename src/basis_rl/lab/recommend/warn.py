"""What makes a piece of advice doubtful, or of little use."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from basis_rl.lab.recommend.choice import Choice
from basis_rl.lab.recommend.facts import NEARLY_ALL, REWARDS_TO_CALL_CONSTANT, Facts
from basis_rl.lab.recommend.judge import Judge
from basis_rl.lab.recommend.noise import Shown

FEW_VISITS = 8
FEW_STEPS = 8
MANY_CONSTANT = 0.25
HEAVY_TAILS = 12.0  # kurtosis; a Laplace distribution has 6
LITTLE = 1e-4  # variance of rewards between 0 and 1
SURE = 0.9
# With less, a record says nothing of which baseline is best.
LEAST_SURE = 0.6
LEAST_PROMPTS = 32
LEAST_VISITS = 128
# The pass rates as baselines, once the whole batch has told how far the policy has come.
_SHIFTED = "basis-robust"


def warnings_of(
    facts: Facts, choice: Choice, judge: Judge, shown: Shown, *, cache_made: bool
) -> list[str]:
    """Sentences that the reader of a recommendation must know."""
    return [
        *_of_rewards(facts),
        *_of_visits(facts, judge),
        *_of_cache(facts, choice, shown, cache_made=cache_made),
        *_of_choice(choice),
    ]


def doubt_of(facts: Facts, choice: Choice) -> str:
    """Why a record cannot tell which baseline is best; empty where it can."""
    if facts.prompts < LEAST_PROMPTS:
        return f"it has {facts.prompts} prompt{'' if facts.prompts == 1 else 's'}"
    if facts.visits < LEAST_VISITS:
        return f"it has {facts.visits} visits"
    if choice.sure < LEAST_SURE:
        return f"any answer would be {choice.sure:.0%} sure"
    return ""


def _of_rewards(facts: Facts) -> Iterator[str]:
    if facts.variance < (LITTLE if facts.is_binary else 1e-12):
        yield (
            f"The rewards hardly differ (variance {facts.variance:.2g}): there is nothing to learn "
            "from them, whatever the baseline. Choose other prompts or look at the verifier."
        )
    constant = facts.never + facts.always
    if constant > MANY_CONSTANT:
        yield (
            f"{facts.never:.0%} of the rollouts fell on prompts that (nearly) never had another "
            f"reward than the least, and {facts.always:.0%} on prompts that (nearly) always had "
            f"the largest (in {NEARLY_ALL:.0%} of {REWARDS_TO_CALL_CONSTANT} rewards or more): "
            "they teach next to nothing under any baseline; a good one only keeps them from adding "
            "noise. Other prompts, or spending the rollouts where rewards differ, will bring more "
            "than a better baseline."
        )
    if facts.two_values is not None:
        low, high = facts.two_values
        yield (
            f"The rewards have two values, {low:g} and {high:g}: with 0 and 1 in their place, here "
            f"by --map {low:g}=0 --map {high:g}=1 and in training by the reward function, "
            "baselines that count successes can be used too."
        )
    if not facts.is_binary and facts.kurtosis > HEAVY_TAILS:
        yield (
            f"The rewards have heavy tails (kurtosis {facts.kurtosis:.0f}, 3 is normal): a few of "
            "them decide the means below, and the intervals are too short. Clip or squash the "
            "reward if you can."
        )


def _of_visits(facts: Facts, judge: Judge) -> Iterator[str]:
    if facts.steps == 1:
        yield (
            "The record is of a single policy: whether a baseline follows a policy that changes, "
            "it cannot tell. Use the record of a run, or records of several checkpoints in order."
        )
    elif facts.steps < FEW_STEPS:
        yield (
            f"The record has {facts.steps} steps: what the prompts of one step have in common was "
            "seen only so often, so that even a large difference may be chance."
        )
    if facts.visits_per_prompt < 2:
        yield (
            "Prompts come once each: a baseline that remembers prompts has nothing to remember, "
            "and is judged without what it is for."
        )
    elif facts.visits_per_prompt < FEW_VISITS:
        yield (
            f"Prompts come {facts.visits_per_prompt:g} times each: baselines that remember prompts "
            "are judged by their first steps, and get better in a longer run."
        )
    if judge.as_logged:
        size = facts.rollouts_per_visit
        yield (
            f"Visits have {size:g} rollout{'' if size == 1 else 's'}, too few to set others aside, "
            "so each baseline is judged by the very reward that it is for and does not know. That "
            "is fair to all, but noisier than judging by other rollouts of the same visit"
            ", and does not tell how far they are from a perfect one."
        )


def _of_cache(facts: Facts, choice: Choice, shown: Shown, *, cache_made: bool) -> Iterator[str]:
    if cache_made:
        yield (
            "The record has no pass rates: each prompt's first rollouts were taken for them, and "
            "the rest judged. A table of another policy will be a little worse than that; name "
            "yours with --pass-rates"
            f"{', or make one: `basis-rl cache build`' if choice.chosen.option.uses_cache else ''}."
        )
    elif facts.cache == 0:
        yield (
            "There are no pass rates, and too few rollouts of a prompt to make some: baselines "
            "that need them could not be compared."
        )
    elif facts.coverage < 1.0:
        yield (
            f"The pass rates know {facts.coverage:.0%} of the prompts: for the others, baselines "
            "that take them start from the mean of all."
        )
    shifted, mean = choice.find(_SHIFTED), choice.find("batch-mean")
    if shifted is None or mean is None or cache_made or not facts.cache > 0:
        return
    early = shown.visit <= np.quantile(shown.visit, 0.25)
    excess = float(shown.of(_SHIFTED)[early].mean() - shown.of("batch-mean")[early].mean())
    # What chance in the pass rates and their smoothing explain.
    if excess > 2.0 * facts.within / facts.cache + 1.0 / facts.cache**2:
        yield (
            "Even at the beginning the pass rates are a worse baseline than one number for all "
            "prompts: they seem to be of another policy, verifier or set of prompts. Check them "
            "with `basis-rl cache check`."
        )


def _of_choice(choice: Choice) -> Iterator[str]:
    other = choice.runner_up
    if choice.sure >= SURE or other is None:
        return
    if not np.isfinite(choice.sure):
        yield (
            "The record has so few prompts that nobody can say how sure this is: all that is said "
            "above holds for these prompts alone."
        )
    elif choice.close >= SURE:
        yield (
            f"It is a close call: {other.option.label} would leave {other.behind:+.1%} noise "
            f"({other.behind_low:+.1%} to {other.behind_high:+.1%})."
        )
    else:
        yield (
            f"The record is too small to be sure ({choice.sure:.0%}): more prompts or visits "
            "would decide it."
        )
