"""From data to a checked table on a running Ray cluster, as a user of verl types it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from assets import Assets
from jobs import kill_session

BIN = Path(sys.executable).parent
PROMPTS = 12
pytestmark = pytest.mark.slow


@pytest.fixture
def cluster() -> Iterator[str]:
    """Address of a cluster that somebody has started somewhere else."""
    port, client_port = free_ports()
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp", ignore_cleanup_errors=True) as folder:
        command = [
            *(BIN / "ray", "start", "--head", "--block", f"--port={port}", "--num-cpus=2"),
            *("--node-ip-address=127.0.0.1", "--include-dashboard=false", "--disable-usage-stats"),
            *(f"--temp-dir={folder}", f"--ray-client-server-port={client_port}"),
        ]
        head = subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            env=environment(),
            start_new_session=True,
        )
        try:
            wait_for(port)
            yield f"127.0.0.1:{port}"
        finally:
            kill_session(head.pid)
            head.wait()


def free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def wait_for(port: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.5)
    raise TimeoutError("the cluster has not started")


def environment(**more: str) -> dict[str, str]:
    quiet = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    return {**os.environ, **quiet, "RAY_AUTH_MODE": "disabled", **more}


def basis_rl(folder: Path, *arguments: str | Path, **more: str) -> str:
    command = [BIN / "basis-rl", *map(str, arguments)]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_data_to_a_checked_table(assets: Assets, cluster: str, tmp_path: Path) -> None:
    rows = [{"question": f"{i}+{i}=", "answer": 2 * i} for i in range(PROMPTS)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = ("rows.jsonl", "--prompt-column", "question", "--out", "data")
    printed = basis_rl(tmp_path, "verl", "prepare", *data, "--verifier", "number")
    overrides = printed.split("verl's overrides:\n")[1].split("pass rates:")[0]
    # A model named from the current folder, which is not the workers'.
    (tmp_path / "model").symlink_to(assets.model)
    basis_rl(
        tmp_path,
        *("cache", "build", "--engine", "ray", "--engine-option", "engine=transformers"),
        *("--engine-option", "batch_size=6", "--model", "model", "--data", "data/train.parquet"),
        *("--verifier", "number", "--n", "4", "--max-tokens", "8", "--out", "pass-rates.parquet"),
        RAY_ADDRESS=cluster,
    )
    checked = basis_rl(
        tmp_path,
        *("verl", "check", *overrides.replace("\\\n", " ").split()),
        *("algorithm.adv_estimator=basis", "+algorithm.basis.pass_rates=pass-rates.parquet"),
        *("actor_rollout_ref.model.external_lib=basis_rl.verl", "actor_rollout_ref.rollout.n=1"),
        *("actor_rollout_ref.model.path=model", "actor_rollout_ref.rollout.name=vllm"),
        *("data.max_response_length=8", "data.train_batch_size=4"),
    )
    assert "coverage          100.0% of the prompts" in checked
    assert checked.splitlines()[-1] == "ok"
