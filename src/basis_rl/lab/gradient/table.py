"""What the noise of the gradients comes to, in words and as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from basis_rl.batch import FloatArray
from basis_rl.lab.gradient.batches import DIFFERENT, GROUPS
from basis_rl.lab.gradient.noise import Figure, GradientNoise, ratio
from basis_rl.lab.gradient.pool import RolloutPool

_COLUMNS: dict[str, Callable[[GradientNoise], FloatArray]] = {
    "snr_per_rollout": lambda one: one.snr,
    "noise_per_rollout": lambda one: one.noise,
    "between_share": lambda one: one.between_share,
    "scale": lambda one: one.scale,
    "cosine": lambda one: one.cosine,
    "batch_cosine": lambda one: one.batch_cosine,
    "signal": lambda one: one.signal,
    "variance": lambda one: one.variance,
    "variance_within": lambda one: one.within,
    "variance_between": lambda one: one.variance - one.within,
}
_BASES = ("group-mean", "leave-one-out")


def csv_text(noise: Sequence[GradientNoise]) -> str:
    """Every number with its interval, a line per estimator and layout.

    ``relative_snr`` is the signal-to-noise ratio over that of `base_of`.
    """
    base = base_of(noise)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    names = [*_COLUMNS, "relative_snr"]
    columns = [f"{name}{end}" for name in names for end in ("", "_low", "_high")]
    writer.writerow(["estimator", "layout", "prompts", "shown", "trained", *columns])
    for one in noise:
        figures = [Figure.of(column(one)) for column in _COLUMNS.values()]
        figures.append(Figure.of(ratio(one.snr, base.snr)))
        numbers = [f"{number:.6g}" for f in figures for number in (f.value, f.low, f.high)]
        layout = one.layout
        shape = [layout.name, layout.prompts, layout.shown, layout.trained]
        writer.writerow([one.name, *shape, *numbers])
    return buffer.getvalue()


def about(pool: RolloutPool, loss: str) -> list[str]:
    """What the rollouts are like: rewards, lengths, and how long their gradients are."""
    P, K = pool.rewards.shape
    mean = pool.rewards.mean()
    found = [
        f"{P} prompts x {K} rollouts, mean reward {mean:.3f}, mean length "
        f"{pool.lengths.mean():.1f} tokens"
    ]
    norms, above = pool.norms(loss), pool.rewards > mean
    if above.any() and not above.all():
        found.append(
            f"mean squared norm of a score gradient: {norms[above].mean():.4g} with a reward above "
            f"the mean, {norms[~above].mean():.4g} below"
        )
        # Minimum over b of E (r - b)^2 |g|^2.
        best = float((norms * pool.rewards).sum() / norms.sum())
        found.append(f"constant baseline that leaves least, E |g|^2 r / E |g|^2: {best:.3f}")
    return found


def base_of(noise: Sequence[GradientNoise]) -> GradientNoise:
    """What the others are compared with: GRPO with groups, where it is there."""
    for name in _BASES:
        for one in noise:
            if (one.name, one.layout.name) == (name, GROUPS):
                return one
    return noise[0]


def lines(noise: Sequence[GradientNoise]) -> list[str]:
    """Tables for a terminal, and what of a gain is the baseline and what the prompts."""
    pairs = by_estimator(noise)
    width = max(len(pair.label) for pair in pairs) + 2
    layouts = pairs[0].different.layout, pairs[0].groups.layout
    heads = [f"{layout.prompts} prompts x {layout.trained}" for layout in layouts]
    found = [
        "signal-to-noise ratio of the gradient per rollout, x 1000 (95% intervals over prompts)",
        f"{'':{width}}{heads[0]:>24}{heads[1]:>24}{'left / right':>22}",
    ]
    for pair in pairs:
        cells = [_cell(Figure.of(1000 * one.snr)) for one in (pair.different, pair.groups)]
        cells[0] += "*" if sees_more(pair.different) else " "
        gain = _cell(Figure.of(pair.gain))
        found.append(f"{pair.label:{width}}{cells[0]:>25}{cells[1]:>23}{gain:>22}")
    for shown in sorted({p.different.layout.shown for p in pairs if sees_more(p.different)}):
        found.append(
            f"* a thought experiment: {shown} rollouts of each prompt are seen, and one of them is "
            "trained on and counted"
        )
    titles = f"{'noise':>22}{'between':>9}{'scale':>20}{'cosine':>8}{'of a batch':>12}"
    for head, which in zip(heads, ("different", "groups"), strict=True):
        found += ["", f"{head:{width}}{titles}"]
        found += [_details(getattr(pair, which), width) for pair in pairs]
    if not Figure.of(noise[0].reference).low > 0:
        found += [
            "",
            "The signal cannot be told from 0: no number above means much. Use more --prompts "
            "(or --rollouts).",
        ]
    return [*found, "", *shares(noise)]


@dataclass(frozen=True)
class Pair:
    """One estimator in the two layouts."""

    label: str
    different: GradientNoise
    groups: GradientNoise

    @property
    def gain(self) -> FloatArray:
        """What different prompts bring: ratio of the signal-to-noise ratios."""
        return ratio(self.different.snr, self.groups.snr)


def by_estimator(noise: Sequence[GradientNoise]) -> list[Pair]:
    """The estimators in their order."""
    found = {(one.name, one.layout.name): one for one in noise}
    names = dict.fromkeys(one.name for one in noise)
    return [
        Pair(found[name, GROUPS].label, found[name, DIFFERENT], found[name, GROUPS])
        for name in names
    ]


def sees_more(one: GradientNoise) -> bool:
    """Whether the estimator saw rollouts that are not trained on."""
    return one.layout.shown > one.layout.trained


def shares(noise: Sequence[GradientNoise]) -> list[str]:
    """For each estimator that needs no groups: its gain over groups, as baseline times prompts."""
    base = base_of(noise)
    if base.layout.name != GROUPS:
        return []
    found = [
        f"against {base.label} with {base.layout.prompts} prompts x {base.layout.trained}: "
        "gain in all = its baseline, on the same prompts and rollouts, x different prompts"
    ]
    for pair in by_estimator(noise):
        if pair.different.layout.shown == 1:
            gains = [ratio(one.snr, base.snr) for one in (pair.different, pair.groups)]
            cells = [_cell(Figure.of(gain)) for gain in (*gains, pair.gain)]
            found.append(f"  {pair.label}: {cells[0]} = {cells[1]} x {cells[2]}")
    return found


def _details(one: GradientNoise, width: int) -> str:
    noise, scale = _cell(Figure.of(one.noise)), _cell(Figure.of(one.scale))
    between, cosine, batch = (
        float(part[0]) for part in (one.between_share, one.cosine, one.batch_cosine)
    )
    return (
        f"{one.label:{width}}{noise:>22}{between:>9.0%}{scale:>20}{_number(cosine):>8}"
        f"{_number(batch):>12}"
    )


def _cell(figure: Figure) -> str:
    if math.isnan(figure.low):
        return "?" if math.isnan(figure.value) else f"{_number(figure.value)} (?)"
    if math.isclose(figure.low, figure.high, rel_tol=1e-9):
        return _number(figure.value)
    interval = f"{_number(figure.low)} to {_number(figure.high)}"
    return f"{_number(figure.value)} ({interval})"


def _number(value: float) -> str:
    if math.isnan(value):
        return "?"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
