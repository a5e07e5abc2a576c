"""`RolloutPool`: rollouts of one policy with their rewards and sketched score gradients."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from basis_rl.batch import FloatArray
from basis_rl.files import write_atomically
from basis_rl.lab.record import RecordError

if TYPE_CHECKING:
    from basis_rl.prompts import Prompt

LOSSES = ("sum", "token-mean")


@dataclass(frozen=True)
class RolloutPool:
    """K rollouts of each of P prompts, all under the policy whose gradient is asked for.

    Attributes
    ----------
    keys : list of str, length P
    rewards, lengths : float64 array, shape (P, K)
        Lengths in tokens.
    sketches : float32 array, shape (P, K, d)
        Sketch of the gradient of each completion's log-probability, summed over its tokens.
    squared_norms : float64 array, shape (P, K)
        Of these gradients, without the sketch's error.
    offline : float64 array, shape (P, n)
        Rewards for the pass rates; n may be 0.
    earlier : float64 array, shape (P, E)
        One reward of each of E earlier epochs, for estimators that remember; E may be 0.
    sources : list of str, length P, optional
    settings : mapping
        What the rollouts were sampled with; JSON types.

    Raises
    ------
    RecordError
        If shapes contradict each other, or there are fewer than 4 prompts or 2 rollouts.
    """

    keys: list[str]
    rewards: FloatArray
    lengths: FloatArray
    sketches: npt.NDArray[np.float32]
    squared_norms: FloatArray
    offline: FloatArray
    earlier: FloatArray
    sources: list[str] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = self.rewards.shape
        if len(shape) != 2 or shape[0] < 4 or shape[1] < 2:
            raise RecordError(f"rewards of shape {shape}: sample 4 prompts, 2 rollouts or more")
        for name in ("lengths", "squared_norms"):
            if getattr(self, name).shape != shape:
                raise RecordError(f"{name} has shape {getattr(self, name).shape}, not {shape}")
        if self.sketches.shape[:2] != shape:
            raise RecordError(f"sketches of shape {self.sketches.shape} for rewards of {shape}")
        for name in ("keys", "offline", "earlier"):
            if len(getattr(self, name)) != shape[0]:
                raise RecordError(f"{len(getattr(self, name))} {name} for {shape[0]} prompts")

    def without_missing(self) -> RolloutPool:
        """Only the prompts all of whose rollouts have a verdict."""
        has_all = ~np.isnan(np.hstack([self.rewards, self.offline, self.earlier])).any(1)
        if has_all.all():
            return self
        arrays = {
            f.name: getattr(self, f.name)[has_all]
            for f in fields(self)
            if isinstance(getattr(self, f.name), np.ndarray)
        }
        kept = np.flatnonzero(has_all)
        sources = None if self.sources is None else [self.sources[i] for i in kept]
        return replace(self, keys=[self.keys[i] for i in kept], sources=sources, **arrays)

    def gram(self, loss: str = "sum") -> FloatArray:
        """Inner products of all rollouts' gradients, shape (P K, P K), prompt by prompt.

        Parameters
        ----------
        loss : {"sum", "token-mean"}
            Gradient of a completion's log-probability, or of its mean over the tokens (GRPO's
            ``1 / |o_i|``).
        """
        flat = self.sketches.reshape(-1, self.sketches.shape[-1]).astype(np.float64)
        flat /= self._divisors(loss).reshape(-1, 1)
        products = flat @ flat.T
        # Exact where that is known: the largest numbers by far.
        np.fill_diagonal(products, self.norms(loss).ravel())
        return products

    def norms(self, loss: str = "sum") -> FloatArray:
        """Squared norm of each rollout's gradient, shape (P, K)."""
        return np.asarray(self.squared_norms / self._divisors(loss) ** 2)

    def _divisors(self, loss: str) -> FloatArray:
        if loss not in LOSSES:
            raise RecordError(f"loss is {loss!r}: use one of {', '.join(LOSSES)}")
        return self.lengths if loss == "token-mean" else np.ones_like(self.lengths)


