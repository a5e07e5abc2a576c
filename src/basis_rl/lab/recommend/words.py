"""A recommendation in plain words."""

from __future__ import annotations

import math

from basis_rl.lab.recommend.choice import Choice, Ranked
from basis_rl.lab.recommend.judge import WITHOUT
from basis_rl.lab.recommend.more import CacheSize
from basis_rl.lab.recommend.run import Recommendation

GROUP = 8  # what a group's mean is shown at, for comparison
# More is no figure: the error cannot be told from none.
_MOST_ROLLOUTS = 200
_NOTHING = 5e-4  # shown as 0.0%


def paragraphs(found: Recommendation) -> list[str]:
    """Short paragraphs: what to use, how sure, by how much, a cache, the batch, warnings."""
    parts = [_record(found), _use(found)]
    if found.facts.variance > 0:
        parts += [_gain(found), _cache(found), _batch(found)]
    notes = [f"Note: {each}" for each in found.warnings]
    if found.left_out:
        notes.append(f"Not compared: {', '.join(found.left_out)} (--json says why).")
    return [part for part in parts if part] + notes


def _record(found: Recommendation) -> str:
    facts = found.facts
    text = (
        f"{found.name}: {_count(facts.prompts, 'prompt')}, {_count(facts.visits, 'visit')} "
        f"({facts.visits_per_prompt:g} a prompt) of {_rollouts(facts.rollouts_per_visit)}, "
        f"mean reward {facts.mean:.2f}"
    )
    if facts.cache > 0:
        text += f", pass rates of {_rollouts(facts.cache)}"
    if facts.one_rollout or not math.isfinite(facts.within) or facts.variance <= 0:
        return text + "."
    share = min(facts.within / facts.variance, 1.0)
    return (
        f"{text}. {share:.0%} of the rewards' variance is chance that no baseline removes; the "
        f"other {1 - share:.0%} is that prompts and times differ."
    )


def _use(found: Recommendation) -> str:
    choice = found.choice
    chosen, best = choice.chosen, choice.best
    shown = ", ".join(f"{key}: {value}" for key, value in found.settings.items())
    config = f"in a training configuration, estimator: {{{shown}}}."
    if found.doubt:
        return (
            f"This record cannot tell which baseline is best: {found.doubt}. {call(chosen)} is as "
            f"safe a choice as any, since none compared here did over {choice.tolerance:.0%} "
            f"better; {config}"
        )
    text = f"Use {call(chosen)}; {config}"
    if best is not chosen:
        less = "no" if choice.best_by < _NOTHING else _percent(choice.best_by)
        text += (
            f" {best.option.label} leaves {less} less noise, which is not worth "
            f"{_costs(best, chosen)}."
        )
    text += _still(choice)
    if math.isfinite(choice.sure):
        text += (
            f" It is {_sure(choice.sure)} sure that no baseline compared here leaves over "
            f"{choice.tolerance:.0%} less noise."
        )
    other = choice.runner_up
    if other is not None and other is not best:
        low, high = other.behind_low, other.behind_high
        text += (
            f" Next is {other.option.label}, with {_signed(other.behind)} noise "
            f"({_signed(low)} to {_signed(high)})."
        )
    return text


def _still(choice: Choice) -> str:
    """Why a baseline that stands still while the policy moves is good enough, if it is."""
    if choice.chosen.option.follows:
        return ""
    most = choice.chosen.noise * (1.0 + choice.tolerance)
    able = next((e for e in choice.ranked if e.option.follows and e.noise <= most), None)
    text = " It stands still while the policy moves, which did no harm within this record: "
    if able is None:
        return f"{text}nothing that follows the policy is within {choice.tolerance:.0%} of it."
    return (
        f"{text}{able.option.label}, which follows the policy, has {_signed(able.behind)} noise "
        f"and needs {_costs(able, choice.chosen)} besides. In a longer run it may."
    )


def _gain(found: Recommendation) -> str:
    """How far it is from a perfect baseline, and how far others are."""
    choice, rollouts = found.choice, found.judge.rollouts
    chosen = choice.chosen
    mean = choice.find("batch-mean")
    # A single reward does not tell how far a baseline is from a perfect one.
    if found.judge.as_logged or not math.isfinite(chosen.excess):
        return _against(found)
    text = (
        f"A baseline's error adds to the noise of the gradient. With it the noise per rollout is "
        f"{_percent(max(chosen.excess, 0.0))} above that of a perfect baseline"
    )
    if chosen.mse > 0:
        low, high = max(chosen.mse_low, 0.0), chosen.mse_high
        text += f" (mean squared error {chosen.mse:.4f}, {low:.4f} to {high:.4f})"
    if chosen.mse_low > 0 and chosen.rollouts < _MOST_ROLLOUTS:
        text += f", as with the mean of {chosen.rollouts:.0f} other rollouts of the same prompt"
    text += "."
    if mean is not None and mean is not chosen:
        text += f" With the batch's mean it is {_percent(mean.excess)}"
        for name, what in (("zero", "no baseline"), ("leave-one-out", "the prompt's others alone")):
            other = choice.find(name)
            if other is not None and other is not chosen:
                text += f", with {what} {_percent(other.excess)}"
    if rollouts == 1:
        start = " For comparison, the" if mean is None or mean is chosen else "; the"
        text += (
            f"{start} mean of a group of {GROUP} (GRPO, the own rollout left out) gives "
            f"{_percent(1 / (GROUP - 1))}, and a step of as many rollouts then has an {GROUP}th of "
            "the prompts, which adds noise that rewards do not show (`basis-rl lab gradient` "
            "measures it)"
        )
    return text + "."


