"""Ten runs that are set up wrongly, and verl's trainer as far as it needs neither Ray nor a model.

As a program: reads a JSON list of overrides per run from its input, starts the stock `main_ppo`
with each, and prints what stopped it and whether it would have started Ray.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assets import Assets, addition_rows, table_of, write_rows

BASIS = "algorithm.basis"
LIB = "actor_rollout_ref.model.external_lib"


@dataclass(frozen=True)
class Setup:
    """A wrong run: its overrides and files, and what the one line must say.

    ``by_settings``: no file is needed to tell, so that the command itself stops, before Ray starts.
    """

    name: str
    overrides: Callable[[Path, Assets], list[str]]
    says: str
    by_settings: bool = False
    version: str | None = None


def _missing(folder: Path, assets: Assets) -> list[str]:
    return [f"{BASIS}.pass_rates={folder / 'missing.parquet'}"]


def _tenth(folder: Path, assets: Assets) -> list[str]:
    rows = addition_rows(60, "train")
    table = folder / "tenth.parquet"
    table_of([row["prompt_id"] for row in rows[:6]], model=str(assets.model)).save(table)
    train = write_rows(folder / "sixty.parquet", rows)
    return [f"{BASIS}.pass_rates={table}", f"data.train_files={train}"]


def _other_data(folder: Path, assets: Assets) -> list[str]:
    table = folder / "other.parquet"
    keys = [row["prompt_id"] for row in addition_rows(64, "other")]
    table_of(keys, model=str(assets.model)).save(table)
    return [f"{BASIS}.pass_rates={table}"]


def _cut(folder: Path, assets: Assets) -> list[str]:
    file = folder / "cut.parquet"
    whole = assets.pass_rates.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    return [f"{BASIS}.pass_rates={file}"]


def _always(*overrides: str) -> Callable[[Path, Assets], list[str]]:
    return lambda folder, assets: list(overrides)


SETUPS = [
    Setup("missing table", _missing, r"pass_rates: no file .*missing.parquet.*cache build"),
    Setup(
        "wrong key column",
        _always(f"{BASIS}.prompt_key_column=promptid"),
        r"prompt_key_column is 'promptid', and the training data have the columns prompt_id,",
    ),
    Setup("coverage 10%", _tenth, r"know 10.0% of the training prompts.*basis-rl cache build"),
    Setup(
        "other temperature",
        _always("actor_rollout_ref.rollout.temperature=0.6"),
        r"temperature is 1.0 in the pass rates and 0.6.*give .*rollout.temperature=1.0",
    ),
    Setup(
        "plug-in in the wrong process",
        _always(f"{LIB}=null", "critic.model.external_lib=basis_rl.verl"),
        rf"nothing imports it where verl's trainer runs.*add {LIB}=basis_rl.verl",
        by_settings=True,
    ),
    Setup(
        "stock estimator, n=1",
        _always("~algorithm.basis", "algorithm.adv_estimator=grpo"),
        r"verl's grpo has baseline 0 then: give algorithm.adv_estimator=basis",
        by_settings=True,
    ),
    Setup(
        "unknown option",
        _always(f"{BASIS}.smoothin=none"),
        r"algorithm.basis.smoothin is neither.*did you mean 'smoothing'",
        by_settings=True,
    ),
    Setup("other data set", _other_data, r"are of other prompts.*'train-00000'.*'other-00000'"),
    Setup("table cut short", _cut, r"pass_rates: .*cut.parquet is cut short.*build"),
    Setup(
        "old verl",
        _always(),
        r"verl 0.8.0 is installed.*pip install",
        by_settings=True,
        version="0.8.0",
    ),
]


def right(assets: Assets) -> dict[str, str]:
    """Overrides of a run that is set up rightly, by key."""
    lines = [
        "algorithm.adv_estimator=basis",
        f"+{BASIS}.pass_rates={assets.pass_rates}",
        f"+{BASIS}.prompt_key_column=prompt_id",
        f"{LIB}=basis_rl.verl",
    ]
    return {line.split("=")[0].lstrip("+~"): line for line in lines}


def changes(setup: Setup, folder: Path, assets: Assets) -> list[str]:
    """Overrides of the right run as the set-up changes them."""
    folder.mkdir(parents=True, exist_ok=True)
    given = right(assets)
    for override in setup.overrides(folder, assets):
        if override == f"~{BASIS}":
            given = {key: line for key, line in given.items() if not key.startswith(BASIS)}
            continue
        key = override.split("=")[0]
        given[key] = ("+" if key.startswith(BASIS) else "") + override
    return list(given.values())


def old_verl(folder: Path, version: str) -> Path:
    """Folder that, on the import path, makes a version of verl the one that is installed."""
    metadata = folder / f"verl-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True, exist_ok=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: verl\nVersion: {version}\n")
    return folder


class ReadyError(Exception):
    """The trainer was made, its data were read, and nothing stopped it."""


def main() -> None:
    """Start the stock trainer with each list of overrides."""
    from hydra import compose, initialize_config_dir
    from verl.trainer import main_ppo

    from basis_rl.verl.compose import verl_folder

    started: list[Any] = []

    def run_ppo(config: Any, task_runner_class: Any) -> None:
        started.append(config)
        _without_ray(config)

    main_ppo.run_ppo = run_ppo
    for overrides in json.load(sys.stdin):
        with initialize_config_dir(str(verl_folder() / "trainer" / "config"), version_base=None):
            config = compose("ppo_trainer", overrides=overrides)
        started.clear()
        stopped = None
        try:
            main_ppo.main.__wrapped__(config)
        except Exception as error:
            stopped = [type(error).__name__, str(error)]
        print("STOPPED " + json.dumps([stopped, bool(started)]), flush=True)


def _without_ray(config: Any) -> None:
    """The first steps of verl's `TaskRunnerV1.run`, and of its trainer's `init`."""
    from verl.trainer.ppo.v1 import get_trainer_cls

    trainer = get_trainer_cls(config.trainer.v1.trainer_mode)(config=config)
    trainer._init_tokenizer()
    trainer._init_dataloader()
    raise ReadyError("ready")


if __name__ == "__main__":
    main()
