"""A replay as tables for a terminal and as CSV files."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

import numpy as np

from basis_rl.errors import ConfigError
from basis_rl.lab.intervals import Mean
from basis_rl.lab.replaying.bins import Bins
from basis_rl.lab.replaying.result import Replay

BY = ("quarter", "heterogeneity", "difficulty")


def bins_of(replay: Replay, by: str) -> Bins:
    """Groups of rows by the name that ``--by`` takes."""
    if by == "quarter":
        return replay.by_step(4)
    if by == "heterogeneity":
        return replay.by_heterogeneity()
    if by == "difficulty":
        return replay.by_difficulty()
    raise ConfigError(f"a replay is not sorted by {by!r}: use {', '.join(BY)}")


def reference_of(replay: Replay, wanted: str | None) -> str:
    """Contender that the others are compared with: "basis-robust" where it takes part."""
    if wanted is not None:
        return replay.names[replay.place(wanted)]
    return "basis-robust" if "basis-robust" in replay.names else replay.names[0]


def shown_names(replay: Replay) -> list[str]:
    """Contenders of the table: published settings, and the best tuned ones behind their own."""
    best = replay.best_tuned()
    names: list[str] = []
    published = [each for each in replay.contenders if not each.tuned]
    for place, contender in enumerate(published):
        names.append(contender.name)
        is_last = all(each.estimator != contender.estimator for each in published[place + 1 :])
        chosen = best.get(contender.estimator)
        if is_last and chosen is not None and chosen not in names:
            names.append(chosen)
    known = {contender.estimator for contender in published}
    return names + [name for estimator, name in best.items() if estimator not in known]


def mse_lines(replay: Replay, by: str) -> list[str]:
    """Table of mean squared errors by group and over all."""
    groups = bins_of(replay, by)
    head = [f"MSE by {groups.title} (rollouts)", *groups.labels, "all", "+-95%"]
    body = []
    for name in shown_names(replay):
        whole = replay.mse(name)
        cells = [_number(replay.mse(name, rows).value, replay) for rows in groups.rows]
        body.append(
            [
                _label(replay, name),
                *cells,
                _number(whole.value, replay),
                _number(whole.error, replay),
            ]
        )
    return _aligned([head, *body])


def measure_lines(replay: Replay, reference: str) -> list[str]:
    """Table of everything else: differences to the reference, bias, variance, advantages."""
    head = [
        "all steps (rollouts)",
        *("less", "+-95%", "bias^2", "var", "b=0|1", "A=0", "sd(A)", "own r"),
    ]
    body = []
    for name in shown_names(replay):
        less = replay.difference(name, reference)
        bias, variance = replay.bias_variance(name)
        numbers = [less.value, less.error, bias.value, variance.value]
        shares = [
            replay.extreme(name),
            replay.zero_advantage(name),
            replay.advantage_spread(name),
            replay.own_reward(name).value,
        ]
        body.append(
            [
                _label(replay, name),
                *(_number(value, replay) for value in numbers),
                *("-" if math.isnan(value) else f"{value:.3f}" for value in shares),
            ]
        )
    return [
        *_aligned([head, *body]),
        "",
        f"less: MSE less that of {_label(replay, reference)}. b=0|1: baseline is exactly the least",
        "or largest reward. A=0: advantage is exactly 0. own r: share of a row's own reward in its",
        "baseline.",
    ]


def note_lines(replay: Replay) -> list[str]:
    """What the reader must know beside the numbers."""
    notes = [f"left out {name}: {reason}" for name, reason in replay.left_out.items()]
    if replay.dropped:
        ending = "" if replay.dropped == 1 else "s"
        notes.append(f"left out {replay.dropped} visit{ending} with too few rollouts")
    computed = [
        each.label for each, shown in zip(replay.contenders, replay.shown, strict=True) if not shown
    ]
    if computed:
        notes.append(
            "computed from the variance of a reward, since visits have too few rollouts: "
            + ", ".join(computed)
        )
    unsorted = int(np.isnan(replay.level).sum()) // replay.seeds
    if unsorted:
        notes.append(
            f"{unsorted} visits are in no group of difficulty or heterogeneity: their prompts come "
            "once, with too few rollouts to sort them by some and measure by others"
        )
    low, high = replay.reward_range
    rounding = 1e-9 * max(abs(low), abs(high)) ** 2
    notes += [
        f"{name} is below 0 for certain: it has seen what it is measured by, or the rewards of a "
        "visit are no independent draws"
        for name in replay.names
        if replay.mse(name).high < -rounding
    ]
    return notes


def title_line(replay: Replay) -> str:
    """What was replayed, in one line."""
    visits = len(np.unique(replay.visit))
    first, last = replay.step.min(), replay.step.max()
    steps = f"step {first}" if first == last else f"steps {first}-{last}"
    rollouts = "1 rollout" if replay.rollouts == 1 else f"{replay.rollouts} rollouts"
    seeds = "1 seed" if replay.seeds == 1 else f"{replay.seeds} seeds"
    of_size = "as recorded" if replay.batches == "recorded" else f"of {replay.batch_size}"
    return (
        f"{replay.name}: {len(np.unique(replay.prompt))} prompts, {visits} visits of {steps}"
        f", batches {of_size}, {rollouts} of a visit shown, {seeds}"
    )


def csv_files(replay: Replay, reference: str) -> dict[str, str]:
    """All measures, by the names of the files that hold them."""
    return {
        "mse.csv": _csv(_mse_rows(replay, reference)),
        "measures.csv": _csv(_measure_rows(replay)),
        "left_out.csv": _csv([["contender", "reason"], *map(list, replay.left_out.items())]),
    }


def _mse_rows(replay: Replay, reference: str) -> list[list[object]]:
    rows: list[list[object]] = [
        [
            *("contender", "label", "by", "bin", "rows", "mse", "low", "high"),
            *("reference", "difference", "difference_low", "difference_high"),
            *("extreme", "zero_advantage"),
        ]
    ]
    groups = [bins_of(replay, by) for by in BY]
    groups.append(Bins("all", ["all"], [np.arange(len(replay))]))
    for name in replay.names:
        label = _label(replay, name)
        for group in groups:
            for title, chosen in zip(group.labels, group.rows, strict=True):
                mean = replay.mse(name, chosen)
                less = replay.difference(name, reference, chosen)
                shares = (replay.extreme(name, chosen), replay.zero_advantage(name, chosen))
                rows.append(
                    [
                        *(name, label, group.title, title, mean.rows, *mean[:3]),
                        *(reference, *less[:3], *shares),
                    ]
                )
    return rows


def _measure_rows(replay: Replay) -> list[list[object]]:
    measures = ("mse", "bias2", "variance", "own_reward")
    ends = [f"{name}{end}" for name in measures for end in ("", "_low", "_high")]
    rows: list[list[object]] = [
        [
            *("contender", "label", "estimator", "options", "tuned", "rollouts", "shown"),
            *ends,
            *("advantage_sd", "extreme", "zero_advantage"),
        ]
    ]
    for place, (name, each) in enumerate(zip(replay.names, replay.contenders, strict=True)):
        means: Sequence[Mean] = (
            replay.mse(name),
            *replay.bias_variance(name),
            replay.own_reward(name),
        )
        options = " ".join(f"{key}={value}" for key, value in each.options.items())
        rows.append(
            [
                *(name, each.label, each.estimator, options, each.tuned),
                *(max(each.rollouts, int(replay.shown[place])), int(replay.shown[place])),
                *(number for mean in means for number in mean[:3]),
                replay.advantage_spread(name),
                replay.extreme(name),
                replay.zero_advantage(name),
            ]
        )
    return rows


def _label(replay: Replay, name: str) -> str:
    contender = replay.contenders[replay.place(name)]
    return f"  tuned on this file: {name.split(':', 1)[1]}" if contender.tuned else contender.label


def _number(value: float, replay: Replay) -> str:
    if math.isnan(value):
        return "-"
    low, high = replay.reward_range
    return f"{value:.4f}" if max(abs(low), abs(high)) <= 1.0 else f"{value:.4g}"


def _aligned(rows: list[list[str]]) -> list[str]:
    """Text columns; the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        row[0].ljust(widths[0])
        + "".join(cell.rjust(width + 1) for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]


def _csv(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        ["" if isinstance(cell, float) and math.isnan(cell) else cell for cell in row]
        for row in rows
    )
    return text.getvalue()
