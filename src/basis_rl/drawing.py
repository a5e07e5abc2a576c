"""How figures look: colour-blind-safe, told apart in grey print by marker and dash."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from basis_rl.errors import BasisError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, the lighter ones darkened: blue, vermilion, green, purple, ….
STYLES: list[dict[str, Any]] = [
    {"color": "#0072B2", "linestyle": "-", "marker": "o"},
    {"color": "#D55E00", "linestyle": "--", "marker": "s"},
    {"color": "#007F5C", "linestyle": "-.", "marker": "^"},
    {"color": "#A04878", "linestyle": ":", "marker": "D"},
    {"color": "#000000", "linestyle": (0, (5, 1, 1, 1, 1, 1)), "marker": "v"},
    {"color": "#B07D00", "linestyle": (0, (8, 2)), "marker": "P"},
    {"color": "#2F93C9", "linestyle": (0, (1, 1)), "marker": "X"},
]
GREY = "#555555"
_FORMATS = ("png", "svg", "pdf")


def check_matplotlib() -> None:
    """Refuse before long work what could not be drawn.

    Raises
    ------
    BasisError
        If matplotlib is missing.
    """
    try:
        import matplotlib as _  # noqa: F401
    except ImportError:
        raise BasisError("figures need matplotlib: pip install matplotlib") from None


def plain(axes: Axes) -> None:
    """Two spines and a pale grid behind the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def log_if_positive(axes: Axes, values: Iterable[float]) -> None:
    """Ratios matter more than differences; a corrected MSE may fall below 0, which no log shows."""
    if any(value <= 0 for value in values):  # false for NaN
        axes.axhline(0, color=GREY, linewidth=0.8)
        return
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def picture(figure: Figure, kind: str = "png") -> bytes:
    """Image file of a figure; the same numbers give the same bytes.

    Parameters
    ----------
    figure : Figure
    kind : {"png", "svg", "pdf"}
    """
    import matplotlib

    if kind not in _FORMATS:
        raise BasisError(f"a picture of kind {kind!r}: use one of {', '.join(_FORMATS)}")
    buffer = io.BytesIO()
    dateless: dict[str, Any] = {
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }[kind]
    with matplotlib.rc_context({"svg.hashsalt": "basis-rl", "pdf.fonttype": 42}):
        figure.savefig(buffer, format=kind, dpi=180, facecolor="white", metadata=dateless)
    return buffer.getvalue()
