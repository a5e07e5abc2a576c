r"""Early, middle and late checkpoints of the quickstart's model, and a record of each.

    python benchmarks/quickstart_stages.py runs/quickstart-stages

Trains the demo's model with BASIS as `basis-rl demo` does, keeping three checkpoints, and samples
many rollouts of training prompts under each. Stopped at any moment, the same command goes on. Then

    basis-rl lab figures runs/quickstart-stages/early.parquet \
      runs/quickstart-stages/middle.parquet runs/quickstart-stages/late.parquet
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from basis_rl.demo import smollm2, tasks
from basis_rl.demo.policy import SAMPLING, Policy
from basis_rl.demo.settings import DEFAULT_TASKS, DemoSettings
from basis_rl.demo.training import METHODS, configuration
from basis_rl.files import write_atomically
from basis_rl.lab.oracle import sample_record
from basis_rl.messages import one_line_warnings, quiet_transformers
from basis_rl.passrates import PassRates
from basis_rl.passrates.build import build_cache
from basis_rl.prompts import Prompt
from basis_rl.train import checkpoints
from basis_rl.verifiers import NamedVerifier, create, trl_reward

NAMES = ("early", "middle", "late")


def stage_steps(steps: int) -> dict[str, int]:
    """Training step of each checkpoint: a sixth of the run, half of it, its end."""
    return dict(zip(NAMES, (steps // 6, steps // 2, steps), strict=True))


def training_of(folder: Path, args: argparse.Namespace) -> tuple[Any, Any]:
    """What a folder's checkpoints were trained with, written down by its first run; and now."""
    path, now = folder / "training.json", {"steps": args.steps, "seed": args.seed}
    if not path.exists():
        write_atomically(path, json.dumps(now).encode())
    return json.loads(path.read_text()), now


def start_model(folder: Path) -> Policy:
    """Untrained policy, converted once."""
    converted = folder / "converted"
    if not converted.exists():
        smollm2.convert(smollm2.find_weights(), converted)
    return Policy(f"{smollm2.NAME} ({smollm2.PACKAGE} {smollm2.VERSION})", str(converted))


def initial_table(
    policy: Policy,
    prompts: list[Prompt],
    verifier: NamedVerifier,
    path: Path,
    *,
    rollouts: int,
    seed: int,
) -> PassRates:
    """Pass rates of the untrained policy."""
    with Timed(f"{path.name}: {len(prompts)} prompts, {rollouts} rollouts", rollouts, prompts):
        return build_cache(
            prompts,
            policy.engine(),
            verifier,
            path,
            n=rollouts,
            settings=SAMPLING,
            seed=seed,
            extend=path.exists(),
        )


