"""What the commands that sample a cache share: their options, and the report at the end."""

from __future__ import annotations

import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
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


def check_out(out: str) -> None:
    """Refuse an output that is not named like a Parquet file.

    Raises
    ------
    ConfigError
    """
    if not out.lower().endswith(".parquet"):
        name = Path(out).stem or "pass-rates"
        raise ConfigError(f"--out {out}: a table is a Parquet file; name it like {name}.parquet")


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
    from basis_rl.cli.build_progress import shown_progress
    from basis_rl.passrates.build import build_cache, journal_path
    from basis_rl.passrates.build.shards import of_shard

    out = asked["out"]
    with ExitStack() as stack:
        stack.enter_context(second_stop_ends_at_once())
        stack.callback(verifier.close)
        stack.callback(engine.close)
        doing = "judging" if build.get("reverify") else "sampling"
        report = stack.enter_context(shown_progress(doing))
        engine.announce = lambda: _announce(stack, engine, report.last)
        table = build_cache(prompts, engine, verifier, out, progress=report, **build)
    if asked["discard_completions"]:
        journal_path(out).unlink(missing_ok=True)
    if report.last is None:
        since = _extended_since(table, len(of_shard(prompts, build["shard"])), build["n"])
        click.echo(f"{out} is there already{since}; nothing to do: {table}")
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


def _announce(stack: ExitStack, engine: LaterEngine, now: BuildProgress | None) -> None:
    prompts = f"{now.prompts} prompts; " if now else ""
    click.echo(f"{prompts}loading {engine.model}", err=True)
    if engine.name == "transformers":
        from basis_rl.messages import quiet_transformers

        stack.enter_context(quiet_transformers())


def _extended_since(table: PassRates, prompts: int, n: int) -> str:
    """What a finished table has beyond what was asked for."""
    entries = table.provenance.extra["build"]
    if (entries["prompts"], entries["n"]) == (prompts, n):
        return ""
    data = table.provenance.extra.get("data")
    return f", extended since ({f'data {data}, ' if data else ''}n {entries['n']})"


def _failures(notes: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """One line on the verifier's failures, and what to do."""
    from basis_rl.passrates.build import journal_path
    from basis_rl.verifiers.limits import TIME_OUT

    causes, completions = notes["verifier_failures"], notes["completions"]
    failed = sum(causes.values())
    listed = ", ".join(f"{count} {cause}" for cause, count in causes.items())
    line = (
        f"warning: the verifier failed on {failed} of {completions} completions "
        f"({failed / completions:.1%}, reward 0): {listed}"
    )
    if options["discard_completions"]:
        return line
    out = options["out"]
    if TIME_OUT in causes:
        line += (
            "; give it longer with `basis-rl cache extend "
            f"{shlex.quote(str(out))} --reverify --verifier-limit SECONDS`"
        )
    journal = shlex.quote(str(journal_path(out)))
    return f"{line}; look at them: zcat {journal} | grep '\"failures\":'"


def _tell(table: PassRates, end: BuildProgress, options: Mapping[str, Any]) -> None:
    from basis_rl.passrates.build.cost import cost_lines

    notes = table.provenance.extra
    if notes["verifier_failures"]:
        click.echo(_failures(notes, options), err=True)
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
