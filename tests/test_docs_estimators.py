"""The table of estimators is complete, and says of each what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from basis_rl import estimators
from basis_rl.estimators import registry
from basis_rl.normalize import _WAYS

PAGE = (Path(__file__).parents[1] / "docs" / "estimators.md").read_text()


def rows(header: str) -> dict[str, dict[str, str]]:
    """Rows of the table with this header, by their first cell."""
    lines = PAGE[PAGE.index(header) :].splitlines()
    names = [cell.strip() for cell in lines[0].strip("|").split("|")]
    table = {}
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert len(cells) == len(names), line
        table[cells[0].strip("`")] = dict(zip(names, cells, strict=True))
    return table


TABLE = rows("| name |")


def test_every_registered_name_has_one_row():
    assert sorted(TABLE) == estimators.names()


@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_row_says_what_the_estimator_needs(name):
    row = TABLE[name]
    for column in registry.needed_columns(name):
        assert column in row["needs"], column
    use = registry.pass_rates_use(name)
    assert ("pass rates" in row["needs"]) == (use != "none")
    assert ("optional" in row["needs"]) == (use == "optional")
    several = registry.min_rollouts(name) > 1
    assert row["rollouts per prompt"].startswith("2+" if several else "any")
    assert row["baseline"]
    assert re.search(r"\d{4}\.\d{5}|19\d\d|none", row["paper"]), row["paper"]


def test_every_way_of_normalising_has_a_row():
    assert set(rows("| `how` |")) == set(_WAYS)
