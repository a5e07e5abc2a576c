"""A run's reward function by name, to compare with the verifier of a table of pass rates.

Nothing of the user's is imported for it but what a verifier's name says: a file is looked at, not
run.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis_rl.errors import ConfigError, nearest
from basis_rl.passrates.inspect.compare import Reward
from basis_rl.prompts.verl_rows import verifier_columns
from basis_rl.verifiers.verl_names import COMPUTE_SCORE, KWARGS, MODULE, verifier_name
from basis_rl.verl.default_scoring import check_sources
from basis_rl.verl.options import Config, section

if TYPE_CHECKING:
    from basis_rl.verifiers import NamedVerifier

DEFAULT = "verl.utils.reward_score:default_compute_score"
_PACKAGE, _FILE = "pkg://", "file://"
_PLACE = "reward.custom_reward_function"


def reward_of(config: Config) -> list[Reward] | None:
    """Reward functions of a run.

    Parameters
    ----------
    config : mapping
        verl's configuration, resolved.

    Returns
    -------
    list of Reward or None
        ``math`` for ``pkg://basis_rl.verifiers.verl_reward`` and ``math_score``, ``rewards:score``
        for a user's file, verl's own scoring by its full name. With DAPO's overlong penalty two.
        None where a reward manager of the user's decides.

    Raises
    ------
    ConfigError
        If the function cannot be found, or its verifier not be made.
    """
    manager = section(config, "reward", "reward_manager")
    if manager.get("source") == "importlib":
        return None
    rewards = [_function(config)]
    penalty = section(config, "reward", "reward_kwargs", "overlong_buffer_cfg")
    if manager.get("name") == "dapo" and penalty.get("enable"):
        longest = section(config, "reward", "reward_kwargs").get("max_resp_len")
        name = f"overlong({longest}, {penalty.get('len')})"  # as verifiers.compose calls it
        rewards.append(Reward(name, float(penalty.get("penalty_factor", 1.0))))
    return rewards


def reward_version(config: Config) -> str | None:
    """Version of a run's reward function, as a table's provenance has it; None where unknown.

    Raises
    ------
    ConfigError
        As `reward_of`.
    """
    chosen = custom_function(config)
    if chosen is None:
        return None
    path, name, options = chosen
    if is_ours(path):
        return _verifier(name, options).version
    file = _file(path)
    return None if file is None else _source_version(file, name)


def check_rows(config: Config, rows: Iterable[Mapping[str, Any]]) -> None:
    """Refuse rows that the run's reward function cannot judge.

    An exception in a reward function only makes verl go on without the rollout.

    Parameters
    ----------
    config : mapping
    rows : iterable of mappings
        The training data: data_source, reward_model, extra_info.

    Raises
    ------
    ConfigError
        If verl's own scoring does not know a data source, or the verifier misses a column.
    """
    if reward_of(config) is None:
        return
    chosen = custom_function(config)
    if chosen is None:
        if not section(config, "reward", "reward_model").get("enable"):
            check_sources(str(row.get("data_source")) for row in rows)
        return
    path, name, options = chosen
    if not is_ours(path):
        return
    verifier = _verifier(name, options)
    for number, row in enumerate(rows):
        reward_model, extra = row.get("reward_model"), row.get("extra_info")
        if not isinstance(reward_model, Mapping) or "ground_truth" not in reward_model:
            raise ConfigError(
                f"row {number} of the training data has no reward_model.ground_truth, which verl "
                "gives to the reward function: make the data with `basis-rl verl prepare`"
            )
        extra = extra if isinstance(extra, Mapping) else {}
        columns = verifier_columns(row.get("data_source"), reward_model["ground_truth"], extra)
        try:
            verifier.check({**columns, "extra_info": extra})
        except ConfigError as error:
            raise ConfigError(f"row {number} of the training data: {error}") from error


def custom_function(config: Config) -> tuple[str, str, dict[str, Any]] | None:
    """Path, name and keywords of the run's own reward function; None for verl's scoring.

    verl moves the older ``custom_reward_function`` into ``reward`` at its start.

    Raises
    ------
    ConfigError
        If there is a path and no name.
    """
    older = section(config, "custom_reward_function")
    newer = section(config, "reward", "custom_reward_function")
    chosen = older if any(value is not None for value in older.values()) else newer
    path, name = chosen.get("path"), chosen.get("name")
    if not path:
        return None
    if not name:
        raise ConfigError(f"{_PLACE}.path={path} names no function: add {_PLACE}.name=…")
    return str(path), str(name), dict(section(chosen, "reward_kwargs"))


def _function(config: Config) -> Reward:
    chosen = custom_function(config)
    if chosen is None:
        model = section(config, "reward", "reward_model")
        enabled = model.get("enable")
        return Reward(f"reward model {model.get('model_path')}" if enabled else DEFAULT)
    path, name, options = chosen
    if is_ours(path):
        return Reward(_verifier(name, options).name)
    _check_defined(path, name)
    given = ", ".join(f"{key}={value!r}" for key, value in sorted(options.items()))
    names = [f"{module}:{name}" + (f"({given})" if given else "") for module in _modules(path)]
    return Reward(names[0], also=tuple(names[1:]))


def _verifier(function: str, options: Mapping[str, Any]) -> NamedVerifier:
    """Verifier of one of our functions, whose keywords are looked at, since verl takes any."""
    from basis_rl.verifiers import create

    name = verifier_name(function, options)
    known = ["limit_s", "processes", *(["verifier"] if function == COMPUTE_SCORE else [])]
    for option, value in options.items():
        if option not in known:
            raise ConfigError(f"{KWARGS}.{option} is no option{nearest(option, known)}")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if option == "limit_s" and value is not None and not (number and value > 0):
            raise ConfigError(f"{KWARGS}.limit_s is {value!r}: give seconds above 0")
        if option == "processes" and not (number and isinstance(value, int) and value >= 0):
            raise ConfigError(f"{KWARGS}.processes is {value!r}: give a whole number of 0 or more")
    return create(name, processes=1)


def _check_defined(path: str, name: str) -> None:
    """Refuse a file in whose text the function's name is not found."""
    file = _file(path)
    try:
        text = "" if file is None else file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return
    if text and "import *" not in text and not re.search(rf"\b{re.escape(name)}\b", text):
        defined = re.findall(r"^(?:async )?def (\w+)", text, re.MULTILINE)
        raise ConfigError(f"{_PLACE}.name={name} is not in {path}{nearest(name, defined)}")


