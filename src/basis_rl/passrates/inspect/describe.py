"""A table of pass rates in a few lines of text."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from basis_rl.batch import FloatArray, group_index
from basis_rl.passrates.inspect.histogram import Bin, bins, common_n
from basis_rl.passrates.table import PassRates

_EIGHTHS = "▏▎▍▌▋▊▉█"
_BAR_WIDTH = 40
_MOST_SOURCES = 20
_WIDEST_SOURCE = 40
_MOST_CHARACTERS = 200  # of a provenance entry
WHAT = {"counts": "pass rate", "rewards": "mean reward", "rates": "pass rate"}


def describe(
    table: PassRates, path: str | os.PathLike[str], *, blocks: bool = True, width: int = 80
) -> str:
    """Counts, mean, shares at the ends, histogram, sources and provenance of a table.

    Parameters
    ----------
    table : PassRates
    path : path
        Shown as the title.
    blocks : bool
        Whether bars may be drawn with Unicode's block characters.
    width : int
        Columns of the terminal.
    """
    means = table.means
    lines = [f"{os.fspath(path)}: {size(table)}"]
    if "warning" in table.provenance.extra:
        lines.append(f"  WARNING: {table.provenance.extra['warning']}")
    lines += [*_summary(table, means), ""]
    lines += bars(bins(table), blocks=blocks, width=width)
    if table.sources is not None:
        lines += ["", *_by_source(table, means)]
    lines += ["", "provenance"]
    for name, value in table.provenance.to_dict().items():
        lines += _entry(name, value, "  ")
    return "\n".join(lines)


def _entry(name: str, value: Any, indent: str) -> list[str]:
    """An entry of the provenance; one with entries of its own has a line for each."""
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        numbered = [_entry(f"{name} {i}", each, indent) for i, each in enumerate(value, start=1)]
        return [line for lines in numbered for line in lines]
    if isinstance(value, dict) and value:
        inner = [_entry(str(key), each, f"{indent}  ") for key, each in value.items()]
        return [f"{indent}{name}:", *(line for lines in inner for line in lines)]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[: _MOST_CHARACTERS - 1]}…"
    return [f"{indent}{name}: {text}"]


def size(table: PassRates) -> str:
    """Prompts, rollouts and kind of a table in a few words."""
    prompts = f"{len(table):,} prompt" + ("" if len(table) == 1 else "s")
    if table.kind == "rates":
        return f"{prompts}, rates of an unknown number of rollouts"
    n = common_n(table)
    each = f"{int(table.n.min())} to {int(table.n.max())} each" if n is None else f"{n} each"
    kind = "rewards" if table.is_continuous else "counts of successes"
    total = int(table.n.sum())
    rollouts = f"{total:,} rollout" + ("" if total == 1 else "s")
    return f"{prompts}, {rollouts} ({each}), {kind}"


def bars(found: Sequence[Bin], *, blocks: bool, width: int) -> list[str]:
    """One line a bin: its label, its prompts, their share and a bar."""
    total, most = sum(b.count for b in found), max(b.count for b in found)
    label = max(len(b.label) for b in found)
    digits = len(str(most))
    room = max(min(_BAR_WIDTH, width - label - digits - 13), 8)
    return [
        f"  {b.label:>{label}}  {b.count:{digits}d}  {b.count / total:6.1%} "
        f"{_bar(b.count / most * room, blocks)}".rstrip()
        for b in found
    ]


def _bar(length: float, blocks: bool) -> str:
    """A bar so many characters long; one that is not empty never looks empty."""
    if not blocks:
        return "#" * int(np.ceil(length))
    eighths = int(np.ceil(length * 8))
    return _EIGHTHS[7] * (eighths // 8) + (_EIGHTHS[eighths % 8 - 1] if eighths % 8 else "")


def _summary(table: PassRates, means: FloatArray) -> list[str]:
    lines = [
        f"  {WHAT[table.kind]}: {means.mean():.4f} "
        f"(standard deviation over prompts {means.std():.4f})",
        f"  prompts at exactly 0: {(means == 0).mean():.1%}, "
        f"at exactly 1: {(means == 1).mean():.1%}",
    ]
    lines += _tokens(table)
    if table.prompt_hashes is not None:
        known = sum(map(bool, table.prompt_hashes))
        lines.append(f"  prompts with a hash of their text: {known}")
    return lines


def _tokens(table: PassRates) -> list[str]:
    """Tokens of the completions that a build sampled; the table may have other rollouts too."""
    extra = table.provenance.extra
    tokens, sampled = extra.get("tokens"), extra.get("completions")
    if not isinstance(sampled, int):
        is_extended = "absorbed" in extra or "built_from" in extra
        sampled = 0 if is_extended else int(table.n.sum())
    if not isinstance(tokens, int) or isinstance(tokens, bool) or not sampled:
        return []
    is_all = sampled == int(table.n.sum())
    each = "a rollout" if is_all else f"a completion, of {sampled:,} that were sampled"
    mean = tokens / sampled
    return [f"  tokens: {tokens:,} ({mean:,.{0 if mean >= 10 else 1}f} {each})"]


def _by_source(table: PassRates, means: FloatArray) -> list[str]:
    """A row a source, the largest first."""
    assert table.sources is not None
    names = list(dict.fromkeys(table.sources))
    source = group_index(table.sources)
    prompts = np.bincount(source)
    rollouts = np.bincount(source, weights=table.n)
    mean, at_zero, at_one = (
        np.bincount(source, weights=weights) / prompts
        for weights in (means, means == 0, means == 1)
    )
    order = sorted(range(len(names)), key=lambda i: (-prompts[i], names[i]))
    shown = order[:_MOST_SOURCES]
    names = [_end(name) for name in names]
    width = max(len("source"), *(len(names[i]) for i in shown))
    lines = [f"  {'source':<{width}}  prompts  rollouts    mean    at 0    at 1"]
    lines += [
        f"  {names[i]:<{width}} {prompts[i]:8d} {rollouts[i]:9.0f} {mean[i]:7.4f} "
        f"{at_zero[i]:7.1%} {at_one[i]:7.1%}"
        for i in shown
    ]
    if len(order) > len(shown):
        lines.append(f"  and {len(order) - len(shown)} more sources")
    return lines


def _end(name: str) -> str:
    """The end of a long name, where names of one kind differ."""
    return name if len(name) <= _WIDEST_SOURCE else f"…{name[1 - _WIDEST_SOURCE :]}"
