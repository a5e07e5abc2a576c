"""`basis-rl verl command`: a run of the paper as a shell script."""

from __future__ import annotations

from typing import Any

import click


@click.command(short_help="Print a run of the paper as a shell script.")
@click.option("--model", help="qwen3-4b, qwen2.5-math-7b.")
@click.option("--objective", help="grpo (default), gpg, gspo.")
@click.option(
    "--baseline",
    help="basis-unb (default), basis-vop, basis-rvg, robust, online, vanilla, reinforce++, "
    "reinforce++-verl, grpo-8.",
)
@click.option(
    "--preset",
    help="For basis-unb, -vop, -rvg: paper (default), or Eq. 5 as printed: paper-literal.",
)
@click.option(
    "--study",
    default="section-5.2",
    show_default=True,
    help="section-5.2: policy optimization; section-5.1: value estimation at three checkpoints.",
)
@click.option("--gpus", type=int, default=4, show_default=True, help="GPUs of a machine.")
@click.option("--nodes", type=int, default=1, show_default=True, help="Machines.")
@click.option(
    "--gpu",
    help="gh200 (default), h100, h200, b200, a100-80, a100-40, a6000, l40s, rtx-4090.",
)
@click.option("--gpu-memory", type=float, metavar="GB", help="Memory of a GPU, for any other.")
@click.option("--steps", type=int, help="Training steps, by default the paper's.")
@click.option("--n", type=int, help="Offline rollouts of a prompt, by default the paper's.")
@click.option("--train", metavar="FILE", help="Prompts that `basis-rl verl prepare` has written.")
@click.option("--pass-rates", metavar="FILE", help="Pass rates that there are; none are built.")
@click.option("--out", default="runs", show_default=True, help="Folder of all runs.")
@click.option(
    "--what",
    multiple=True,
    default=["all"],
    show_default=True,
    help="prepare, cache, check, train, evaluate; may be repeated.",
)
def command(**options: Any) -> None:
    """Print a bash script: prompts, pass rates, check, training with verl, evaluation.

    Comments say where the paper has each setting, and what is assumed. Nothing is run:
    `basis-rl verl command --model qwen3-4b > run.sh`, look at it, `bash run.sh`.
    """
    from basis_rl.verl.command import script_of

    click.echo(script_of(options), nl=False)