class PoolFolder:
    """Where the rollouts of a pool are kept, a file a prompt, so that sampling can go on.

    Parameters
    ----------
    path : path
        Made if missing; its parent must exist.
    prompts : sequence of Prompt
        In an order that stays the same: more may be added at the end later.
    settings : mapping
        All else that the rollouts depend on; JSON types.

    Raises
    ------
    RecordError
        If the folder holds rollouts of other settings or other prompts.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        prompts: Sequence[Prompt],
        settings: Mapping[str, Any],
    ) -> None:
        self.path = Path(path)
        self.prompts = list(prompts)
        self.settings = dict(settings)
        self.path.mkdir(exist_ok=True)
        before = read_settings(self.path)
        if before is None:
            text = json.dumps(self.settings, indent=1)
            write_atomically(self.path / "settings.json", text.encode())
            return
        for name in sorted(before.keys() | self.settings.keys()):
            old, new = before.get(name), self.settings.get(name)
            if old != new:
                raise RecordError(
                    f"{self.path} holds rollouts with {name} {old!r:.60}, not {new!r:.60}: choose "
                    "another folder, or delete this one"
                )

    def has(self, number: int) -> bool:
        """Whether the rollouts of a prompt are there."""
        return self._file(number).exists()

    @property
    def done(self) -> int:
        """Prompts whose rollouts are there."""
        return sum(self.has(number) for number in range(len(self.prompts)))

    def write(self, number: int, **arrays: npt.NDArray[Any]) -> None:
        """Keep the rollouts of a prompt, all of them or nothing."""
        buffer = io.BytesIO()
        row = np.frombuffer(_row_hash(self.prompts[number]), dtype=np.uint8)
        np.savez(buffer, row=row, **arrays)  # type: ignore[arg-type]
        write_atomically(self._file(number), buffer.getvalue())

    def read(self) -> RolloutPool:
        """The pool of all prompts.

        Raises
        ------
        RecordError
            If a prompt's rollouts are missing, damaged, or of another prompt.
        """
        parts = [self._part(number) for number in range(len(self.prompts))]
        arrays = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
        sources = [prompt.source or "" for prompt in self.prompts]
        return RolloutPool(
            [prompt.key for prompt in self.prompts],
            sources=sources if any(sources) else None,
            settings=self.settings,
            **arrays,
        )

    def _part(self, number: int) -> dict[str, npt.NDArray[Any]]:
        path = self._file(number)
        try:
            with np.load(path, allow_pickle=False) as saved:
                arrays = dict(saved)
            row = arrays.pop("row").tobytes()
        except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
            reason = getattr(error, "strerror", None) or "it is damaged"
            raise RecordError(
                f"{path} cannot be read ({reason}): delete it, and it is sampled again"
            ) from error
        if row != _row_hash(self.prompts[number]):
            raise RecordError(
                f"{path} holds rollouts of another prompt than {self.prompts[number].key!r}: "
                "choose another folder, or delete this one"
            )
        return arrays

    def _file(self, number: int) -> Path:
        return self.path / f"{number:06}.npz"


def _row_hash(prompt: Prompt) -> bytes:
    """Hash of all that a prompt's rollouts and rewards depend on."""
    row = f"{prompt.key}\0{prompt.prompt!r}\0{sorted(prompt.columns.items())!r}"
    return hashlib.sha256(row.encode("utf-8", "surrogatepass")).digest()


def read_settings(folder: Path) -> dict[str, Any] | None:
    """Settings of the rollouts in a folder; None where there are none.

    Raises
    ------
    RecordError
        If the file is damaged.
    """
    path = folder / "settings.json"
    if not path.exists():
        return None
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read ({error}): delete the folder") from error
    return dict(settings)
