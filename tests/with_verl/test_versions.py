"""The table of versions and trainers in docs/verl.md says what the tests run, no more."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trainer_modes

from basis_rl.errors import BasisError
from basis_rl.verl.compose import compose

DOCS = Path(__file__).parents[2] / "docs" / "verl.md"
CELLS = {"run", "composed only", "not supported"}


def table() -> dict[tuple[str, str], str]:
    """Cells of the table, by version and trainer."""
    lines = DOCS.read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("| verl | sync |"))
    _, *trainers = cells(lines[start])
    found = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        version, *values = cells(line)
        found |= {(version, name): value for name, value in zip(trainers, values, strict=True)}
    return found


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_run_is_what_the_tests_run():
    assert set(table().values()) <= CELLS
    run = {place for place, value in table().items() if value == "run"}
    assert run == set(trainer_modes.RUN)
    assert importlib.metadata.version("verl") == trainer_modes.INSTALLED


def test_composed_only():
    """verl's own configuration of that version takes the overrides."""
    for version, mode in [place for place, value in table().items() if value == "composed only"]:
        folder = trainer_modes.other_version(version)
        if not folder.exists():
            pytest.skip(f"{folder} is missing: `make test-verl` sets it up")
        config = folder / "verl" / "trainer" / "config"
        settings = ["algorithm.adv_estimator=basis", *trainer_modes.MODES[mode]]
        if mode in trainer_modes.PROGRAMS:
            program = folder.joinpath(*trainer_modes.PROGRAMS[mode].split(".")[:-1], "config")
            (own,) = program.glob("*_ppo_trainer.yaml")
            settings = [one for one in settings if not one.startswith("hydra.")]
            settings.append(f"hydra.searchpath=[file://{config}]")
            composed = compose(settings, config_name=own.name, config_dir=program)
        else:
            composed = compose(settings, config_dir=config)
        assert composed["algorithm"]["adv_estimator"] == "basis"
        with pytest.raises(BasisError):
            compose(["trainer.v1.no_such_key=1"], config_dir=config)


@pytest.mark.parametrize("version", trainer_modes.REFUSED)
def test_the_plug_in_refuses_an_old_verl(version):
    """What a job of that version does with external_lib, before it has a model."""
    folder = trainer_modes.other_version(version)
    if not folder.exists():
        pytest.skip(f"{folder} is missing: `make test-verl` sets it up")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "import verl, basis_rl.verl"],
        env={**os.environ, "PYTHONPATH": str(folder), "VERL_USE_EXTERNAL_PLUGINS": "none"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode
    assert done.stderr.strip().splitlines()[-1] == (
        f"basis_rl.errors.ConfigError: verl {version} is installed, and basis-rl works with verl "
        "0.9: pip install 'verl>=0.9,<0.10'"
    )
