"""`basis-rl lab gradient`: the noise of the policy gradient under each baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from basis_rl.cli.build_run import second_stop_ends_at_once, verifier_of
from basis_rl.cli.data_options import data_options, prompts_of
from basis_rl.cli.lab_progress import counted
from basis_rl.cli.output_folder import output_folder
from basis_rl.cli.sampling_options import sampling_options, settings_of
from basis_rl.cli.terminal import printable
from basis_rl.messages import one_line_warnings, quiet_transformers

if TYPE_CHECKING:
    from pathlib import Path

    from basis_rl.lab.gradient.pool import RolloutPool
    from basis_rl.lab.gradient.sample import PoolSettings
    from basis_rl.passrates import PassRates
    from basis_rl.prompts import Prompt

_NUMBERS, _PICTURE = "noise.csv", "noise.png"


@click.command(short_help="Measure the noise of the policy gradient under each baseline.")
@click.argument("model")
@click.option("--revision", help="Revision of a hub model.")
@click.option("--verifier", required=True, help="math, exact, … or module:function.")
@data_options
@sampling_options
@click.option("--prompts", default=128, show_default=True, help="Prompts, chosen at random.")
@click.option("--rollouts", default=16, show_default=True, help="Rollouts of each, with gradients.")
@click.option("--budget", default=64, show_default=True, help="Rollouts of a batch.")
@click.option("--group", default=8, show_default=True, help="Rollouts of a prompt in a group.")
@click.option("--offline", default=32, show_default=True, help="Rollouts for the pass rates.")
@click.option("--pass-rates", metavar="FILE", help="Table of the reference policy, in their place.")
@click.option("--epochs", default=4, show_default=True, help="Earlier epochs to remember.")
@click.option("--estimators", help="Names, separated by commas; by default all that are compared.")
@click.option(
    "--loss",
    type=click.Choice(["sum", "token-mean"]),
    default="sum",
    show_default=True,
    help="A completion's log-probability, or its mean over the tokens (GRPO).",
)
@click.option("--sketch", default=4096, show_default=True, help="Numbers of a gradient's sketch.")
@click.option("--parameters", metavar="REGEX", help="Only parameters with such names.")
@click.option("--draws", default=200, show_default=True, help="Divisions into batches.")
@click.option("--seed", default=0, show_default=True)
@click.option("--dtype", default="float32", show_default=True, help="auto, bfloat16, float32.")
@click.option("--device", help="By default the GPU if there is one.")
@click.option("--verifier-processes", type=int, help="Processes that judge; one a core.")
@click.option("--verifier-limit", type=float, help="Seconds that one answer may take.")
@click.option("--out", default="gradient-noise", show_default=True, help="Folder to write.")
def gradient(**options: Any) -> None:
    """Sample rollouts of MODEL with their gradients, and compare baselines by the noise they leave.

    The same command goes on where a stopped one was. Estimators, budget, group, loss and draws
    may change without sampling again.
    """
    with one_line_warnings(), second_stop_ends_at_once():
        _gradient(options)


def _gradient(options: dict[str, Any]) -> None:
    from basis_rl.drawing import check_matplotlib
    from basis_rl.lab.gradient.batches import check_sizes
    from basis_rl.lab.gradient.rehearsal import rehearse
    from basis_rl.lab.gradient.sample import PoolSettings, choose_prompts
    from basis_rl.passrates import PassRates

    # All that needs no model is looked at before one is loaded.
    check_matplotlib()
    settings = PoolSettings(
        rollouts=options["rollouts"],
        offline=0 if options["pass_rates"] else options["offline"],
        epochs=options["epochs"],
        width=options["sketch"],
        parameters=options["parameters"],
        seed=options["seed"],
    )
    table = None if options["pass_rates"] is None else PassRates.load(options["pass_rates"])
    prompts = choose_prompts(prompts_of(options), options["prompts"], options["seed"])
    budget, group = options["budget"], options["group"]
    check_sizes(len(prompts), options["rollouts"], budget, group)
    rehearse(prompts, settings, _names(options), pass_rates=table, budget=budget, group=group)
    out = output_folder(options["out"], _NUMBERS, _PICTURE)
    pool = _pool(prompts, settings, out, options)
    complete = pool.without_missing()
    if len(complete.keys) < len(pool.keys):
        missing = len(pool.keys) - len(complete.keys)
        click.echo(f"{missing} prompts with rollouts without a verdict left out", err=True)
        check_sizes(len(complete.keys), options["rollouts"], budget, group)
    _compare(complete, table, out, options)


def _names(options: Mapping[str, Any]) -> list[str] | None:
    names = options["estimators"]
    return None if names is None else [name.strip() for name in names.split(",")]


def _pool(
    prompts: list[Prompt], settings: PoolSettings, out: Path, options: Mapping[str, Any]
) -> RolloutPool:
    from basis_rl.lab.gradient.pool import PoolFolder
    from basis_rl.lab.gradient.sample import cost_of, sample_pool
    from basis_rl.lab.gradient.scores import PolicyEngine, check_sampling
    from basis_rl.rollouts.loading import check_dtype, check_packages

    sampling = settings_of(options)
    check_sampling(sampling)
    check_dtype(options["dtype"])
    wanted = {name: options[name] for name in ("model", "revision", "verifier", "dtype")}
    wanted |= {name: getattr(sampling, name) for name in ("temperature", "max_tokens")}
    wanted |= {"stop": list(sampling.stop), **asdict(settings)}
    folder = PoolFolder(out / "rollouts", prompts, wanted)
    if folder.done == len(prompts):
        return folder.read()
    if folder.done:
        click.echo(
            f"going on: {folder.done} of {len(prompts)} prompts are in {folder.path}", err=True
        )
    check_packages()
    verifier = verifier_of(options["verifier"], options["answer_column"], options)
    click.echo(f"{cost_of(len(prompts), settings)}; loading {options['model']}", err=True)
    try:
        with quiet_transformers():
            engine = PolicyEngine.open(
                options["model"],
                revision=options["revision"],
                dtype=options["dtype"],
                device=options["device"],
            )
            assert isinstance(engine, PolicyEngine)
            kept = f"what is in {folder.path} stays, and the same command goes on"
            with counted("sampling", "prompts", stopped=kept) as progress:
                return sample_pool(folder, engine, verifier, settings, sampling, progress=progress)
    finally:
        verifier.close()


def _compare(
    pool: RolloutPool, table: PassRates | None, out: Path, options: Mapping[str, Any]
) -> None:
    from basis_rl.drawing import picture
    from basis_rl.files import write_atomically
    from basis_rl.lab.gradient.advantages import advantages_of
    from basis_rl.lab.gradient.noise import noise_of
    from basis_rl.lab.gradient.picture import noise_figure
    from basis_rl.lab.gradient.products import products_of
    from basis_rl.lab.gradient.table import about, csv_text, lines

    advantages = advantages_of(
        pool,
        _names(options),
        pass_rates=table,
        batch_size=options["budget"],
        loss=options["loss"],
        seed=options["seed"],
    )
    with counted("comparing", "draws", stopped="the rollouts stay") as progress:
        products, reference = products_of(
            advantages,
            pool.gram(options["loss"]),
            pool.rewards,
            budget=options["budget"],
            group=options["group"],
            count=options["draws"],
            seed=options["seed"],
            known_slopes=options["loss"] == "sum",
            progress=progress,
        )
    noise = noise_of(products, reference, seed=options["seed"])
    for line in about(pool, options["loss"]):
        click.echo(line)
    click.echo(printable("\n".join(lines(noise))))
    write_atomically(out / _NUMBERS, csv_text(noise).encode())
    write_atomically(out / _PICTURE, picture(noise_figure(noise)))
    click.echo(f"wrote {out / _NUMBERS}, {out / _PICTURE}")
