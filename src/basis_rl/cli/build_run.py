"""What the commands that sample a cache share: their options, the progress bar, the report."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from basis_rl.cli import INTERRUPTED, STOPPED
from basis_rl.errors import ConfigError

if TYPE_CHECKING:
    from basis_rl.passrates import PassRates
    from basis_rl.passrates.build import BuildProgress, LaterEngine
    from basis_rl.prompts import Prompt
    from basis_rl.verifiers import NamedVerifier

Function = TypeVar("Function", bound=Callable[..., Any])
_LINE_WIDTH = 160
_SECONDS_BETWEEN_LINES = 60.0  # where no bar can be drawn
_ENGINE_OPTIONS = [
    click.option(
        "--engine-option",
        multiple=True,
        metavar="KEY=YAML",
        help="An option of the engine, e.g. batch_size=32; give it as often as you like.",
    ),
    click.option("--base-url", help="Address of the server, for --engine openai."),
]
_REPORT_OPTIONS = [
    click.option(
        "--verifier-processes", type=int, help="Processes that judge; by default one a core."
    ),
    click.option("--verifier-limit", type=float, help="Seconds that one answer may take."),
    click.option(
        "--training-rollouts",
        type=click.IntRange(min=1),
        metavar="N",
        help="Compare the cost with training on so many rollouts.",
    ),
    click.option(
        "--discard-completions",
        is_flag=True,
        help="Delete the journal at the end: no --reverify and no extend afterwards.",
    ),
]


def engine_options(command: Function) -> Function:
    """Add what is passed on to the engine; `engine_options_of` reads it."""
    return _with(_ENGINE_OPTIONS, command)


def report_options(command: Function) -> Function:
    """Add the options of the verifier's processes and of the end of a build."""
    return _with(_REPORT_OPTIONS, command)


def _with(options: Sequence[Any], command: Function) -> Function:
    for option in reversed(options):
        command = option(command)
    return command


def engine_options_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options ``key=value`` for the engine, values as YAML.

    Raises
    ------
    ConfigError
        If one has another form.
    """
    from basis_rl.train.document import parse_yaml

    found: dict[str, Any] = {}
    for text in options["engine_option"]:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--engine-option {text}: write it as key=value")
        found[name.strip()] = parse_yaml(value, where=f"--engine-option {text}")
    if options["base_url"] is not None:
        found["base_url"] = options["base_url"]
    return found


def verifier_of(name: str, answer_column: str, options: Mapping[str, Any]) -> NamedVerifier:
    """Verifier that the options name.

    Raises
    ------
    ConfigError
        As `verifiers.create`.
    """
    from basis_rl import verifiers

    given = {"processes": options["verifier_processes"], "limit_s": options["verifier_limit"]}
    wanted = {key: value for key, value in given.items() if value is not None}
    return verifiers.create(name, answer_column=answer_column, **wanted)


def run_build(
    prompts: Sequence[Prompt],
    engine: LaterEngine,
    verifier: NamedVerifier,
    asked: Mapping[str, Any],
    **build: Any,
) -> None:
    """Build with a progress bar, and say what came of it.

    Parameters
    ----------
    prompts : sequence of Prompt
    engine : LaterEngine
        Closed at the end, as the verifier is.
    verifier : NamedVerifier
    asked : mapping
        Options of the command: out, training_rollouts, discard_completions.
    **build
        Keywords of `build_cache`.
    """
    from basis_rl.passrates.build import build_cache, journal_path

    out = asked["out"]
    with ExitStack() as stack:
        stack.enter_context(second_stop_ends_at_once())
        stack.callback(verifier.close)
        stack.callback(engine.close)
        report = stack.enter_context(_bar())
        engine.announce = lambda: _announce(stack, engine, len(prompts))
        table = build_cache(prompts, engine, verifier, out, progress=report, **build)
    if asked["discard_completions"]:
        journal_path(out).unlink(missing_ok=True)
    if report.last is None:
        click.echo(f"{out} is there already; nothing to do: {table}")
    else:
        _tell(table, report.last, asked)


@contextmanager
def second_stop_ends_at_once() -> Iterator[None]:
    """Let Ctrl-C close everything, and a second one end the process without more ado.

    The journal is whole at any moment.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stopped = False

    def stop(number: int, frame: Any) -> None:
        nonlocal stopped
        if stopped:
            os.write(2, f"basis-rl: {STOPPED}\n".encode())
            os._exit(INTERRUPTED)
        stopped = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _announce(stack: ExitStack, engine: LaterEngine, prompts: int) -> None:
    click.echo(f"{prompts} prompts; loading {engine.model}", err=True)
    if engine.name == "transformers":
        from basis_rl.messages import quiet_transformers

        stack.enter_context(quiet_transformers())


