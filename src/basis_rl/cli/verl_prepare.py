"""`basis-rl verl prepare`: a data set as verl's Parquet files, with the reward function wired."""

from __future__ import annotations

import os
import re
import shlex
import warnings
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from basis_rl.cli.data_options import prompts_of, row_options
from basis_rl.messages import one_line_warnings

if TYPE_CHECKING:
    from basis_rl.prompts import Prompt
    from basis_rl.verl.prepare import Prepared

VALIDATION = "validation"


@click.command(short_help="Make verl's Parquet files of a data set.")
@click.argument("data")
@click.option("--out", required=True, help="Folder for the Parquet files.")
@click.option("--verifier", required=True, help="math, exact, … or module:function; the reward.")
@click.option("--name", default="train", show_default=True, help="File's name, without .parquet.")
@row_options
@click.option("--data-source", help="verl's data_source; by default the data set's own name.")
@click.option("--validation", metavar="DATA", help="Data set of validation.parquet.")
@click.option("--validation-split", default="test", show_default=True, help="Of a hub data set.")
@click.option(
    "--validation-fraction",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Share of DATA for validation.parquet.",
)
@click.option("--seed", default=0, show_default=True, help="Of the choice of this share.")
@click.option("--verifier-limit", type=float, help="Seconds that one answer may take.")
def prepare(data: str, **options: Any) -> None:
    """Make FOLDER/train.parquet of DATA: a file, reasoning-gym:<task>, or a hub id.

    Each prompt once, as chat messages, with a stable id (prompt_id), the answer, and what else the
    verifier reads. The overrides that verl needs are printed.
    """
    options["name"] = options["name"].removesuffix(".parquet")
    if options["validation"] and options["validation_fraction"]:
        raise click.UsageError("--validation and --validation-fraction are both given: choose one")
    if options["name"] == VALIDATION and (options["validation"] or options["validation_fraction"]):
        raise click.UsageError(f"--name {VALIDATION} is the name of the other file: choose another")
    if re.search(r"[/\\]|^\.*$", options["name"]):
        raise click.UsageError(f"--name {options['name']}: give a file's name without its folder")
    with one_line_warnings():
        _prepare({"data": data, **options})


def _prepare(options: dict[str, Any]) -> None:
    from basis_rl.cli.output_folder import output_folder
    from basis_rl.files import write_atomically
    from basis_rl.verl.prepare import parquet

    with_validation = bool(options["validation"] or options["validation_fraction"])
    names = [options["name"], *([VALIDATION] if with_validation else [])]
    folder = output_folder(options["out"], *(f"{name}.parquet" for name in names))
    parts = _parts(options)
    prepared = [_rows(name, options, p) for name, p in zip(names, parts, strict=True)]
    contents = [parquet(part.rows) for part in prepared]  # all of them before any is written
    for name, part, content in zip(names, prepared, contents, strict=True):
        write_atomically(folder / f"{name}.parquet", content)
        left_out = ""
        if part.without_answer:
            left_out = f"; {part.without_answer} without an answer to compare with left out"
        click.echo(f"wrote {folder / name}.parquet: {len(part.rows)} prompts{left_out}")
    click.echo(_next([folder / f"{name}.parquet" for name in names], options))


def _parts(options: dict[str, Any]) -> list[list[Prompt]]:
    """Training and, if wanted, validation prompts."""
    # verl applies the model's chat template to every prompt.
    chats = {**options, "chat": True if options["chat"] is None else options["chat"]}
    prompts = _loaded(chats)
    if options["validation_fraction"]:
        from basis_rl.verl.prepare import split_off

        return list(split_off(prompts, options["validation_fraction"], seed=options["seed"]))
    if not options["validation"]:
        return [prompts]
    other = {"data": options["validation"], "split": options["validation_split"], "limit": None}
    validation = _loaded({**chats, **other})
    shared = {prompt.key for prompt in prompts} & {prompt.key for prompt in validation}
    if shared:
        warnings.warn(
            f"{len(shared)} of the {len(validation)} validation prompts are training prompts too",
            stacklevel=1,
        )
    return [prompts, validation]


def _loaded(options: dict[str, Any]) -> list[Prompt]:
    from basis_rl.prompts import Repeats

    repeats = Repeats()
    prompts = prompts_of(options, repeats=repeats)
    click.echo(f"{options['data']}: {repeats.read} rows read, {repeats.repeated} repeats left out")
    repeats.repeated = 0  # said
    repeats.warn(options["data"])
    return prompts


def _rows(name: str, options: dict[str, Any], prompts: Sequence[Prompt]) -> Prepared:
    from basis_rl.cli.build_run import verifier_of
    from basis_rl.cli.lab_progress import counted
    from basis_rl.verl.prepare import prepare as prepare_rows

    is_validation = name == VALIDATION
    data = options["validation"] if is_validation and options["validation"] else options["data"]
    verifier = verifier_of(
        options["verifier"], options["answer_column"], {"verifier_processes": 1, **options}
    )
    with closing(verifier), counted("trying answers", "prompts") as show:
        return prepare_rows(
            prompts,
            verifier,
            data_source=options["data_source"] or data_name(data),
            split=name,
            answer_column=options["answer_column"],
            done=lambda number: show(number, len(prompts)),
        )


def data_name(data: str) -> str:
    """Name of a data set: a hub id, a generator's task, or a file's name without its endings."""
    from basis_rl.prompts import files, generated

    if data.startswith(generated.PREFIX):
        return generated.parse(data)[0]
    return Path(data).name.partition(".")[0] if files.is_file_name(data) else data


def _next(paths: Sequence[Path], options: dict[str, Any]) -> str:
    """Overrides of verl, and the command that builds pass rates, to paste."""
    from basis_rl.verifiers.verl_names import KWARGS, overrides

    given = [f"data.train_files={_for_hydra(paths[0])}", f"data.val_files={_for_hydra(paths[-1])}"]
    if len(paths) == 1:
        given.append("trainer.val_before_train=False")  # there is nothing to validate on
    given += overrides(options["verifier"])
    if options["verifier_limit"] is not None:
        given.append(f"+{KWARGS}.limit_s={options['verifier_limit']:g}")
    if options["key_column"] is not None:
        given.append("+algorithm.basis.prompt_key_column=prompt_id")
    keyed = " --key-column prompt_id" if options["key_column"] is not None else ""
    build = (
        f"basis-rl cache build --data {shlex.quote(str(paths[0]))} --verifier "
        f"{shlex.quote(options['verifier'])}{keyed} --model MODEL --out pass-rates.parquet"
    )
    lines = " \\\n".join(f"    {shlex.quote(override)}" for override in given)
    return f"verl's overrides:\n{lines}\npass rates:\n    {build}"


def _for_hydra(path: Path) -> str:
    """An absolute path, since verl's workers may have another current folder; quoted for hydra."""
    text = os.path.abspath(path)
    if re.fullmatch(r"[\w./+-]+", text, re.ASCII):
        return text
    # A backslash is one of hydra's before a quote alone; ${ would be a reference.
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", text).replace("${", "\\${")
    return f"'{escaped}'"
