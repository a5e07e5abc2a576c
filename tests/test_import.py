"""The package without its extras: what it loads, how fast, and that nothing else is needed."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

import basis_rl

SOURCE = Path(basis_rl.__file__).parent
HEAVY = ("torch", "pandas", "transformers", "trl", "pyarrow", "datasets", "rich", "click", "yaml")


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_importing_takes_under_300_milliseconds_and_loads_nothing_heavy():
    code = (
        "import time; start = time.process_time(); import basis_rl; "
        "spent = time.process_time() - start; import sys; "
        f"print(spent, *[m for m in {HEAVY} if m in sys.modules])"
    )
    runs = [python(code).split() for _ in range(5)]
    assert all(len(run) == 1 for run in runs), runs
    assert min(float(run[0]) for run in runs) < 0.3


def test_the_core_works_where_the_extras_are_not_installed():
    blocked = ("torch", "pandas", "transformers", "trl", "datasets", "matplotlib", "peft")
    code = f"""
import sys
for name in {blocked}:
    sys.modules[name] = None
import basis_rl as b
table = b.PassRates.from_counts(["a", "b"], [1, 3], 4)
print(b.Basis(table).estimate(b.RewardBatch(["a", "b"], [0, 1])).baselines.sum() > 0)
"""
    assert python(code).strip() == "True"


def test_requirements_without_extras_are_the_command_lines_few():
    plain = {
        re.split(r"[ <>=!~;\[]", requirement)[0].lower()
        for requirement in importlib.metadata.requires("basis-rl") or []
        if "extra ==" not in requirement
    }
    assert plain == {"numpy", "pyarrow", "click", "rich", "pyyaml"}


def imported_modules(path: Path) -> set[str]:
    """Modules that a file imports when it is itself imported (not inside functions)."""
    modules: set[str] = set()
    pending: list[ast.AST] = list(ast.parse(path.read_text()).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            pending += list(ast.iter_child_nodes(node))
    return modules


CORE = [
    *(SOURCE / f"{name}.py" for name in ("values", "smoothing", "refine", "levels")),
    *(SOURCE / f"{name}.py" for name in ("calibrate", "shift", "batch", "errors")),
    *(SOURCE / f"{name}.py" for name in ("whitening", "gae", "normalize")),
    *sorted((SOURCE / "estimators").glob("*.py")),
    SOURCE / "passrates" / "table.py",
]


@pytest.mark.parametrize("path", CORE, ids=lambda p: p.stem)
def test_the_estimator_core_imports_numpy_and_nothing_else(path):
    for module in imported_modules(path):
        top = module.split(".")[0]
        assert top in {"numpy", "basis_rl"} or top in sys.stdlib_module_names, module


# What each layer may not import (DESIGN: imports point one way).
FORBIDDEN = {
    "values": {"refine", "levels", "calibrate", "shift", "estimators", "passrates"},
    "refine": {"calibrate", "shift", "estimators", "passrates"},
    "calibrate": {"estimators", "passrates"},
    "shift": {"estimators", "passrates"},
    "whitening": {"estimators", "passrates"},
    "gae": {"estimators", "passrates"},
    "normalize": {"estimators", "passrates"},
    "estimators": {"trl", "verl", "train", "demo", "cli", "rollouts", "verifiers", "prompts"},
    "passrates": {"estimators", "trl", "verl", "train", "demo", "cli"},
    "rollouts": {"estimators", "trl", "verl", "train", "demo", "cli"},
    "verifiers": {"estimators", "trl", "verl", "train", "demo", "cli", "passrates"},
    "prompts": {"estimators", "trl", "verl", "train", "demo", "cli"},
    "adapters": {"trl", "verl", "train", "demo", "cli"},
    "trl": {"verl", "train", "demo", "cli"},
    "verl": {"trl", "train", "demo", "cli"},
    "train": {"verl", "demo", "cli"},
    "lab": {"trl", "verl", "train", "demo", "cli"},
    "demo": {"cli"},
}


@pytest.mark.parametrize("layer", FORBIDDEN)
def test_imports_point_one_way(layer):
    folder = SOURCE / layer
    files = sorted(folder.rglob("*.py")) if folder.is_dir() else [SOURCE / f"{layer}.py"]
    for path in files:
        for module in imported_modules(path):
            parts = module.split(".")
            if parts[0] == "basis_rl" and len(parts) > 1:
                assert parts[1] not in FORBIDDEN[layer], f"{path.name} imports {module}"


# What verl's processes and the checks of a run import, each when it needs it.
LAZY = {"verl", "torch", "ray", "hydra", "omegaconf", "tensordict", "transfer_queue", "datasets"}


@pytest.mark.parametrize("path", sorted((SOURCE / "verl").rglob("*.py")), ids=lambda p: p.stem)
def test_the_adapter_of_verl_imports_no_framework_by_itself(path):
    for module in imported_modules(path):
        assert module.split(".")[0] not in LAZY, module


def test_a_run_of_verl_is_checked_without_a_framework():
    code = "import sys, basis_rl.verl.attach, basis_rl.verl.v1, basis_rl.verl.legacy; "
    assert python(f"{code}print({LAZY} & set(sys.modules))").strip() == "set()"


# Parts of passrates that need no engine, verifier or data set.
PASSRATES = SOURCE / "passrates"
TABLES = [
    *PASSRATES.glob("*.py"),
    *(PASSRATES / "storage").glob("*.py"),
    *(PASSRATES / "absorbing").glob("*.py"),
    *(PASSRATES / "inspect" / f"{name}.py" for name in ("describe", "compare", "histogram")),
    *(PASSRATES / "merging" / f"{name}.py" for name in ("joins", "settings")),
]


@pytest.mark.parametrize("path", TABLES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_tables_know_nothing_of_what_samples_and_judges(path):
    for module in imported_modules(path):
        parts = module.split(".")
        assert parts[1:2] not in ([layer] for layer in ("rollouts", "verifiers", "prompts")), module
        assert parts[1:3] not in (["passrates", "build"], ["passrates", "importers"]), module


@pytest.mark.parametrize("layer", ["rollouts", "prompts"])
def test_what_samples_knows_of_keys_alone(layer):
    for path in sorted((SOURCE / layer).rglob("*.py")):
        for module in imported_modules(path):
            if module.startswith("basis_rl.passrates"):
                assert module == "basis_rl.passrates.keys", f"{path.name} imports {module}"


def test_no_source_file_is_over_500_lines():
    for path in SOURCE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 500, path