def _against(found: Recommendation) -> str:
    """How far others are from the chosen one."""
    chosen = found.choice.chosen
    parts = []
    for name, what in (("batch-mean", "the batch's mean"), ("zero", "no baseline")):
        other = found.choice.find(name)
        if other is not None and other is not chosen:
            low, high = _percent(other.behind_low), _percent(other.behind_high)
            parts.append(f"{what} {_percent(other.behind)} more ({low} to {high})")
    if not parts:
        return ""
    return (
        "A baseline's error adds to the noise of the gradient. Compared with it, noise per rollout "
        f"is with {' and with '.join(parts)}: as many more rollouts would make up for it."
    )


def _cache(found: Recommendation) -> str:
    """What smaller caches do, and what a cache costs."""
    sizes = found.caches
    if len(sizes) < 2:
        return ""
    whole = sizes[-1]
    if not found.choice.chosen.option.uses_cache:
        return (
            f"Pass rates are not needed here: with {_rollouts(whole.rollouts)} a prompt, "
            f"the best baseline that takes them ({whole.label}) leaves {_than(sizes[0].behind)} "
            "noise."
        )
    parts, named = [], whole.label
    for size in sizes[:-1]:
        name = "" if size.label == named else f" ({size.label})"
        parts.append(f"{size.rollouts or 'none'} {_signed(size.behind)}{name}")
        named = size.label
    text = (
        f"The cache has {_rollouts(whole.rollouts)} a prompt. With fewer of them, and the "
        f"baseline that suits them best, the noise changes by: {', '.join(parts)}."
    )
    if found.doubt:
        return text
    if found.facts.visits_per_prompt >= 2:  # else the record says nothing of a run's length
        cheapest = min(sizes, key=lambda size: size.total)
        text += (
            f" The whole cache costs {_times(whole.cost)} the rollouts of a run as long as this "
            f"record. {_cheapest(cheapest, whole)}"
        )
    text += _enough(sizes, found.choice.tolerance)
    if found.facts.visits_per_prompt < 2:
        return text
    if found.catch_up is None:
        text += " Within this record, no baseline without a cache catches up."
    elif found.catch_up > 1:
        text += (
            f" From a prompt's visit {found.catch_up} on, a cache makes no difference worth "
            "speaking of."
        )
    return text


def _enough(sizes: list[CacheSize], tolerance: float) -> str:
    """The smallest cache that does as well as the whole one, or what the last doubling brought."""
    whole = sizes[-1]
    enough = next(size for size in sizes if size.behind <= tolerance)
    if enough.rollouts < whole.rollouts and enough.rollouts:
        low, high = _signed(enough.behind_low), _signed(enough.behind_high)
        return (
            f" {enough.rollouts} are about as good as {whole.rollouts} "
            f"({_signed(enough.behind)}, {low} to {high})."
        )
    if len(sizes) > 2 and enough is whole:
        return f" The last doubling brought {_percent(sizes[-2].behind)}."
    return ""


def _cheapest(size: CacheSize, whole: CacheSize) -> str:
    if size.rollouts == 0:
        return (
            "If it had to be made for this run alone, none would be cheapest, with "
            f"{size.label.removesuffix(WITHOUT)}; one that is there already costs nothing."
        )
    if size is whole:
        return "It is worth that, even if made for this run alone."
    return f"Made for this run alone, one of {size.rollouts} would be cheapest."


def _batch(found: Recommendation) -> str:
    if len(found.batches) < 2:
        return ""
    parts = [
        f"{each.prompts} prompts {_signed(each.behind)}"
        for each in found.batches
        if each.prompts != found.judge.batch_size
    ]
    steady = all(abs(each.behind) <= found.choice.tolerance for each in found.batches)
    end = "no reason to change it" if steady else "the baseline learns from the rest of the batch"
    return (
        f"Batches here have {found.judge.batch_size} prompts; noise per rollout at other sizes: "
        f"{', '.join(parts)}: {end}."
    )


def call(ranked: Ranked) -> str:
    """How a user names it."""
    option = ranked.option
    name = option.name.removesuffix(WITHOUT)
    without = option.name.endswith(WITHOUT)
    return f"{name} ({option.label})" if not without else f"{name}, without pass rates"


def _costs(best: Ranked, chosen: Ranked) -> str:
    more = []
    if best.option.uses_cache and not chosen.option.uses_cache:
        more.append("a table of pass rates")
    if best.option.remembers and not chosen.option.remembers:
        more.append("numbers kept for every prompt")
    if not best.option.follows and chosen.option.follows:
        more.append("a baseline that stands still while the policy moves")
    return " and ".join(more) or "a change"


def _times(share: float) -> str:
    return f"{share:.0%} of" if share < 1 else f"{share:.1f} times"


def _sure(share: float) -> str:
    return "more than 99%" if share > 0.99 else f"{share:.0%}"


def _than(behind: float) -> str:
    """How much less noise there is, where the other has ``behind`` more."""
    less = behind / (1.0 + behind) if behind > -1.0 else -1.0
    return f"{_percent(abs(less))} {'less' if less >= 0 else 'more'}"


def _rollouts(number: float) -> str:
    return f"{number:g} rollout{'' if number == 1 else 's'}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _percent(share: float) -> str:
    share = share if abs(share) >= _NOTHING else 0.0  # no "-0.0%"
    return f"{share:.1%}" if abs(share) < 0.1 else f"{share:.0%}"


def _signed(share: float) -> str:
    share = share if abs(share) >= _NOTHING else 0.0
    return f"{share:+.1%}" if abs(share) < 0.1 else f"{share:+.0%}"
