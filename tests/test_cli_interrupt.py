"""What a command says after Ctrl-C."""

from __future__ import annotations

import click
import pytest

from basis_rl import cli
from basis_rl.cli import INTERRUPTED, STOPPED, STOPPED_FOR_GOOD, main


@pytest.fixture
def interrupt(monkeypatch):
    """Every command ends in an interrupt that says nothing."""

    @click.command(context_settings={"ignore_unknown_options": True})
    @click.argument("rest", nargs=-1)
    def stopped(rest):
        raise KeyboardInterrupt

    group = cli.LazyGroup.get_command

    def get(self, ctx, name):
        found = group(self, ctx, name)
        return found if isinstance(found, click.Group) else stopped

    monkeypatch.setattr(cli.LazyGroup, "get_command", get)


def last_line(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == INTERRUPTED
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize("command", ["lab replay", "lab figures", "lab recommend", "cache import"])
def test_a_command_that_keeps_nothing_does_not_promise_to_go_on(command, interrupt, capsys):
    assert last_line([*command.split(), "record"], capsys) == f"basis-rl: {STOPPED_FOR_GOOD}"


@pytest.mark.parametrize(
    "command",
    ["cache build", "cache extend", "cache refresh", "demo", "lab gradient", "lab record", "train"],
)
def test_a_command_that_goes_on_says_so(command, interrupt, capsys, monkeypatch):
    assert last_line([*command.split(), "x"], capsys) == f"basis-rl: {STOPPED}"
    monkeypatch.setattr("sys.argv", ["basis-rl", *command.split()])
    assert last_line(None, capsys) == f"basis-rl: {STOPPED}"


def test_every_command_that_goes_on_is_there():
    context = click.Context(cli.group)
    for first, *rest in cli._GO_ON:
        command = cli.group.get_command(context, first)
        for word in rest:
            assert isinstance(command, click.Group)
            assert word in command.list_commands(context)
