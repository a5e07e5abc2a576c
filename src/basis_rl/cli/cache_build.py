"""`basis-rl cache build`: sample a model's rollouts and store the pass rates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

from basis_rl.errors import ConfigError
from basis_rl.messages import one_line_warnings, quiet_transformers


@click.command(short_help="Sample a model's rollouts and store the pass rates.")
@click.option("--model", required=True, help="Reference policy: a folder or a hub id.")
@click.option("--revision", help="Revision of a hub model.")
@click.option(
    "--data", required=True, help="Prompts: .jsonl, .json, .parquet, reasoning-gym:<task>, hub id."
)
@click.option("--out", required=True, help="Parquet file to write.")
@click.option("--n", default=8, show_default=True, help="Rollouts of each prompt.")
@click.option("--verifier", required=True, help="math, exact, reasoning-gym or module:function.")
@click.option("--split", default="train", show_default=True, help="Split of a hub data set.")
@click.option("--prompt-column", default="prompt", show_default=True)
@click.option("--answer-column", default="answer", show_default=True)
@click.option("--key-column", help="Column with prompt keys; without it, a hash of the content.")
@click.option("--source-column", help="Column with each prompt's data set or task.")
@click.option(
    "--template",
    help=r'Prompt text with columns, e.g. "Q: {question}\nA:"; \n is a line end, {{ is a brace.',
)
@click.option("--system", help="System message; makes text prompts chats.")
@click.option(
    "--chat/--no-chat", default=None, help="Text prompts as user messages, or as they are."
)
@click.option(
    "--where",
    multiple=True,
    metavar="COLUMN=YAML",
    help="Keep rows with this value or one of these, e.g. 'level=[Level 4, Level 5]'.",
)
@click.option("--temperature", default=1.0, show_default=True)
@click.option("--top-p", default=1.0, show_default=True)
@click.option("--top-k", default=0, show_default=True, help="0 keeps all tokens.")
@click.option("--max-tokens", default=256, show_default=True, help="Longest completion.")
@click.option("--stop", multiple=True, help=r"Text that ends a completion; \n is a line end.")
@click.option("--seed", default=0, show_default=True)
@click.option("--batch-size", default=16, show_default=True, help="Prompts sampled at a time.")
@click.option("--limit", type=int, help="Only so many prompts.")
@click.option(
    "--dtype", default="auto", show_default=True, help="auto, bfloat16, float16, float32."
)
def build(**options: Any) -> None:
    """Sample rollouts of every prompt, verify them, and write the pass rates.

    The same command goes on where a stopped one was; its journal stands beside the output.
    """
    with one_line_warnings():
        _build(options)


def _build(options: dict[str, Any]) -> None:
    from basis_rl import verifiers
    from basis_rl.passrates.build_settings import (
        Policy,
        build_settings,
        check_build,
        finished_table,
    )
    from basis_rl.prompts import load_prompts
    from basis_rl.rollouts import SamplingSettings
    from basis_rl.rollouts.transformers_sampler import TransformersSampler, check_dtype

    # All that needs no model is looked at before one is loaded.
    out, n, batch_size = options["out"], options["n"], options["batch_size"]
    check_dtype(options["dtype"])
    verifier = verifiers.create(options["verifier"], answer_column=options["answer_column"])
    settings = SamplingSettings(
        temperature=options["temperature"],
        top_p=options["top_p"],
        top_k=options["top_k"],
        max_tokens=options["max_tokens"],
        stop=tuple(unescaped(text) for text in options["stop"]),
    )
    template = options["template"]
    prompts = load_prompts(
        options["data"],
        split=options["split"],
        prompt_column=options["prompt_column"],
        key_column=options["key_column"],
        source_column=options["source_column"],
        limit=options["limit"],
        template=None if template is None else unescaped(template),
        system=options["system"],
        chat=options["chat"],
        where=wanted_rows(options["where"]),
        answer_column=options["answer_column"],
    )
    check_build(prompts, verifier, out, n=n, batch_size=batch_size)
    dtype = None if options["dtype"] == "auto" else options["dtype"]
    policy = Policy(options["model"], options["revision"], dtype)
    wanted = build_settings(
        prompts, policy, verifier, settings, n=n, seed=options["seed"], batch_size=batch_size
    )
    finished = finished_table(out, wanted, any_dtype=dtype is None)
    if finished is not None:
        click.echo(f"{out} is there already; nothing to do: {finished}")
        return
    click.echo(f"{len(prompts)} prompts; loading {options['model']}", err=True)
    with quiet_transformers():
        sampler = TransformersSampler.from_pretrained(
            options["model"], revision=options["revision"], dtype=options["dtype"]
        )
        _sample(prompts, sampler, verifier, settings, options)


def _sample(
    prompts: Any, sampler: Any, verifier: Any, settings: Any, options: dict[str, Any]
) -> None:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from basis_rl.passrates.builder import build_cache

    with Progress(
        TextColumn("sampling"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("prompts, mean reward {task.fields[mean]:.3f}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    ) as bar:
        task = bar.add_task("sampling", total=len(prompts), mean=float("nan"))
        table = build_cache(
            prompts,
            sampler,
            verifier,
            options["out"],
            n=options["n"],
            settings=settings,
            seed=options["seed"],
            batch_size=options["batch_size"],
            progress=lambda done, _, mean: bar.update(task, completed=done, mean=mean),
            extra={"data": options["data"]},
        )
    notes = table.provenance.extra
    if notes["verifier_failures"]:
        click.echo(f"the verifier failed (reward 0): {notes['verifier_failures']}", err=True)
    if len(table) < len(prompts):
        click.echo(f"{len(prompts) - len(table)} prompts without a verdict left out", err=True)
    click.echo(f"wrote {options['out']}: {table}, mean reward {table.means.mean():.4f}")


def wanted_rows(conditions: Sequence[str]) -> dict[str, Any]:
    """Conditions ``column=value`` or ``column=[value, value]`` as a dict.

    Raises
    ------
    ConfigError
        If one has another form.
    """
    from basis_rl.train.document import parse_yaml

    wanted: dict[str, Any] = {}
    for condition in conditions:
        column, equals, value = condition.partition("=")
        if not equals or not column.strip():
            raise ConfigError(f"--where {condition}: write it as column=value")
        wanted[column.strip()] = parse_yaml(value, where=f"--where {condition}")
    return wanted


def unescaped(text: str) -> str:
    r"""Text in which ``\n`` stands for a line end and ``\\n`` for these two characters.

    Nothing else is an escape: ``\text`` stays as it is, and ``\neq`` is typed ``\\neq``.
    """
    return re.sub(r"\\(\\?)n", lambda match: "\\n" if match[1] else "\n", text)
