"""What `basis-rl verl command` prints is a configuration of verl, with the paper's values."""

from __future__ import annotations

import copy
import functools
import itertools
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from assets import Assets
from jobs import base_overrides, json_lines, name, run_job
from script_calls import run_script

from basis_rl.errors import ConfigError
from basis_rl.verl.command.files import runs
from basis_rl.verl.command.settings import METRICS_FILE, Choice, overrides
from basis_rl.verl.compose import compose
from basis_rl.verl.options import Config
from basis_rl.verl.paper.baselines import BASELINES
from basis_rl.verl.paper.data import GREEDY, SAMPLED
from basis_rl.verl.paper.models import MODELS
from basis_rl.verl.paper.objectives import OBJECTIVES
from basis_rl.verl.settings import check_settings, uses_basis

COMBINATIONS = list(itertools.product(MODELS, OBJECTIVES, BASELINES))
RECIPES = Path(__file__).parents[2] / "recipes"
TRAINED = [*runs(), "section-5.1/grpo-math.sh"]
# One GPU, several machines, and each way to offload.
MACHINES = [
    {"gpus": 1, "gpu": "h100"},
    {"gpus": 4, "gpu": "rtx-4090"},
    {"gpus": 4, "gpu": "a100-40"},
    {"gpus": 8, "nodes": 4, "gpu": "a100-80"},
]
STOCK = {"grpo-8", "reinforce++-verl"}
RESPONSE = {"qwen3-4b": 4096, "qwen2.5-math-7b": 2048}


@pytest.fixture(scope="module", autouse=True)
def files_are_parsed_once() -> Iterator[None]:
    """A third of the time to compose is spent on reading the same files of verl again."""
    from omegaconf import OmegaConf

    read, seen = OmegaConf.load, {}

    def load(file: Any) -> Any:
        place = getattr(file, "name", file)
        if place not in seen:
            seen[place] = read(file)
        return copy.deepcopy(seen[place])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OmegaConf, "load", load)
        yield


@functools.cache
def composed(choice: Choice) -> Config:
    """A run's configuration."""
    return compose(overrides(choice))


@pytest.mark.parametrize("names", COMBINATIONS, ids="-".join)
def test_every_combination_composes_to_the_papers_values(names: tuple[str, str, str]) -> None:
    model, objective, baseline = names
    config = composed(Choice(*names))
    data, parts = config["data"], config["actor_rollout_ref"]
    actor, rollout = parts["actor"], parts["rollout"]

    group = baseline == "grpo-8"
    assert (data["train_batch_size"], actor["ppo_mini_batch_size"], rollout["n"]) == (
        (64, 32, 8) if group else (512, 256, 1)
    )
    assert actor["ppo_epochs"] == 1
    assert actor["optim"]["lr"] == 1e-6
    assert (rollout["temperature"], rollout["top_p"], rollout["top_k"]) == (1.0, 1.0, -1)
    assert not actor["use_kl_loss"]
    assert not config["algorithm"]["use_kl_in_reward"]
    assert data["max_prompt_length"] == 1024
    assert data["max_response_length"] == rollout["response_length"] == RESPONSE[model]
    steps = 150 if baseline.startswith("basis-") or baseline in ("robust", "online") else 300
    assert config["trainer"]["total_training_steps"] == steps
    assert config["trainer"]["n_gpus_per_node"] == 4

    clips = {"gspo": (3e-4, 4e-4)}.get(objective, (0.2, 0.2))
    assert (actor["clip_ratio_low"], actor["clip_ratio_high"]) == clips
    modes = {"grpo": "vanilla", "gpg": "gpg", "gspo": "gspo"}
    assert actor["policy_loss"]["loss_mode"] == modes[objective]

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing to warn of either
        options = check_settings(config)
    assert uses_basis(config) == (baseline not in STOCK)
    estimators = {"grpo-8": "gpg" if objective == "gpg" else "grpo", "vanilla": "zero"}
    estimators |= {"reinforce++": "batch-mean", "online": "basis-online"}
    estimators["reinforce++-verl"] = "reinforce_plus_plus"
    assert options.estimator == estimators.get(baseline, "basis")
    if baseline.startswith("basis-"):
        assert options.estimator_options == {
            "preset": "paper",
            "variant": baseline.removeprefix("basis-"),
            "epsilon": 1e-6,
        }


@pytest.mark.parametrize("names", [COMBINATIONS[0], COMBINATIONS[-1]], ids="-".join)
@pytest.mark.parametrize("machines", MACHINES, ids=str)
def test_every_size_is_one_that_verl_takes(
    names: tuple[str, str, str], machines: dict[str, Any]
) -> None:
    from omegaconf import OmegaConf
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    config = OmegaConf.create(dict(compose(overrides(Choice(*names, **machines)))))
    validate_config(config, use_reference_policy=False, use_critic=False)
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    assert actor.engine.strategy == actor.strategy
    rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    assert rollout.max_model_len is None
    assert actor.ppo_max_token_len_per_gpu >= rollout.prompt_length + rollout.response_length
    total = config.trainer.n_gpus_per_node * config.trainer.nnodes
    assert actor.ppo_mini_batch_size * rollout.n % total == 0  # verl asserts it in its workers