class _Report:
    """Draws each `BuildProgress` and keeps the last one."""

    def __init__(self, draw: Callable[[BuildProgress], None]) -> None:
        self.last: BuildProgress | None = None
        self._draw = draw

    def __call__(self, now: BuildProgress) -> None:
        self.last = now
        self._draw(now)


@contextmanager
def _bar() -> Iterator[_Report]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Column

    console = Console(stderr=True)
    if not console.is_terminal:  # then the bar is one line, at the end
        console.width = _LINE_WIDTH
    printed = time.monotonic()
    with Progress(
        TextColumn("sampling"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("completions{task.fields[note]}", table_column=Column(no_wrap=True)),
        console=console,
    ) as bar:
        task = bar.add_task("sampling", total=None, note="", visible=False)

        def draw(now: BuildProgress) -> None:
            nonlocal printed
            if not console.is_terminal and time.monotonic() - printed > _SECONDS_BETWEEN_LINES:
                printed = time.monotonic()
                click.echo(
                    f"sampling {now.completions}/{now.completions_wanted} completions{_note(now)}",
                    err=True,
                )
            bar.update(
                task,
                completed=now.completions,
                total=now.completions_wanted,
                note=_note(now),
                visible=True,
            )

        yield _Report(draw)


def _note(now: BuildProgress) -> str:
    parts = [f"{now.prompts_done}/{now.prompts} prompts", f"mean reward {now.mean:.3f}"]
    if now.tokens_here:
        parts.insert(1, f"{now.tokens_per_second:,.0f} tokens/s")
        parts.append(f"{_duration(now.seconds_left)} left")
    if now.queue:
        parts.append(f"{now.queue} wait for the verifier")
    return "".join(f", {part}" for part in parts)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def _tell(table: PassRates, end: BuildProgress, options: Mapping[str, Any]) -> None:
    from basis_rl.passrates.build.cost import cost_lines

    notes = table.provenance.extra
    if notes["verifier_failures"]:
        click.echo(f"the verifier failed (reward 0): {notes['verifier_failures']}", err=True)
    if notes["unverified_rollouts"]:
        click.echo(f"rollouts without a verdict: {notes['unverified_rollouts']}", err=True)
    if len(table) < end.prompts:
        click.echo(f"{end.prompts - len(table)} prompts without a verdict left out", err=True)
    if notes["cut_completions"]:
        share = notes["cut_completions"] / notes["completions"]
        click.echo(f"cut at max_tokens: {notes['cut_completions']} ({share:.1%})", err=True)
    click.echo(f"wrote {options['out']}: {table}, mean reward {table.means.mean():.4f}")
    saved = notes.get("adaptive")
    if saved:
        click.echo(
            f"adaptive: {saved['rollouts']:,} of {saved['fixed_rollouts']:,} rollouts "
            f"({saved['share_saved']:.1%} saved); expected error of a pass rate "
            f"{saved['error']:.4f}, with all {saved['fixed_error']:.4f}"
        )
    for line in cost_lines(end, notes["tokens"], options["training_rollouts"]):
        click.echo(line)
