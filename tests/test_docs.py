"""The documentation: examples run, links lead somewhere, commands exist."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

from basis_rl import cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CORE = ["batch", "values", "refine", "levels", "calibrate", "shift", "estimators.basis"]


@pytest.mark.parametrize("name", CORE)
def test_docstring_examples(name):
    result = doctest.testmod(importlib.import_module(f"basis_rl.{name}"))
    assert result.failed == 0
    if name == "estimators.basis":
        assert result.attempted > 0


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_in_the_pages_exist(page):
    text = page.read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for target in re.findall(r"\bmake ([a-z][a-z-]*)", "\n".join(code_of(text))):
        assert target in targets, target
    for command in re.findall(r"\bbasis-rl ([a-z]+)", "\n".join(code_of(text))):
        assert command in cli.COMMANDS, command
    for script in re.findall(r"python ([a-z_/]+\.py)", text):
        assert (ROOT / script).exists(), script


def code_of(text: str) -> list[str]:
    """Fenced blocks and inline code."""
    fence = r"```\w*\n(.*?)```"
    inline = re.findall(r"`([^`\n]+)`", re.sub(fence, "", text, flags=re.DOTALL))
    return re.findall(fence, text, re.DOTALL) + inline


def test_no_placeholder_is_left():
    for page in PAGES:
        assert "@@" not in page.read_text(), page


def test_python_examples_of_the_readme_run(tmp_path, monkeypatch):
    from basis_rl import PassRates

    monkeypatch.chdir(tmp_path)
    PassRates.from_counts(["a", "b"], [1, 3], 4).save("pass-rates.parquet")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    examples = [block for block in blocks if "RewardBatch(" in block]
    assert len(examples) == 2
    names = {"keys": ["a", "b"], "rewards": [0.0, 1.0]}
    for example in examples:  # the second one goes on from the first
        exec(example, names)
        assert names["estimate"].advantages.shape == (2,)
