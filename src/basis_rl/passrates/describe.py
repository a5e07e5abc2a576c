"""A table of pass rates in a few lines of text."""

from __future__ import annotations

import json
import os

import numpy as np

from basis_rl.batch import FloatArray
from basis_rl.passrates.table import PassRates

BINS = 10
_BAR_WIDTH = 40


def describe(table: PassRates, path: str | os.PathLike[str]) -> str:
    """Counts, mean, shares at the ends, histogram and provenance of a table."""
    means = table.means
    lines = [f"{os.fspath(path)}: {_size(table)}", *_summary(table, means), "", *histogram(means)]
    if table.sources is not None:
        lines += ["", *_by_source(table.sources, means)]
    lines += ["", "provenance"]
    for name, value in table.provenance.to_dict().items():
        text = value if isinstance(value, str) else json.dumps(value)
        lines.append(f"  {name}: {text}")
    return "\n".join(lines)


def histogram(means: FloatArray) -> list[str]:
    """Text bars of mean rewards in ten bins of equal width, with the prompts in each."""
    low, high = min(0.0, float(means.min())), max(1.0, float(means.max()))
    counts, edges = np.histogram(means, bins=BINS, range=(low, high))
    lines = []
    for count, left, right in zip(counts.tolist(), edges[:-1], edges[1:], strict=True):
        # A bin with prompts never looks empty.
        bar = "#" * -(-count * _BAR_WIDTH // max(counts.tolist()))
        lines.append(f"  {left:6.2f} to {right:5.2f} {count:8d} {bar}".rstrip())
    return lines


def _size(table: PassRates) -> str:
    kind = "rewards" if table.is_continuous else "counts of successes"
    low, high = int(table.n.min()), int(table.n.max())
    each = f"{low} each" if low == high else f"{low} to {high} each"
    return f"{len(table)} prompts, {int(table.n.sum())} rollouts ({each}), {kind}"


def _summary(table: PassRates, means: FloatArray) -> list[str]:
    what = "mean reward" if table.is_continuous else "pass rate"
    return [
        f"  {what}: {means.mean():.4f} (standard deviation over prompts {means.std():.4f})",
        f"  prompts at exactly 0: {(means == 0).mean():.1%}, "
        f"at exactly 1: {(means == 1).mean():.1%}",
    ]


def _by_source(sources: list[str], means: FloatArray) -> list[str]:
    names = np.array(sources)
    return [
        f"  {name}: {int((names == name).sum())} prompts, mean {means[names == name].mean():.4f}"
        for name in sorted(set(sources))
    ]
