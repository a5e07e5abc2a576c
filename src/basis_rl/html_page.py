"""One HTML file that needs nothing else: style, figures and tables of numbers."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
  max-width: 48rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin-top: 2rem; }
figure { margin: 1.2rem 0; break-inside: avoid; } img { width: 100%; height: auto; }
figcaption, .note { color: #444; font-size: .9rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
caption { text-align: left; font-weight: 600; padding: .8rem 0 .2rem; }
th, td { text-align: right; padding: .3rem .5rem; border-bottom: 1px solid #ccc;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
td:first-child, th:first-child { padding-left: 0; } .text td { white-space: normal; }
h1 { overflow-wrap: anywhere; }
@media (max-width: 30rem) { table { font-size: .78rem; } th, td { padding: .25rem; }
  th:last-child, td:last-child { white-space: normal; } }
th:first-child, td:first-child, .text td { text-align: left; }
pre { background: #f4f4f4; padding: .6rem; overflow-x: auto; font-size: .85rem; }
.verdict { border-left: 4px solid #0072B2; padding: .4rem .8rem; background: #f4f8fb; }
.wide img { min-width: 34rem; }
@media print { .wide img { min-width: 0; } .scroll { overflow: visible; } }
@media print { body { max-width: none; font-size: 11pt; } tr { break-inside: avoid; }
  h2, caption { break-after: avoid; } }
"""
_MEDIA = {"png": "image/png", "svg": "image/svg+xml"}


def document(title: str, parts: Iterable[str], *, style: str = "") -> str:
    """Whole page of some parts of HTML; ``style`` is added to the common one."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}{style}</style></head><body>"
        + "\n".join(parts)
        + "</body></html>\n"
    )


def figure(image: bytes, caption: str, *, kind: str = "png", wide: bool = False) -> str:
    """Picture with its caption, held in the page itself.

    Parameters
    ----------
    image : bytes
    caption : str
    kind : {"png", "svg"}
    wide : bool
        Scroll it on a narrow screen instead of shrinking it until nobody can read it.
    """
    text = html.escape(caption)
    data = base64.b64encode(image).decode("ascii")
    shown = f'<img alt="{text}" src="data:{_MEDIA[kind]};base64,{data}">'
    if wide:
        shown = f'<div class="scroll wide">{shown}</div>'
    return f"<figure>{shown}<figcaption>{text}</figcaption></figure>"


def plain_table(entries: Mapping[str, Any], title: str) -> str:
    """Table of names and values, both as text."""
    rows = "".join(
        f"<tr><td>{html.escape(name.replace('_', ' '))}</td><td>{html.escape(shown(value))}</td>"
        "</tr>"
        for name, value in entries.items()
    )
    return (
        f'<div class="scroll"><table class="text"><tr><th>{html.escape(title)}</th><td></td></tr>'
        f"{rows}</table></div>"
    )


def number_table(head: Sequence[str], rows: Iterable[Sequence[Any]], *, caption: str = "") -> str:
    """Table whose first column is text and whose others are numbers."""
    top = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(shown(value))}</td>" for value in row) + "</tr>"
        for row in rows
    )
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f'<div class="scroll"><table>{title}<tr>{top}</tr>{body}</table></div>'


def shown(value: Any) -> str:
    """Value as a reader sees it."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "default" if value is None else str(value)
