"""verl's own configuration, composed as its command line does, without importing verl."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from basis_rl.errors import ConfigError, nearest
from basis_rl.verl.options import Config

CONFIG_NAME = "ppo_trainer"
INSTALL = "pip install 'basis-rl[verl]'"


def compose(
    overrides: Sequence[str], config_name: str = CONFIG_NAME, config_dir: str | Path | None = None
) -> Config:
    """Compose a configuration, with all references resolved.

    Parameters
    ----------
    overrides : sequence of str
        As `verl.trainer.main_ppo` takes them: "data.train_batch_size=512", "+algorithm.basis.…".
    config_name : str
        Name of the primary configuration.
    config_dir : path, optional
        Its folder; by default that of the installed verl, and relative to its ``trainer``.

    Raises
    ------
    ConfigError
        If verl or hydra is not installed, or hydra refuses an override or a name.
    """
    try:
        from hydra import compose as hydra_compose
        from hydra import initialize_config_dir
        from hydra.core.global_hydra import GlobalHydra
        from hydra.errors import HydraException
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException
    except ImportError as error:
        raise ConfigError(f"{error}, which verl's configuration needs: {INSTALL}") from error
    folder = _folder(config_dir)
    name = config_name.removesuffix(".yaml")
    if not (folder / f"{name}.yaml").is_file():
        known = sorted(path.stem for path in folder.glob("*.yaml") if path.stem[0] != "_")
        raise ConfigError(f"no configuration {name} in {folder}{nearest(name, known)}")
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(folder), version_base=None):
            composed = hydra_compose(name, overrides=list(overrides))
        resolved: Any = OmegaConf.to_container(composed, resolve=True)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise ConfigError(_one_line(error, overrides)) from error
    return dict(resolved)


def _folder(given: str | Path | None) -> Path:
    """Folder of configurations; a relative one is beside `main_ppo`, as hydra has it, or here."""
    trainer = verl_folder() / "trainer"
    if given is None:
        return trainer / "config"
    path = Path(given).expanduser()
    for folder in (trainer / path, path.absolute()):
        if folder.is_dir():
            return folder.resolve()
    raise ConfigError(f"there is no folder {given} of configurations: check the path")


def verl_folder() -> Path:
    """Folder of the installed verl, which is not imported.

    Raises
    ------
    ConfigError
        If it is not installed.
    """
    spec = importlib.util.find_spec("verl")
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        raise ConfigError(f"verl is not installed here: {INSTALL}")
    return Path(os.path.abspath(places[0]))


def _one_line(error: Exception, overrides: Sequence[str]) -> str:
    """Hydra's message; for an override that cannot be read, how to write it or which it is."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = " ".join(line if line[-1:] in ".?!," else f"{line}." for line in lines if line)
    culprit = _unreadable(overrides)
    if culprit is not None:
        key, equals, value = culprit.partition("=")
        quoted = f"{key}='{value}'"
        if equals and value[:1] not in ("[", "{", "") and _quotable(quoted):
            return (
                f"verl's configuration: cannot read {culprit}: put the value in quotes, and all of "
                f'it in others for the shell: "{quoted}"'
            )
        if not culprit or culprit not in said:
            said = f"{said.rstrip('.')} (in {culprit or 'an empty override'})"
    return f"verl's configuration: {said.rstrip('.')}"


def _unreadable(overrides: Sequence[str]) -> str | None:
    """The first override that breaks hydra's grammar."""
    return next((each for each in overrides if not _readable(each)), None)


def _quotable(override: str) -> bool:
    """Whether an override can be read and stand in double quotes of a shell."""
    return _readable(override) and not any(each in override for each in '"$`\\!')


def _readable(override: str) -> bool:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        OverridesParser.create().parse_override(override)
    except HydraException:
        return False
    return True
