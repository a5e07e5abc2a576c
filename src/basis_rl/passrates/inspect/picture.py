"""The distribution of pass rates as a figure."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from basis_rl.errors import BasisError, PassRatesError
from basis_rl.files import check_writable, write_atomically
from basis_rl.passrates.inspect.describe import WHAT, size
from basis_rl.passrates.inspect.histogram import Bin, bins
from basis_rl.passrates.table import PassRates

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

# Okabe and Ito's blue and vermilion; in print one is dark, the other hatched.
_BLUE, _VERMILION, _GREY = "#0072B2", "#D55E00", "#444444"
_INNER = 20
_MOST_VALUES = 64
_MOST_FRACTIONS = 17  # labels k/n beside each other
_LABEL = 0.12  # width of a label, in pass rates
_DPI = 150


def check_picture(path: str) -> None:
    """Refuse what no picture can be written to, before a table is read.

    Raises
    ------
    PassRatesError
        If matplotlib is missing or the file cannot be written.
    """
    try:
        import matplotlib as _  # noqa: F401
    except ImportError:
        raise PassRatesError(
            "a picture needs matplotlib: pip install matplotlib, or leave --png out"
        ) from None
    if Path(path).suffix.lower() != ".png":
        raise PassRatesError(f"the picture {path} is no .png file: give it that ending")
    try:
        check_writable(path, shown=path)
    except BasisError as error:
        raise PassRatesError(str(error)) from None


def save_picture(table: PassRates, path: str, *, name: str) -> None:
    """Write a histogram of the pass rates as PNG.

    Raises
    ------
    PassRatesError
        If it cannot be written.
    """
    data = io.BytesIO()
    figure = draw(table, name=name)
    # Dates would make each run another file.
    figure.savefig(data, format="png", dpi=_DPI, metadata={"Software": None})
    try:
        write_atomically(path, data.getvalue())
    except BasisError as error:
        raise PassRatesError(str(error)) from error


def draw(table: PassRates, *, name: str) -> Figure:
    """Histogram of the pass rates, both ends marked, with their mean."""
    # Not through pyplot: no global state, no display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    found = bins(table, inner=_INNER, most_values=_MOST_VALUES)
    most = max(b.count for b in found)
    _ends(axes, found, _bars(axes, found), len(table), most)
    mean = float(table.means.mean())
    # White behind the dashes, so that they show before a bar too.
    axes.axvline(mean, color="white", linewidth=3, alpha=0.8, zorder=3)
    axes.axvline(mean, color=_GREY, linestyle=(0, (5, 3)), linewidth=1.4, zorder=3)
    in_left_half = mean < (found[0].low + found[-1].high) / 2
    axes.annotate(
        f"mean {mean:.3f}",
        (mean, most * 1.17),
        xytext=(5 if in_left_half else -5, 0),
        textcoords="offset points",
        ha="left" if in_left_half else "right",
        va="top",
        color=_GREY,
    )
    axes.set_ylim(0, most * 1.2)
    axes.set_xlabel(f"{WHAT[table.kind]} under the reference policy")
    axes.set_ylabel("prompts")
    axes.set_title(f"{os.path.basename(name)}\n{size(table)}", loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.grid(True, color="#DDDDDD", linewidth=0.8)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_axisbelow(True)
    return figure


def _bars(axes: Axes, found: list[Bin]) -> list[Rectangle]:
    """Bars at their values; those of one value are as wide as their neighbours allow."""
    inner = [b for b in found if b.high > b.low]
    step = inner[0].high - inner[0].low if inner else 1.0 / max(len(found) - 1, 1)
    drawn: list[Rectangle] = []
    for b in found:
        width, centre = step * 0.9, (b.low + b.high) / 2
        if inner and b.is_end:  # beside the first and last bin of values between
            width = step * 0.6
            centre += -width if b.low == 0 else width
        colour, edge, hatch = ("white", _VERMILION, "/////") if b.is_end else (_BLUE, _BLUE, "")
        drawn += axes.bar(
            centre, b.count, width=width, color=colour, edgecolor=edge, hatch=hatch, linewidth=1.0
        )
    if found[0].is_end:
        margin = step * (1.4 if inner else 0.75)
        axes.set_xlim(-margin, 1 + margin)
        few = not inner and len(found) <= _MOST_FRACTIONS
        ticks = (
            [(b.low, b.label) for b in found] if few else [(t / 5, str(t / 5)) for t in range(6)]
        )
        axes.set_xticks([place for place, _ in ticks], [label for _, label in ticks])
    return drawn


def _ends(axes: Axes, found: list[Bin], drawn: list[Rectangle], prompts: int, most: int) -> None:
    """The share of prompts at exactly 0 and 1, over their bars and those that the text covers."""
    for b, bar in zip(found, drawn, strict=True):
        if not b.is_end:
            continue
        is_left = b.low == 0
        below = max(other.count for other in found if abs(other.low - b.low) < _LABEL)
        axes.annotate(
            f"{b.count / prompts:.1%} at {b.low:.0f}",
            (bar.get_x() + (0.0 if is_left else bar.get_width()), below + most * 0.015),
            ha="left" if is_left else "right",
            va="bottom",
            color=_VERMILION,
            fontsize=9,
            zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
        )
