"""The command `basis-rl`: one small module a command, imported only when it is called."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from basis_rl.errors import BasisError, nearest

COMMANDS = {
    "cache": ("basis_rl.cli.cache", "cache"),
    "demo": ("basis_rl.cli.demo", "demo"),
    "lab": ("basis_rl.cli.lab", "lab"),
    "train": ("basis_rl.cli.train", "train"),
    "verl": ("basis_rl.cli.verl", "verl"),
}
USAGE_ERROR = 2
INTERRUPTED = 130
STOPPED = "stopped; run the same command again to go on where it stopped"
STOPPED_FOR_GOOD = "stopped; the same command starts from the beginning"
# Commands that keep what is done, and go on with it.
_GO_ON = (
    ("cache", "build"),
    ("cache", "extend"),
    ("cache", "refresh"),
    ("demo",),
    ("lab", "gradient"),
    ("lab", "record"),
    ("train",),
)


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for.

    Parameters
    ----------
    modules : dict
        Name of a command to (module, attribute); each attribute is a click command or group.
    """

    def __init__(
        self, *args: Any, modules: Mapping[str, tuple[str, str]] | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.modules = dict(modules or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in self.modules:
            known = sorted(self.modules)
            raise click.UsageError(f"no command {cmd_name!r}{nearest(cmd_name, known)}")
        module, attribute = self.modules[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


@click.group(cls=LazyGroup, modules=COMMANDS)
@click.version_option(package_name="basis-rl")
def group() -> None:
    """Baselines for RL with verifiable rewards from one rollout per prompt."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; every expected failure is one line on stderr, without a traceback."""
    words = tuple(sys.argv[1:] if arguments is None else arguments)
    try:
        code = group.main(args=arguments, prog_name="basis-rl", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as help_text:
        help_text.show()
        code = USAGE_ERROR
    except click.ClickException as error:
        _fail(error.format_message(), error.exit_code)
    except BasisError as error:
        _fail(str(error), USAGE_ERROR)
    except OSError as error:
        place = error.filename or "the terminal or pipe that the output goes to"
        reason = error.strerror or str(error)
        _fail(f"{reason}: {place}; check permissions and free space, or name another", USAGE_ERROR)
    except ImportError as error:
        # Ours say what to install.
        missing = isinstance(error, ModuleNotFoundError)
        remedy = ": install it, or basis-rl with the extra that needs it" if missing else ""
        _fail(f"{error}{remedy}", USAGE_ERROR)
    except (KeyboardInterrupt, click.Abort) as error:
        # A command that knows better says so in the interrupt that it raises.
        goes_on = any(words[: len(command)] == command for command in _GO_ON)
        usual = STOPPED if goes_on else STOPPED_FOR_GOOD
        _fail(str(error.__cause__ or "") or usual, INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> None:
    if os.environ.get("BASIS_RL_TRACEBACK"):
        raise  # noqa: PLE0704 - called from an except block, for debugging
    print("basis-rl: " + " ".join(message.split()), file=sys.stderr)  # noqa: T201
    sys.exit(code)