def train(
    policy: Policy,
    prompts: list[Prompt],
    table: PassRates,
    verifier: NamedVerifier,
    settings: DemoSettings,
    folder: Path,
) -> None:
    """Train as the demo does, and keep the weights of the three steps."""
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback

    from basis_rl.trl import BasisTrainer

    wanted = {step: name for name, step in stage_steps(settings.steps).items()}
    if all((folder / name).exists() for name in NAMES):
        return

    class Keep(TrainerCallback):
        """Shows the rewards, and copies weights out of checkpoints, so that older ones may go."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if logs and "reward" in logs:
                print(f"  step {state.global_step}: reward {float(logs['reward']):.3f}", flush=True)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            name = wanted.get(state.global_step)
            if name is not None:
                weights = Path(args.output_dir) / f"checkpoint-{state.global_step}"
                keep_weights(weights, folder / name)

    arguments = configuration(METHODS["basis"], settings, folder / "training")
    arguments.save_strategy, arguments.save_steps = "steps", stage_steps(settings.steps)["early"]
    arguments.save_total_limit = 1
    model, tokenizer = policy.for_training()
    found = checkpoints.find(folder / "training")
    trainer = BasisTrainer(
        model,
        trl_reward(verifier),
        arguments,
        Dataset.from_list([prompt.columns for prompt in prompts]),
        processing_class=tokenizer,
        pass_rates=table,
        callbacks=[Keep()],
    )
    trainer.remove_callback(PrinterCallback)
    with Timed(f"training: {settings.steps} steps"):
        trainer.train(resume_from_checkpoint=str(found.newest) if found.newest else None)
    shutil.rmtree(folder / "training", ignore_errors=True)


def keep_weights(checkpoint: Path, target: Path) -> None:
    """Copy model and tokenizer out of a checkpoint; all of it or nothing."""
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    state = shutil.ignore_patterns("optimizer.pt", "scheduler.pt", "rng_state*", "*_state.*")
    shutil.copytree(checkpoint, temporary, ignore=state)
    shutil.rmtree(target, ignore_errors=True)
    os.replace(temporary, target)


class Timed:
    """Prints what is done and how long it took."""

    def __init__(self, what: str, rollouts: int = 0, prompts: list[Prompt] | None = None) -> None:
        self.what, self.completions = what, rollouts * len(prompts or [])

    def __enter__(self) -> None:
        print(self.what, flush=True)
        self.start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        seconds = time.perf_counter() - self.start
        rate = f", {self.completions / seconds:.0f} completions/s" if self.completions else ""
        print(f"  {seconds:.0f} s{rate}", flush=True)


def main() -> None:
    """Train, then record the three checkpoints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=DemoSettings.steps)
    parser.add_argument("--prompts", type=int, default=128, help="Prompts in the records.")
    parser.add_argument("--oracle", type=int, default=256)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--cache", type=int, default=64, help="Rollouts for the pass rates.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    if args.steps < 6 or args.steps % 6:
        parser.error(f"--steps is {args.steps}: use a multiple of 6")
    args.folder.mkdir(parents=True, exist_ok=True)
    before, now = training_of(args.folder, args)
    if before != now:
        parser.error(f"{args.folder} holds a run with {before}, and this is {now}: name another")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with quiet_transformers(), one_line_warnings():
        _run(args)


def _run(args: Any) -> None:
    import torch

    folder: Path = args.folder
    settings = DemoSettings(
        folder / "unused", steps=args.steps, seed=args.seed, threads=args.threads
    )
    torch.set_num_threads(settings.processor_threads)
    verifier = create("exact")
    parts = tasks.split(DEFAULT_TASKS, train=settings.train, test=settings.test, seed=args.seed)
    prompts = parts["train"]
    policy = start_model(folder)
    chosen = prompts[: args.prompts]
    trained_with = initial_table(
        policy,
        prompts,
        verifier,
        folder / "training-rates.parquet",
        rollouts=settings.reference_rollouts,
        seed=args.seed,
    )
    train(policy, prompts, trained_with, verifier, settings, folder)
    table = initial_table(
        policy,
        chosen,
        verifier,
        folder / "pass-rates.parquet",
        rollouts=args.cache,
        seed=args.seed,
    )
    record_stages(policy, chosen, table, verifier, args)


def record_stages(
    policy: Policy,
    prompts: list[Prompt],
    table: PassRates,
    verifier: NamedVerifier,
    args: argparse.Namespace,
) -> None:
    """Sample and write the three records."""
    folder: Path = args.folder
    for name, step in stage_steps(args.steps).items():
        count = args.oracle + args.rollouts
        with Timed(
            f"{name} (step {step}): {len(prompts)} prompts, {count} rollouts", count, prompts
        ):
            record = sample_record(
                prompts,
                policy.engine(folder / name),
                verifier,
                folder / f"{name}.parquet",
                oracle=args.oracle,
                rollouts=args.rollouts,
                settings=SAMPLING,
                seed=args.seed + 1,
                step=step,
                pass_rates=table,
            )
        print(f"  mean reward {record.rewards.mean():.3f}: {folder / f'{name}.parquet'}")


if __name__ == "__main__":
    main()
