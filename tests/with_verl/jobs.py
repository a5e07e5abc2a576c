"""Runs verl's stock trainer on the processor, in a Ray cluster of its own, within a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from assets import Assets
from warm_start import SOCKET, die_with_parent, worker_command

HERE = Path(__file__).parent
STOCK = "verl.trainer.main_ppo"
RAY_INIT = "ray_kwargs.ray_init"


@dataclass(frozen=True)
class Job:
    """A job that has ended."""

    folder: Path
    returncode: int | None  # None: stopped at the time limit
    log: str
    seconds: float

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Of each step, from verl's logger "file"; "step" among them."""
        return [
            row["data"] | {"step": row["step"]} for row in json_lines(metrics_file(self.folder))
        ]

    @property
    def rollouts(self) -> list[dict[str, Any]]:
        """Rows that verl dumped (input, output, gts, score, step, uid), step by step."""
        files = (self.folder / "rollouts").glob("*.jsonl")
        return [row for f in sorted(files, key=lambda one: int(one.stem)) for row in json_lines(f)]

    @property
    def checkpoints(self) -> Path:
        """Folder with verl's ``global_step_N``."""
        return self.folder / "checkpoints"

    def lines(self, text: str) -> list[str]:
        """Lines of the log that contain a text."""
        return [line for line in self.log.splitlines() if text in line]

    def check(self) -> Job:
        """Itself; fails with the end of the log where the job failed."""
        if self.returncode != 0:
            what = "stopped at the time limit" if self.returncode is None else "failed"
            raise AssertionError(f"the job {what}; its log ends:\n{self.log[-6000:]}")
        return self


def run_job(
    folder: Path,
    overrides: Iterable[str] = (),
    *,
    assets: Assets,
    workers: int = 1,
    timeout: float = 300,
    modules: Sequence[str] = (),
    paths: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
    program: str = STOCK,
    warm: bool = True,
) -> Job:
    """Run the trainer with the base overrides and these, which win.

    Parameters
    ----------
    folder : Path
        Gets the log, the metrics, the dumped rollouts and the checkpoints. A second job in the same
        folder resumes from the checkpoints.
    overrides : iterable of str
        As on verl's command line, with or without "+".
    workers : int
        Data-parallel workers.
    timeout : float
        Seconds after which all processes of the job are killed.
    modules : sequence of str
        Further modules that every process of verl imports.
    paths : sequence of Path
        Folders that come first on the import path: of ``modules``, or of another verl.
    environment : mapping of str to str, optional
        Further environment variables of every process.
    program : str
        Module that is run.
    warm : bool
        Fork the processes from one that has imported what they need, see `warm_start`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ray_folder = Path(tempfile.mkdtemp(prefix="rl", dir="/tmp"))  # a socket's path is short
    settings = base_overrides(folder, assets, workers, ray_folder)
    for override in overrides:
        key = name(override)
        added = settings.get(key, override).startswith("+")
        settings[key] = "+" * added + override.lstrip("+")
    variables = job_environment(folder, modules, paths) | dict(environment or {})
    start = ["-m", program]
    if warm:
        settings["py_executable"] = f"+{RAY_INIT}.runtime_env.py_executable='{worker_command()}'"
        variables[SOCKET] = str(ray_folder / "warm")
        start = [str(HERE / "warm_start.py"), program]
    started = time.monotonic()
    try:
        command = [sys.executable, *start, *settings.values()]
        returncode = run(command, folder, variables, timeout)
    finally:
        shutil.rmtree(ray_folder, ignore_errors=True)
    log = (folder / "log.txt").read_text(errors="replace")
    return Job(folder, returncode, log, time.monotonic() - started)


def run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], timeout: float
) -> int | None:
    """Return code of a command that logs to ``log.txt``; none of its processes outlives it."""
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509  (tests have one thread)
        )
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            kill_session(process.pid)
            process.wait()


def kill_session(leader: int, patience: float = 10.0) -> None:
    """Kill every process of a session, where Ray's servers and workers are; wait for their end."""
    end = time.monotonic() + patience
    while (alive := session(leader)) and time.monotonic() < end:
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.02)


