"""The paper, for the model cards that TRL writes."""

from __future__ import annotations

_TITLE = (
    "BASIS: Batchwise Advantage Estimation from Single-Rollout Information Sharing for LLM "
    "Reasoning"
)
_AUTHORS = "Erhan Xu and Kai Ye and Giulia Livieri and Francesco Quinzan and Chengchun Shi"
PAPER = {
    "title": _TITLE,
    "id": "2605.27293",
    # Double braces keep the title's capitals in BibTeX.
    "citation": f"""\
@article{{xu2026basis,
    title        = {{{{{_TITLE}}}}},
    author       = {{{_AUTHORS}}},
    year         = 2026,
    eprint       = {{arXiv:2605.27293}},
}}""",
}
