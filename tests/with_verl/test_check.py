"""`basis-rl verl check`: the same wrong runs, within 5 seconds, without Ray and without torch."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from assets import Assets, addition_rows, table_of, write_rows
from jobs import base_overrides, name
from wrong_setups import SETUPS, Setup, changes, old_verl, right

from basis_rl.passrates.keys import prompt_key
from basis_rl.verl.options import STOCK

LIMIT = 5.0  # seconds of the processor: what else runs on the machine does not count
COMMAND = Path(sys.executable).with_name("basis-rl")


def check(
    overrides: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command; fails where it takes too long."""
    start = seconds_of_children()
    done = subprocess.run(
        [str(COMMAND), "verl", "check", *overrides],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        env=dict(os.environ) | dict(environment or {}),
        check=False,
    )
    assert seconds_of_children() - start < LIMIT
    return done


def seconds_of_children() -> float:
    """Seconds that the processes this one has waited for have used."""
    used = os.times()
    return used.children_user + used.children_system


def given(assets: Assets, folder: Path, run: Sequence[str]) -> list[str]:
    """All overrides of a run."""
    base = base_overrides(folder, assets, 1, folder)
    return list((base | {name(override): override for override in run}).values())


def test_a_right_run_is_ok(assets: Assets, tmp_path: Path) -> None:
    run = given(assets, tmp_path, list(right(assets).values()))
    done = check(["python3", "-m", "verl.trainer.main_ppo", *run], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "ok"
    for text in ("basis", "8 rollouts (sync)", "64 of", "n = 8, counts", "100.0% of the prompts"):
        assert text in done.stdout
    assert done.stderr.splitlines() == [
        "warning: the pass rates do not tell their verifier, which cannot be compared with the "
        "run's"
    ]
    assert check(run, tmp_path).stdout == done.stdout


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.name)
def test_a_wrong_run_is_one_line(setup: Setup, assets: Assets, tmp_path: Path) -> None:
    environment = {}
    if setup.version is not None:
        environment["PYTHONPATH"] = str(old_verl(tmp_path / "old", setup.version))
    run = changes(setup, tmp_path / "files", assets)
    done = check(given(assets, tmp_path, run), tmp_path, environment)
    assert done.returncode == 1
    assert done.stdout == ""
    said = [line for line in done.stderr.splitlines() if not line.startswith("warning: ")]
    assert len(said) == 1
    assert re.search(f"^basis-rl: .*{setup.says}", said[0]), said[0]


def test_the_paper_s_data_are_checked_in_time(assets: Assets, tmp_path: Path) -> None:
    rows = [
        row | {"prompt": [{"role": "user", "content": f"{i}: " + "word " * 50}]}
        for i, row in enumerate(addition_rows(17_398, "train"))
    ]
    table = tmp_path / "table.parquet"
    table_of([prompt_key(row["prompt"]) for row in rows], model=str(assets.model)).save(table)
    run = right(assets) | {"algorithm.basis.pass_rates": f"+algorithm.basis.pass_rates={table}"}
    del run["algorithm.basis.prompt_key_column"]
    train = write_rows(tmp_path / "train.parquet", rows)
    lines = [*given(assets, tmp_path, list(run.values())), f"data.train_files={train}"]
    done = check(lines, tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"17398 of {train}; key: hash of the content" in done.stdout


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("algorithm.adv_estimater=basis", "Could not override 'algorithm.adv_estimater'"),
        ("algorithm.basis.pass_rates=x", r"append to your config use \+algorithm.basis.pass_rates"),
        ("+algorithm.basis.betas=[1,2", r"betas=\[1,2"),
        ("trainer.n_gpus_per_node=${oc.env:NOT_SET}", "NOT_SET"),
        ("", "in an empty override"),
        ("data.train_files=~/x", "cannot read .*: \"data.train_files='~/x'\""),
        ("data.train_files=é b.parquet", "cannot read .*: \"data.train_files='é b.parquet'\""),
        ("data.train_batch_size", "Error parsing override 'data.train_batch_size'"),
    ],
)
def test_what_hydra_refuses_is_one_line(override: str, text: str, tmp_path: Path) -> None:
    done = check([override], tmp_path)
    assert done.returncode == 1
    assert re.search(f"^basis-rl: verl's configuration: .*{text}.*\n$", done.stderr)


def test_quotes_as_they_are_advised_are_read() -> None:
    from basis_rl.verl.compose import compose

    assert compose(["data.train_files='~/é b.parquet'"])["data"]["train_files"] == "~/é b.parquet"


@pytest.mark.parametrize(
    "name",
    ["it's", "a\\b", "a\\'b", "a\\\\'b", 'q"q', "é", "~x", "${x}", "$H", "a,b", "[a]=(b)", "1"],
)
def test_paths_that_prepare_prints_are_read_as_they_are(name: str) -> None:
    from basis_rl.cli.verl_prepare import _for_hydra
    from basis_rl.verl.compose import compose

    path = Path(f"/d/{name}/train.parquet")
    assert compose([f"data.train_files={_for_hydra(path)}"])["data"]["train_files"] == str(path)


def test_neither_ray_nor_torch_nor_verl_is_imported(assets: Assets, tmp_path: Path) -> None:
    run = given(assets, tmp_path, list(right(assets).values()))
    program = (
        "import json, sys\n"
        "from basis_rl.cli import main\n"
        "try: main(['verl', 'check', *json.load(sys.stdin)])\n"
        "except SystemExit as end: print(end.code)\n"
        "print([name for name in ('ray', 'torch', 'verl') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(run),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines()[-3:] == ["ok", "0", "[]"]


def test_a_configuration_of_the_user_s_own(assets: Assets, tmp_path: Path) -> None:
    from basis_rl.verl.compose import verl_folder

    folder = tmp_path / "config"
    shutil.copytree(verl_folder() / "trainer" / "config", folder)
    (folder / "mine.yaml").write_text(
        "defaults: [ppo_trainer, _self_]\nalgorithm: {adv_estimator: basis-online}\n"
    )
    run = [line for line in right(assets).values() if "adv_estimator" not in line]
    own = ["--config-path", str(folder), "--config-name", "mine"]
    done = check([*own, *given(assets, tmp_path, run)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "basis-online" in done.stdout
    examples = ["--config-path=./config", "--config-name=ppo_megatron_trainer.yaml"]  # verl's
    done = check([*examples, *given(assets, tmp_path, list(right(assets).values()))], tmp_path)
    assert "Could not override 'actor_rollout_ref.actor.fsdp_config" in done.stderr
    done = check([*own[:3], "mines"], tmp_path)
    assert done.returncode == 1
    assert "did you mean 'mine'" in done.stderr


def test_without_verl_it_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'verl' else find(name)\n"
        "from basis_rl.cli import main\n"
        "main(['verl', 'check', 'a=b'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "basis-rl: verl is not installed here: pip install 'basis-rl[verl]'\n"


def test_the_names_of_verl_s_estimators() -> None:
    from verl.trainer.ppo.core_algos import AdvantageEstimator

    assert sorted(each.value for each in AdvantageEstimator) == list(STOCK)