def session(leader: int) -> list[psutil.Process]:
    """Living processes of a session."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def job_environment(folder: Path, modules: Sequence[str], paths: Sequence[Path]) -> dict[str, str]:
    """This process's environment, without the hub and with what `cpu_platform` needs."""
    return dict(os.environ) | {
        "PYTHONPATH": os.pathsep.join(map(str, [*paths, HERE, HERE.parent])),
        "PYTHONWARNINGS": "ignore",
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": ",".join(["cpu_platform", *modules]),
        "VERL_FILE_LOGGER_PATH": str(metrics_file(folder)),
        "HYDRA_FULL_ERROR": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hub"),
        "OMP_NUM_THREADS": "1",
        "RAY_AUTH_MODE": "disabled",
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "TOKENIZERS_PARALLELISM": "false",
    }


def base_overrides(folder: Path, assets: Assets, workers: int, ray_folder: Path) -> dict[str, str]:
    """What a tiny model on a processor needs, by name; eight prompts a step, three steps."""
    model = "actor_rollout_ref.model"
    actor = "actor_rollout_ref.actor"
    rollout = "actor_rollout_ref.rollout"
    storage = "transfer_queue.backend.SimpleStorage"
    lines = [
        f"data.train_files={assets.train}",
        f"data.val_files={assets.validation}",
        "data.train_batch_size=8",
        "data.max_prompt_length=32",
        "data.max_response_length=8",
        "data.dataloader_num_workers=0",
        "data.filter_overlong_prompts=False",
        f"reward.custom_reward_function.path={HERE / 'parity.py'}",
        "reward.num_workers=1",
        f"{model}.path={assets.model}",
        f"{model}.use_remove_padding=False",
        f"{model}.enable_gradient_checkpointing=False",
        f"+{model}.override_config.attn_implementation=sdpa",
        f"{actor}.strategy=fsdp2",
        f"{actor}.use_torch_compile=False",
        f"{actor}.fsdp_config.use_torch_compile=False",
        f"+{actor}.fsdp_config.mixed_precision.param_dtype=fp32",
        f"{actor}.optim.lr=1e-3",
        f"{actor}.ppo_mini_batch_size=4",
        f"{actor}.ppo_micro_batch_size_per_gpu=4",
        f"{rollout}.name=cpu",
        f"{rollout}.n=1",
        f"{rollout}.tensor_model_parallel_size=1",
        f"{rollout}.log_prob_micro_batch_size_per_gpu=4",
        f"{rollout}.agent.num_workers=1",
        f"{storage}.num_data_storage_units=1",
        f"{storage}.total_storage_size=4096",
        "trainer.device=cpu",
        "trainer.nnodes=1",
        f"trainer.n_gpus_per_node={workers}",
        "trainer.logger=[console,file]",
        "trainer.val_before_train=False",
        "trainer.test_freq=-1",
        "trainer.save_freq=-1",
        "trainer.total_epochs=100",
        "trainer.total_training_steps=3",
        f"trainer.default_local_dir={folder / 'checkpoints'}",
        f"trainer.rollout_data_dir={folder / 'rollouts'}",
        f"trainer.v1.sampler.custom_sampler.path={HERE / 'fast_sampler.py'}",
        "trainer.v1.sampler.custom_sampler.name=FastReplayBuffer",
        f"{RAY_INIT}.num_cpus=16",
        f"+{RAY_INIT}.address=local",
        f"+{RAY_INIT}.num_gpus={workers + 1}",  # a number only; one for a rollout of its own
        f"+{RAY_INIT}.include_dashboard=False",
        f"+{RAY_INIT}.object_store_memory=200000000",
        f"+{RAY_INIT}._temp_dir={ray_folder}",
    ]
    return {name(line): line for line in lines}


def name(override: str) -> str:
    """Key of an override, without "+"."""
    return override.split("=", 1)[0].lstrip("+")


def metrics_file(folder: Path) -> Path:
    return folder / "metrics.jsonl"


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a file; none where it is missing."""
    if path.exists():
        yield from map(json.loads, path.read_text().splitlines())
