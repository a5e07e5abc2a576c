"""The configuration that an output folder was made with, and whether a new run fits it."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from basis_rl.errors import ConfigError
from basis_rl.files import write_atomically
from basis_rl.train import checkpoints, document

FILE = "config.resolved.yaml"
# Changing these leaves what has been trained so far as it is.
HARMLESS = (
    "data.eval*",
    "model.attention",
    "pass_rates.allow",
    "pass_rates.min_coverage",
    "trl.dataloader_num_workers",
    "trl.disable_tqdm",
    "trl.eval_*",
    "trl.gradient_checkpointing*",
    "trl.hub_*",
    "trl.log_*",
    "trl.logging_*",
    "trl.max_steps",
    "trl.max_zero_batches",
    "trl.num_completions_to_print",
    "trl.num_generations_eval",
    "trl.num_train_epochs",
    "trl.per_device_eval_batch_size",
    "trl.push_to_hub",
    "trl.report_to",
    "trl.run_name",
    "trl.save_*",
)
_SHOWN = 4


def check(output_dir: str | Path, values: document.Document) -> None:
    """Refuse to go on with another configuration than the folder's.

    Without a model or a checkpoint there is nothing that it could spoil.

    Parameters
    ----------
    output_dir : str or Path
    values : dict
        The new run's resolved configuration.

    Raises
    ------
    ConfigError
        Listing what differs.
    """
    if not checkpoints.has_results(output_dir):
        return
    path = Path(output_dir) / FILE
    if not path.exists():
        raise ConfigError(
            f"output_dir {output_dir} holds the results of a run that basis-rl did not start "
            f"(there is no {FILE}): use another output_dir"
        )
    changed = differences(document.read_document(path), values)
    if changed:
        more = f"; and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        raise ConfigError(
            f"output_dir {output_dir} holds the results of another configuration "
            f"({'; '.join(changed[:_SHOWN])}{more}): set these back to resume, or use another "
            "output_dir"
        )


def differences(old: document.Document, new: document.Document) -> list[str]:
    """Keys whose values differ, harmless ones left out: ``trl.seed: 1 there, 2 here``."""
    # Through YAML, so that both sides have the same types.
    flat_old, flat_new = document.flatten(old), document.flatten(_as_read(new))
    missing = object()
    changed = []
    for key in dict.fromkeys([*flat_old, *flat_new]):
        before, now = flat_old.get(key, missing), flat_new.get(key, missing)
        if before != now and not any(fnmatch(key, pattern) for pattern in HARMLESS):
            changed.append(f"{key}: {_shown(before, missing)} there, {_shown(now, missing)} here")
    return changed


def write(output_dir: str | Path, values: document.Document) -> Path:
    """Write the resolved configuration, atomically."""
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    write_atomically(path, document.dump(values).encode())
    return path


def _as_read(values: document.Document) -> document.Document:
    parsed = document.parse_yaml(document.dump(values), where=FILE)
    assert isinstance(parsed, dict)
    return parsed


def _shown(value: Any, missing: object) -> str:
    return "not set" if value is missing else f"{value!r:.60}"