def is_ours(path: str) -> bool:
    """Whether a reward function's path is that of `basis_rl.verifiers.verl_reward`."""
    if path.startswith(_PACKAGE):
        return _dotted(path) == MODULE
    return Path(path.removeprefix(_FILE)).parts[-3:] == (*MODULE.split(".")[:2], "verl_reward.py")


def _modules(path: str) -> list[str]:
    """Names that a module may be imported by, the likeliest first.

    A file is known by its package, and by as much of its path as the current folder leaves.
    """
    file = _file(path)
    if file is None:
        parts = _dotted(path).split(".")
        return [".".join(parts[start:]) for start in range(len(parts))]
    where = file.parent
    parts = [file.stem] if file.stem != "__init__" else []
    packages = 0
    while (where / "__init__.py").is_file():
        packages += 1
        where = where.parent
    parts = [*file.parent.parts[1:], *parts]
    own = len(parts) - packages - (file.stem != "__init__")
    starts = sorted(range(len(parts)), key=lambda start: (abs(start - own), start))
    return [".".join(parts[start:]) for start in starts]


def _dotted(path: str) -> str:
    return path.removeprefix(_PACKAGE).replace("/", ".")


def _file(path: str) -> Path | None:
    """File of a module; None for a package's module that only other machines have.

    Raises
    ------
    ConfigError
        If a path names no file.
    """
    if path.startswith(_PACKAGE):
        try:
            spec = importlib.util.find_spec(_dotted(path))
        except (ImportError, ValueError):
            return None
        return None if spec is None or not spec.origin else Path(spec.origin)
    file = Path(os.path.abspath(path.removeprefix(_FILE)))
    if not file.is_file():
        near = sorted(p.name for p in file.parent.glob("*.py")) if file.parent.is_dir() else []
        raise ConfigError(
            f"{_PLACE}.path={path} is no file{nearest(file.name, near) if near else ''} (or "
            "give pkg:// and a module)"
        )
    return file


def _source_version(file: Path, name: str) -> str | None:
    """What `verifiers.create` takes as the version of a function, without importing it."""
    try:
        text = file.read_text(encoding="utf-8")
        body = ast.parse(text).body
    except (OSError, ValueError, SyntaxError):
        return None
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for node in body if isinstance(node, kinds) and node.name == name]
    if len(found) != 1 or found[0].decorator_list:
        return None
    source = "".join(inspect.getblock(text.splitlines(keepends=True)[found[0].lineno - 1 :]))
    return "sha256:" + hashlib.sha256(source.encode()).hexdigest()[:12]
