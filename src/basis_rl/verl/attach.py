"""What the hooks of both trainers share: a trainer's run, its data, its checkpoints."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from basis_rl.adapters.rows import RowNames
from basis_rl.errors import BasisError
from basis_rl.files import cannot_write, check_writable
from basis_rl.passrates.training_record import NAME
from basis_rl.verl.option_names import VERL
from basis_rl.verl.options import Config, is_ours, section
from basis_rl.verl.rows import media_columns
from basis_rl.verl.run import RAW_PROMPT, BasisRun
from basis_rl.verl.settings import check_settings, uses_basis

_ATTRIBUTE = "_basis_run"


def run_of(trainer: Any) -> BasisRun | None:
    """The run of a trainer; None where it goes on as if basis-rl were not there."""
    return getattr(trainer, _ATTRIBUTE, None)


def start_run(trainer: Any) -> None:
    """Check a trainer's settings and data, and make its run, before there are workers.

    Raises
    ------
    BasisError
        Of one line, printed too.
    """
    config = as_config(trainer.config)
    if not uses_basis(config):
        return
    with plainly():
        if not is_ours(config.get("algorithm") or {}):
            check_settings(config)
            return
        rows, prompt_column = training_rows(trainer.train_dataset, config)
        run = BasisRun.start(config, rows, prompt_column)
        _make_folder(run)
    from basis_rl.verl.plugin import register_estimators

    register_estimators()  # an installed package's may have come in only now
    setattr(trainer, _ATTRIBUTE, run)
    say(str(run))


def as_config(config: Any) -> Config:
    """Configuration of verl as plain dicts and lists."""
    if isinstance(config, dict):
        return config
    from omegaconf import OmegaConf

    plain: Config = OmegaConf.to_container(config, resolve=True)
    return plain


def say(text: str) -> None:
    """One line in the run's log."""
    print(f"basis-rl: {text}", file=sys.stderr, flush=True)  # noqa: T201


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """Print an error's one line, as Ray hides it among the frames of two processes."""
    try:
        yield
    except BasisError as error:
        say(str(error))
        raise


def training_rows(dataset: Any, config: Config) -> tuple[Sequence[Mapping[str, Any]], str | None]:
    """Rows of verl's training data, and the column with their prompts.

    The table behind `RLHFDataset` is read if the data set hands out its rows' keys as they are
    there; otherwise, or where there is none, the data set's items are.
    """
    column = str(section(config, "data").get("prompt_key") or "prompt")
    table: Any = getattr(dataset, "dataframe", None)
    if not hasattr(table, "column_names") or len(table) != len(dataset):
        return dataset, RAW_PROMPT
    try:
        item = dataset[0] if len(table) else {}
    except KeyError:
        item = {}
    if not item:
        return table, column  # an error that the run words
    if column not in table.column_names:
        return dataset, RAW_PROMPT
    key_column = section(config, "algorithm", "basis").get("prompt_key_column")
    media = key_column is None and set(media_columns(config).values()) & set(table.column_names)
    if media or _key(table[0], column, key_column) == _key(item, RAW_PROMPT, key_column):
        return table, column
    return dataset, RAW_PROMPT


def _key(row: Mapping[str, Any], prompt_column: str, key_column: str | None) -> str | None:
    try:
        return RowNames(key_column, None, prompt_column, words=VERL).key(row)
    except BasisError:
        return None


def save_checkpoint(trainer: Any, original: Callable[[], Any]) -> Any:
    """Write the estimator's state before verl calls the checkpoint its latest."""
    run = run_of(trainer)
    if run is not None:
        with plainly():
            run.save(_folder(trainer, run))
    return original()


def load_checkpoint(trainer: Any, original: Callable[[], Any]) -> Any:
    """Read the estimator's state from the folder that verl resumed from."""
    result = original()
    run = run_of(trainer)
    if run is None or not _number(trainer):
        return result
    settings = section(run.config, "trainer")
    named = settings.get("resume_mode") == "resume_path"
    folder = settings["resume_from_path"] if named else _folder(trainer, run)
    with plainly():
        run.load(folder)
    say(f"the estimator goes on from {folder}")
    return result


def _make_folder(run: BasisRun) -> None:
    """Make sure that checkpoints and the record can be written."""
    folder = Path(section(run.config, "trainer").get("default_local_dir") or ".")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BasisError(f"trainer.default_local_dir: {cannot_write(folder, error)}") from error
    check_writable(folder / NAME, shown=folder / NAME)


def _folder(trainer: Any, run: BasisRun) -> Path:
    folder = section(run.config, "trainer").get("default_local_dir") or "."
    return Path(folder) / f"global_step_{_number(trainer)}"


def _number(trainer: Any) -> int:
    """Number of a checkpoint: steps, or in the fully asynchronous trainer versions of weights."""
    return int(getattr(trainer, "current_param_version", trainer.global_steps))
