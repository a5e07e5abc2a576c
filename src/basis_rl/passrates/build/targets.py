"""What a journal was asked for over time, without opening it for a build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from basis_rl.passrates.build.lines import check_line, decoded
from basis_rl.passrates.build.members import DamagedMemberError, read_members


def stored_targets(journal: Path) -> tuple[dict[str, list[str]], list[dict[str, Any]]]:
    """Rows of a journal's prompts by key, and all targets that it ever had.

    Empty where it cannot be read; whoever opens it says why.
    """
    rows: dict[str, list[str]] = {}
    targets: list[dict[str, Any]] = []
    try:
        for member in read_members(journal):
            for line in decoded(member.content):
                check_line(line)
                if line["kind"] == "prompts":
                    rows.update((row[0], row) for row in line["rows"])
                elif line["kind"] == "target":
                    targets.append(line["settings"])
    except (OSError, ValueError, DamagedMemberError):
        return {}, []
    return rows, targets
