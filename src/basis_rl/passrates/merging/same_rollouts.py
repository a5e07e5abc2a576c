"""Whether two tables hold the same rollouts, which must not be added up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from basis_rl.passrates.provenance import SAMPLED_WITH, Provenance


def same_rollouts(one: Provenance, other: Provenance) -> str:
    """Why rollouts of one prompt are the same in two tables; empty if nothing says so.

    A seed and a number make a completion, so two builds with the same seed and settings hold the
    same ones, whatever was added to them since. A step of a run that both have absorbed, too.
    """
    builds = _build(one), _build(other)
    if builds[0] and builds[1]:
        pairs = [(builds[0].get(name), builds[1].get(name)) for name in SAMPLED_WITH]
        if all(ours == theirs for ours, theirs in pairs):
            return "were sampled with the same seed and settings"
    for ours in _absorbed(one):
        for theirs in _absorbed(other):
            if ours["run_id"] == theirs["run_id"] and _overlap(ours["steps"], theirs["steps"]):
                return f"have both absorbed steps of {ours.get('run')}"
    return ""


def _build(provenance: Provenance) -> Mapping[str, Any]:
    """What a table's own rollouts were sampled with; empty where unknown or replaced."""
    if any(note.get("replaces_cache") for note in _absorbed(provenance)):
        return {}
    for name in ("build", "built_from"):
        build = provenance.extra.get(name)
        if isinstance(build, Mapping) and "seed" in build:
            return build
    return {}


def _absorbed(provenance: Provenance) -> list[Mapping[str, Any]]:
    notes = provenance.extra.get("absorbed")
    listed = notes if isinstance(notes, list) else []
    return [note for note in listed if isinstance(note, Mapping) and note.get("run_id")]


def _overlap(one: list[int], other: list[int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]
