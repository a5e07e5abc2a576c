"""The pages on verl: their tables are complete, and their overrides and commands are accepted."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

import click
import numpy as np
import pytest

from basis_rl import PassRates, RewardBatch, cli
from basis_rl.estimators import registry
from basis_rl.verl import fully_async, legacy, v1
from basis_rl.verl.options import OWN, STOCK, Options, read_options
from basis_rl.verl.run import BasisRun

ROOT = Path(__file__).parents[1]
PAGE = "\n".join(
    (ROOT / "docs" / name).read_text() for name in ("verl.md", "verl-data.md", "verl-check.md")
)
CONFIG = {"data": {"train_batch_size": 8}, "actor_rollout_ref": {"rollout": {"n": 1}}}
KEYS = [f"k{i // 2}" for i in range(8)]
REWARDS = np.array([0.0, 1, 1, 1, 0, 0, 1, 0])


def rows(header: str, start: str = "") -> dict[str, list[str]]:
    """Rows of the first table with this header after a text, by each name in their first cell."""
    lines = PAGE[PAGE.index(header, PAGE.index(start)) :].splitlines()
    table = {}
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        first, *rest = [cell.strip() for cell in line.strip("|").split("|")]
        table |= dict.fromkeys(re.findall(r"`([^`]+)`", first), rest)
    return table


def test_every_option_of_a_run_has_a_row_with_its_default():
    table = rows("| key | default |")
    assert sorted(table) == sorted(OWN)
    shown = {None: "none", (): "`[]`", True: "true"}
    for field in dataclasses.fields(Options):
        if field.name in ("estimator", "estimator_options", "min_coverage"):
            continue
        default = shown.get(field.default, str(field.default))
        assert table[field.name][0].strip("`") == default.strip("`"), field.name


def test_every_option_of_the_default_estimator_has_a_row():
    assert sorted(rows("| key | default |", "Of `basis`")) == sorted(registry.keywords("basis"))


def test_every_metric_has_a_row():
    found = {f"basis/{name}" for name in ("coverage", *metrics_of("critic", "remax"))}
    for file in (ROOT / "src" / "basis_rl" / "verl").glob("*.py"):
        found |= set(re.findall(r'"(basis/\w+)"', file.read_text()))
    assert sorted(rows("| name | of |")) == sorted(found)


def metrics_of(*left_out: str) -> set[str]:
    """Metrics that a run logs with each estimator, without "basis/"."""
    table = PassRates.from_counts(sorted(set(KEYS)), [1, 3, 5, 7], 8)
    batch = RewardBatch(KEYS, REWARDS, lengths=np.arange(1.0, 9.0), step=1, policy_version=0)
    found: set[str] = set()
    for name in registry.names():
        if name in left_out:
            continue
        for options in [{}, {"preset": "paper"}] if name == "basis" else [{}]:
            with_table = None if registry.pass_rates_use(name) == "none" else table
            estimator = registry.create(name, with_table, **options)
            run = BasisRun(CONFIG, Options(name, record_rewards=False), estimator, with_table)
            _, metrics = run.advantages(batch)
            found |= {metric.removeprefix("basis/") for metric in metrics}
    return found


def test_every_estimator_is_in_a_row():
    table = rows("| it | then |").keys()
    lines = re.findall(r"^\| (.+?): (.+?) \|", PAGE[PAGE.index("| it | then |") :], re.MULTILINE)
    named = {what: re.findall(r"`([^`]+)`", names) for what, names in lines[:5]}
    assert sorted({n for each in named.values() for n in each}) == registry.names(), table
    uses = {"needs a table": "needed", "can use one": "optional", "uses none": "none"}
    for what, use in uses.items():
        for name in named[what]:
            assert registry.pass_rates_use(name) == use, name
    for name in named["compares a prompt's own rollouts"]:
        assert registry.min_rollouts(name) > 1, name
    for name in set(registry.names()) & set(STOCK):
        assert f"`{name}`" in rows("| key | default |")["estimator"][1], name


def test_every_method_that_is_wrapped_is_named():
    limits = PAGE[PAGE.index("## Limits") :]
    assert set(re.findall(r"`(_\w+)`", limits)) == {
        *v1.HOOKS,
        *legacy.HOOKS,
        *fully_async.HOOKS,
    }


def test_overrides_are_read():
    given = re.findall(r"\+algorithm\.basis\.(\w+)=([^\s`…]+)", PAGE)
    assert len(given) > 8
    for key, value in given:
        plain = float(value) if re.fullmatch(r"[\d.]+", value) else value.strip("[]")
        name = "basis-online" if key in registry.keywords("basis-online") else "basis"
        options = read_options({"adv_estimator": name, "basis": {key: plain}})
        assert key in (*vars(options), *options.estimator_options)


COMMANDS = re.findall(r"^basis-rl [^#>\n]+", PAGE.replace("\\\n", " "), re.MULTILINE)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_have_these_options(line):
    words = shlex.split(line)[1:]
    command: click.Command = cli.group
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, line
        command = found
    known = {name for parameter in command.params for name in parameter.opts}
    for word in words:
        assert not word.startswith("-") or word in known, word
