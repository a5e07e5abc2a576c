"""Writes the rewards of a training run down as it sees them."""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from basis_rl.adapters.option_names import OptionNames
from basis_rl.batch import RewardBatch
from basis_rl.errors import BasisError
from basis_rl.files import cannot_write
from basis_rl.passrates import Provenance
from basis_rl.passrates.inspect.compare import Reward
from basis_rl.passrates.training_record import FORMAT, NAME


class RewardRecord:
    """Appends generation batches to the record in a run's output folder.

    A batch is in the system's hands when `write` returns: a killed run loses none. What a crash cut
    off at the end is dropped before the first write.

    Parameters
    ----------
    folder : path
        Made with the first write if it is not there.
    provenance : Provenance
        Of the run.
    rewards : sequence of Reward
        The run's reward functions.
    names : OptionNames
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        provenance: Provenance,
        rewards: Sequence[Reward],
        *,
        names: OptionNames,
    ) -> None:
        self.path = Path(folder) / NAME
        self._names = names
        self._header = {
            "record": FORMAT,
            "id": uuid.uuid4().hex,
            "run": provenance.to_dict(),
            "rewards": [[reward.name, reward.weight] for reward in rewards],
        }
        self._last = (-1, -1)

    def write(self, batch: RewardBatch) -> None:
        """Add one generation batch, of all processes.

        Raises
        ------
        BasisError
            If it cannot be written.
        """
        step = batch.step or 0
        part = self._last[1] + 1 if self._last[0] == step else 0
        entry: dict[str, Any] = {
            "step": step,
            "part": part,
            "policy_step": _policy_step(batch),
            "keys": batch.keys,
            "rewards": [None if math.isnan(r) else r for r in batch.rewards.tolist()],
            "sources": batch.sources,
        }
        lines = [entry] if self._last[0] >= 0 else [self._header, entry]
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        try:
            if self._last[0] < 0:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                _drop_cut_line(self.path)
            with self.path.open("ab") as stream:
                stream.write(data)
        except OSError as error:
            raise BasisError(
                f"{cannot_write(self.path, error)}, or set {self._names.no_record}"
            ) from error
        self._last = (step, part)


def _policy_step(batch: RewardBatch) -> int:
    if batch.row_versions is not None:
        return int(batch.row_versions.min())
    return (batch.step or 0) if batch.policy_version is None else batch.policy_version


def _drop_cut_line(path: Path) -> None:
    if not path.exists():
        return
    with path.open("r+b") as stream:
        end = stream.seek(0, os.SEEK_END)
        kept = end
        while kept:
            start = max(kept - 65536, 0)
            stream.seek(start)
            newline = stream.read(kept - start).rfind(b"\n")
            if newline >= 0:
                kept = start + newline + 1
                break
            kept = start
        if kept < end:
            stream.truncate(kept)