def jobs_of(recipe: str, folder: Path, *words: str) -> list[list[str]]:
    """Jobs of verl that bash starts for a recipe, in a folder where all files are that it needs."""
    places = {"TRAIN": "train.parquet", "PASS_RATES": "pass rates.parquet", "FOLDER": "runs here"}
    benchmarks = (f"runs here/benchmarks/{name}.parquet" for name in (*SAMPLED, *GREEDY))
    for file in (*benchmarks, places["TRAIN"], places["PASS_RATES"]):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    environment = {key: str(folder / place) for key, place in places.items()}
    done, calls = run_script(RECIPES / recipe, folder, *words, **environment)
    assert done.returncode == 0, done.stderr
    return [call[3:] for call in calls if "verl.trainer.main_ppo" in call]


@pytest.mark.parametrize("recipe", TRAINED)
def test_training_of_a_recipe_composes(recipe: str, tmp_path: Path) -> None:
    """As bash hands it over, with the paper's values."""
    config = compose(jobs_of(recipe, tmp_path)[-1])
    check_settings(config)
    assert config["trainer"]["default_local_dir"].startswith(f"{tmp_path}/runs here/")
    if recipe in runs():
        assert without_files(config) == without_files(composed(runs()[recipe]))


def without_files(config: Config) -> Config:
    """Without what names files."""
    algorithm = config["algorithm"]
    options = {k: v for k, v in algorithm.get("basis", {}).items() if k != "pass_rates"}
    rest = {k: v for k, v in config.items() if k not in ("data", "trainer", "ray_kwargs")}
    return {**rest, "algorithm": {**algorithm, "basis": options}}


@pytest.mark.parametrize("model", MODELS)
def test_both_evaluations_of_a_checkpoint_compose(model: str, tmp_path: Path) -> None:
    (tmp_path / "runs here/grpo-8/global_step_50").mkdir(parents=True)
    jobs = [compose(job) for job in jobs_of("evaluate.sh", tmp_path, model, "grpo-8", "50")]
    kinds = []
    for config in jobs:
        assert config["trainer"]["val_only"]
        assert config["algorithm"].get("basis") is None
        sampling = config["actor_rollout_ref"]["rollout"]["val_kwargs"]
        kinds.append((sampling["n"], sampling["do_sample"], len(config["data"]["val_files"])))
    assert kinds == [(32, True, 4), (1, False, 3)]


def test_the_command_itself_takes_a_recipe(tmp_path: Path) -> None:
    job, *_ = jobs_of(TRAINED[0], tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "verl.trainer.main_ppo", *job, "--cfg", "job"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env=dict(os.environ) | {"HF_HUB_OFFLINE": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "lr: 1.0e-06" in done.stdout


def test_an_unknown_key_would_be_seen() -> None:
    right = overrides(Choice("qwen3-4b"))
    with pytest.raises(ConfigError, match="clip_ratio_hihg"):
        compose([*right, "actor_rollout_ref.actor.clip_ratio_hihg=0.2"])
    with pytest.raises(ConfigError, match="varaint"):
        check_settings(compose([*right, "+algorithm.basis.varaint=unb"]))


@pytest.mark.slow
def test_a_recipe_trains_and_its_checkpoint_is_evaluated(assets: Assets, tmp_path: Path) -> None:
    """The recipe's own words in the stock trainer, but for files, sizes and what a GPU needs."""
    folder = tmp_path / "job"
    base = set(base_overrides(folder, assets, 1, tmp_path)) | {"reward.custom_reward_function.name"}
    base.add(METRICS_FILE.lstrip("+"))
    files = tmp_path / "files"
    (files / "runs here/grpo-basis-unb/global_step_2").mkdir(parents=True)
    calls = jobs_of("qwen3-4b/grpo-basis-unb.sh", files)
    calls += jobs_of("evaluate.sh", files, "qwen3-4b", "grpo-basis-unb", "2")
    training, *evaluations = [[word for word in call if name(word) not in base] for call in calls]
    training += [
        f"+algorithm.basis.pass_rates={assets.pass_rates}",
        "+algorithm.basis.prompt_key_column=prompt_id",
        "trainer.save_freq=2",
        "trainer.total_training_steps=2",
    ]
    done = run_job(folder, training, assets=assets).check()
    assert [row["step"] for row in done.metrics] == [1, 2]
    assert all("basis/beta" in row for row in done.metrics)
    state = done.checkpoints / "global_step_2"
    for words, rollouts in zip(evaluations, (32, 1), strict=True):
        scores = tmp_path / f"mean@{rollouts}.jsonl"
        chosen = [
            f"data.val_files=['{assets.validation}','{assets.validation}']",
            f"trainer.resume_from_path='{state}'",
            f"trainer.validation_data_dir='{tmp_path / 'texts'}'",
            "trainer.val_before_train=True",
            f"{METRICS_FILE}='{scores}'",
        ]
        evaluated = tmp_path / f"evaluated-{rollouts}"
        run_job(evaluated, [*words, *chosen], assets=assets).check()
        (row,) = json_lines(scores)
        assert row["step"] == 2
        assert f"val-core/toy/addition/acc/mean@{rollouts}" in row["data"]
